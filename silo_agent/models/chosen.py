"""Finds the model that a hospital predicts with: the one that it chose, or one that is asked for by name.

Guarantees: whoever asks for the chosen model is told which it is and why. A choice that cannot be read, or that was
made for another model, is an error with a fix, never quietly another model. Exports and model cards do not come here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from silo_agent.learning.alone.mixing import MixedModel
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.model import files, kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.choice import ALONE, MIXED, PERSONAL, REFITTED, SHARED, Choice, broken
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.unknown_domain import Model
from silo_agent.models.predict import load_model
from silo_agent.storage.folders import StudyFolder


@dataclass(frozen=True, repr=False, eq=False)
class Picked:
    """A model, its name, and why it is the one; `choice` is None if this hospital has made none for this model."""

    model: Model
    name: str
    why: str
    choice: Choice | None


def by_name(path: Path, *, personal: bool) -> Picked:
    """A model file that was asked for. Raises `ModelFileError`."""
    return Picked(load_model(path, personal=personal), PERSONAL if personal else SHARED, "it was asked for", None)


def chosen(folder: StudyFolder, round_number: int, removed: date | None = None) -> Picked:
    """The model that this hospital chose beside the shared model of the study's last finished round.

    It is the shared model if there is no choice yet, and if the private files were `removed`. Raises `ModelFileError`.
    """
    shared = kept_parts.load(folder.model(round_number))
    if removed is not None:
        return Picked(shared, SHARED, f"the private files, with the choice, were removed on {removed}", None)
    if not folder.choice.exists():
        if shared.study.personal is None:
            why = "the study asks for no personal models"
        elif shared.round < shared.study.rounds:
            why = "a hospital chooses after the study's last round"
        else:
            why = f"this hospital has not chosen yet; {folder.personal_log.name} says more"
        return Picked(shared, SHARED, why, None)
    choice = Choice.load(folder.choice)
    if choice.study.digest != shared.study.digest or choice.shared != shared.digest:
        raise broken(folder.choice, "it was made for another shared model")
    return Picked(_model(folder, shared, choice), choice.candidate, choice.why, choice)


def _model(folder: StudyFolder, shared: SharedModel, choice: Choice) -> Model:
    if choice.candidate in REFITTED:
        return PersonalModel.start(shared, choice.heads)
    if choice.candidate in {ALONE, MIXED}:
        with files.naming(folder.alone):
            alone = AloneModel.from_bytes(_made_for(folder.alone, choice.alone, folder))
        return alone if choice.mix is None else MixedModel(shared, alone, choice.mix)
    if choice.candidate != PERSONAL:
        return shared
    return PersonalModel.from_bytes(_made_for(folder.personal, choice.personal, folder))


def _made_for(path: Path, wanted: str, folder: StudyFolder) -> bytes:
    """A file's bytes, if they are those that the choice was made for. Raises `ModelFileError`."""
    blob = files.read(path)
    if hashlib.sha256(blob).hexdigest() != wanted:
        raise broken(folder.choice, f"it was made for another {path.name}")
    return blob
