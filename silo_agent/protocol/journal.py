"""Where the silo stands in each study. It is stored durably after every task, before the silo reports the task.

Guarantees: after a crash, the silo goes on from the last task whose result anybody can have seen. Files are complete
before a row names them, and the row changes in one transaction. So a result that was reported once is never computed
again. `state` keeps the models of finished rounds, the releases and the sealed bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dacite import DaciteError
from numpy.typing import NDArray

from protos import record
from silo_agent.core.turns import Turn
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import ShortageError, StateError
from silo_agent.storage.own_files import own_files
from silo_agent.storage.state import State


@dataclass(frozen=True)
class Standing:
    """How far a silo has come in a study: what it must remember in the middle of an attempt."""

    turn: Turn
    model: SharedModel
    """The model that the attempt computes from; once the round is finished, the candidate for the next one."""
    digest: str = ""
    """Keyed digest of `model`, equal at all silos."""
    total: NDArray[np.int64] | None = None
    """The opened sum of the heads, until they are adopted."""


@dataclass(frozen=True)
class _Row:
    turn: Turn
    digest: str
    model: str
    """Digest of the model. The model's file is named after it."""
    total: str
    """Keyed digest of the opened sum. The sum's file is named after it. Empty if there is no sum."""


class Journal:
    """The standings that are stored in the agent's folder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def keep(self, study: str, standing: Standing) -> None:
        """Store a standing durably, in place of the one before."""
        total = b"" if standing.total is None else standing.total.astype("<i8").tobytes()
        row = _Row(standing.turn, standing.digest, standing.model.digest, self._digest(total) if total else "")
        model_path, total_path = self._paths(study, row)
        if not model_path.exists():
            write_whole(model_path, standing.model.to_bytes())
        if total and not total_path.exists():
            write_whole(total_path, total)
        self._state.keep_attempt(study, record.dump(row))
        for path in self._files(study):
            if path not in (model_path, total_path):
                path.unlink()

    def recall(self, study: str) -> Standing | None:
        """The last standing, or None if there is none. Raises `StateError` if its files were changed or are missing."""
        text = self._state.attempt(study)
        if text is None:
            return None
        try:
            row = record.load(_Row, text)
            model_path, total_path = self._paths(study, row)
            model = SharedModel.load(model_path)
            with own_files():
                total = total_path.read_bytes() if row.total else b""
        except ShortageError:
            raise
        except (DaciteError, ValueError, ModelFileError, OSError) as error:
            msg = f"{self._state.study_folder(study)}: the stored state of the study cannot be read ({error}); {_FIX}"
            raise StateError(msg) from None
        earlier = row.total == hashlib.sha256(total).hexdigest()
        if model.digest != row.model or (total and not earlier and self._digest(total) != row.total):
            msg = f"{self._state.study_folder(study)}: the stored state of the study was changed; {_FIX}"
            raise StateError(msg)
        summed = np.frombuffer(total, "<i8").astype(np.int64) if total else None
        standing = Standing(row.turn, model, row.digest, summed)
        if earlier:  # an earlier version kept the plain digest
            self.keep(study, standing)
        return standing

    def forget(self, study: str) -> None:
        """Remove the standing of a study that is over."""
        self._state.forget_attempt(study)
        for path in self._files(study):
            path.unlink()

    def _digest(self, total: bytes) -> str:
        return self._state.digests.keyed("total", hashlib.sha256(total).hexdigest())

    def _paths(self, study: str, row: _Row) -> tuple[Path, Path]:
        files = self._state.files.study(study)
        return files.attempt_model(row.model), files.attempt_total(row.total)

    def _files(self, study: str) -> list[Path]:
        return list(self._state.files.study(study).attempts())


_FIX = "restore it from the same backup as state.sqlite3"
