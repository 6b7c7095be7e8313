"""The parts of a model that a recipe keeps at the silo: its own encoder, its own heads, or both.

Guarantees: kept parts are trained in the same clipped, noised and charged steps as those that are uploaded, so what a
later upload or metric reads of them is paid for. They lie in the study's folder, one file for each round, and complete
the shared model at this silo alone. A round starts from the parts of an earlier round, never from those of its own: if
a crash lost a draw and the draw was made again, two trainings would have fed them for one charge. Parts are
removed only after later ones are on the disk, and only those that no attempt, prediction or personal model reads again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from policies.plan import shapes
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.storage.checked import read_checked, write_checked
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.folders import StudyFolder

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False, eq=False)
class PartsChange:
    """A silo's change of its complete model in a round, (n,) in the order of the encoder's steps, taken apart.

    `uploaded`: (`shapes.encoder_sum_values`,). `encoder` and `heads` (joint, W): what is kept, or None.
    """

    uploaded: Floats
    encoder: Floats | None
    heads: Floats | None

    @classmethod
    def of(cls, vector: Floats, study: Study, round_number: int) -> PartsChange:
        """Take apart the change of encoder, averaged tables and trained heads, which stand in this order."""
        recipe, joint = study.composition, shapes.joint_heads(study, round_number)
        own = joint * shapes.head_width(study)
        encoder, tables, heads = np.split(vector, [shapes.encoder_values(study), len(vector) - own])
        parts: Sequence[Floats] = (
            encoder[: 0 if recipe.encoder == "kept" else None],
            tables,
            heads[: 0 if recipe.heads == "kept" else None],
        )
        uploaded = np.concatenate(parts) if recipe.keeps else vector
        return cls(
            uploaded if len(uploaded) else np.zeros(1),
            encoder if recipe.encoder == "kept" else None,
            heads.reshape(joint, -1) if recipe.heads == "kept" else None,
        )


def completed(model: SharedModel, folder: StudyFolder, before: int) -> SharedModel:
    """The silo's complete model: `model` with the parts that were kept in the newest round below `before`.

    The shared model itself if the recipe keeps nothing, or nothing was kept yet. Raises `ModelFileError` for a file
    that does not hold the study's parts.
    """
    study = model.study
    if not study.composition.keeps:
        return model
    newest = _newest(folder.kept_rounds(), before)
    return model if newest is None else _read(model, folder, newest)


def carry_over(earlier: SharedModel, before: StudyFolder, study: Study, folder: StudyFolder) -> None:
    """Let a study that continues `earlier` start from the parts that complete that model here, if both keep the same.

    They stand as those of round 0; their training was charged in the earlier study. If they are not there any more, the
    study starts from the shared model's.
    """
    kept, newest = study.composition.kept, _newest(before.kept_rounds(), earlier.round + 1)
    same = kept == earlier.study.composition.kept
    same = same and ("heads" not in kept or study.data.domains == earlier.study.data.domains)
    if kept and same and newest is not None and not folder.kept_rounds():
        write_checked(folder.kept(0), read_checked(before.kept(newest)))


def load(path: Path) -> SharedModel:
    """The silo's complete model after a round, from the shared model's file among the study's own.

    Raises `ModelFileError`, also if the recipe keeps parts and none are there: the shared model alone would predict by
    a part that nobody has trained.
    """
    model, folder = SharedModel.load(path), StudyFolder(path.parent)
    own = completed(model, folder, model.round + 1)
    if model.study.composition.keeps and own is model:
        msg = (
            f"recipe {model.study.recipe} keeps a part of the model at the silo, and {path.parent} has none; it was"
            " removed with the study's private files, or this silo has not trained: restore the folder from a backup"
        )
        raise ModelFileError(msg)
    return own


def keep(change: PartsChange, model: SharedModel, folder: StudyFolder, round_number: int) -> None:
    """Write down the parts after a round, durably. `model` is the complete model that the round started from."""
    parts = []
    if change.encoder is not None:
        parts.append(model.encoder.astype(np.float64) + change.encoder)
    if change.heads is not None:
        parts.append(np.clip(model.heads + change.heads, -HEAD_BOUND, HEAD_BOUND).ravel())
    if parts:
        write_checked(folder.kept(round_number), np.concatenate(parts).astype("<f8").tobytes())


def _newest(rounds: Iterable[int], before: int) -> int | None:
    return max((number for number in rounds if number < before), default=None)


def _read(model: SharedModel, folder: StudyFolder, number: int) -> SharedModel:
    study, path = model.study, folder.kept(number)
    recipe = study.composition
    sizes = [
        shapes.encoder_values(study) if recipe.encoder == "kept" else 0,
        model.heads.size if recipe.heads == "kept" else 0,
    ]
    try:
        content = read_checked(path)
    except LocalFileError as fault:
        raise ModelFileError(str(fault)) from None
    if len(content) != 8 * sum(sizes):
        msg = f"{path} does not hold the parts that study {study.name} keeps here; restore it from a backup"
        raise ModelFileError(msg)
    encoder, heads = np.split(np.frombuffer(content, "<f8").astype(np.float64), [sizes[0]])
    if len(encoder):
        model = replace(model, encoder=encoder.astype(np.float32))
    return replace(model, heads=heads.reshape(model.heads.shape)) if len(heads) else model
