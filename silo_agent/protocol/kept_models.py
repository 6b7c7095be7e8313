"""The models of finished rounds on the disk, each with what the silos have agreed that it is.

Guarantees: beside each model stands one line: its keyed digest, the digest of its content, the content's key and the
keyed digest of the content that this silo has signed (`crypto.secagg.holding`). The line is durable before the model. A
model is read only if all of them fit, so a bit that has changed in the model, in the line or in the domains' sizes is
found before this silo computes from it, shares it or speaks of it. Lines of version 0.6 have the first two alone: such
a model can be used here, but not shared.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crypto.errors import SealError
from policies.documents.study import Study
from policies.plan import shapes
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.counts import noised_counts
from silo_agent.protocol.catching_up import Current
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import LocalFileError, ShortageError, StateError
from silo_agent.storage.folders import StateFolder, StudyFolder
from silo_agent.storage.own_files import own_files

_AGREED = 4
"""Words of a line that holds what this silo has signed."""


class KeptModels:
    """The models in the agent's state folder."""

    def __init__(self, files: StateFolder) -> None:
        self._files = files

    def path(self, study: str, round_number: int) -> Path:
        """The path of a finished round's model."""
        return self._files.study(study).model(round_number)

    def keep(self, current: Current) -> None:
        """Store the model of a finished round. Raises OSError."""
        files = self._files.study(current.model.study.digest)
        line = f"{current.digest} {current.model.digest} {current.key.hex()} {current.content}"
        write_whole(files.model_digests(current.model.round), line.encode())
        current.model.save(files.model(current.model.round))

    def held(self, study: Study, round_number: int) -> tuple[SharedModel, str] | None:
        """The model of a finished round with its keyed digest.

        None if its files, or the domains' sizes, are missing or were changed. Raises `ShortageError`.
        """
        files = self._files.study(study.digest)
        try:
            self.require_counts(study)
            words = _words(files, round_number)
            if len(words) == _AGREED:
                current = self.current(study, round_number)
                return current.model, current.digest
            model = SharedModel.load(files.model(round_number))
        except ShortageError:
            raise
        except (OSError, ValueError, ModelFileError, StateError):
            return None
        return (model, words[0]) if model.digest == words[1] else None

    def current(self, study: Study, round_number: int) -> Current:
        """What this silo holds after a round, as it has signed it.

        Raises `LocalFileError` if it has signed nothing, or if a file is not as it was then; `ModelFileError`,
        `ShortageError`.
        """
        files = self._files.study(study.digest)
        model = SharedModel.load(files.model(round_number))
        counts = tuple(float(count) for count in noised_counts(files.path))
        try:
            digest, _, key, content = _words(files, round_number)
            current = Current(model, digest, counts, bytes.fromhex(key))
            same = current.content == content
        except (FileNotFoundError, ValueError, SealError):
            same = False
        if not same:
            msg = f"{files.model_digests(round_number)} does not fit the model and {files.counts.name}; {_FIX}"
            raise LocalFileError(msg)
        return current

    def require_counts(self, study: Study) -> None:
        """Raise `LocalFileError` if the domains' noised sizes are missing or were changed."""
        path = self._files.study(study.digest).counts
        try:
            counts = noised_counts(path.parent)
        except (ValueError, TypeError):
            counts = np.zeros(0)
        if counts.shape != (len(study.data.domains),) or not np.isfinite(counts).all():
            msg = f"{path} is damaged; the next round takes a peer's, or restore it from a backup of the state folder"
            raise LocalFileError(msg)

    def forget_steps(self, study: Study, committed: int) -> None:
        """Remove the models of sealed steps before the committed round, on which every attempt sits.

        Those of rounds that sum heads stay: they are few, and predictions for unknown domains read the last pooled one.
        """
        files = self._files.study(study.digest)
        for number in files.model_rounds():
            if 0 < number < committed and shapes.sealed_step(study, number) is not None:
                files.model(number).unlink(missing_ok=True)
                files.model_digests(number).unlink(missing_ok=True)


def _words(files: StudyFolder, round_number: int) -> list[str]:
    with own_files():
        words = files.model_digests(round_number).read_text(encoding="ascii").split()
    if len(words) not in (2, _AGREED):
        msg = f"{len(words)} words instead of 2 or {_AGREED}"
        raise ValueError(msg)
    return words


_FIX = "this silo takes the model from a peer with the study's next round; to have it at once, restore a backup"
