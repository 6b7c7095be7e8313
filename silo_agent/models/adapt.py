"""Adapts a shared model that was handed over to this hospital's records, and measures it on held-out patients.

Guarantees: only the training cohort of the policy trains, as in a study of this data set. The shared model and the
adapted one are compared on the held-out patients, whom neither the training nor the choice of its length has read.
Nothing is released and nothing is charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policies.documents.recipes import Part
from silo_agent.data.errors import LISTED, Faults
from silo_agent.data.reader import read_records
from silo_agent.data.records import NOBODY
from silo_agent.learning.device import choose_device
from silo_agent.learning.errors import AdaptError, ModelFileError
from silo_agent.learning.figures.paired import Paired, paired
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import require_sound
from silo_agent.learning.personal import adapt as adapting
from silo_agent.models.evaluate import HospitalCohorts, file_of

SUFFIX: Final = ".safetensors"


@dataclass(frozen=True, repr=False, eq=False)
class Adaptation:
    """An adapted model and how it does. `held_out`: adapted less shared, on the held-out patients of `file`.

    `skipped` counts the records that do not fit the study, and `faults` says why the first were skipped.
    """

    adapted: adapting.Adapted
    file: str
    skipped: int
    faults: tuple[str, ...]
    held_out: Paired


def check_output(path: Path) -> None:
    """Raise `ModelFileError` if a model cannot be saved under this name."""
    if path.suffix != SUFFIX or path.is_dir():
        msg = f"--out {path.name}: give the name of a file that ends with {SUFFIX}"
        raise ModelFileError(msg)
    if path.exists():
        msg = f"--out {path} exists; give a new name, because a model that is in use must not change"
        raise ModelFileError(msg)
    if not path.parent.is_dir():
        msg = f"there is no folder {path.parent} for --out {path.name}; make it, or give another path"
        raise ModelFileError(msg)


def adapt(
    path: Path,
    data: Path | None,
    cohorts: HospitalCohorts,
    *,
    part: Part | None = None,
    most: int = adapting.EPOCHS,
    device: str = "auto",
) -> Adaptation:
    """Adapt the shared model at `path` to a labelled file, by default the one that `cohorts` names for its study.

    Raises `ModelFileError` (also for a model that its study cannot give), `AdaptError`, `NoFileError`, and `DataError`
    with every kind of fault if no record fits the study.
    """
    shared = SharedModel.load(path)
    require_sound(shared)
    study = shared.study
    part = adapting.part_of(study, part)
    file, _ = file_of(study, data, cohorts)
    reading = read_records(
        file,
        study.data,
        cohorts.division.identified_by,
        faults=Faults(LISTED),
        written=cohorts.written,
        withdrawn=cohorts.withdrawn,
    )
    records = reading.some()
    if NOBODY in records.identities:
        msg = (
            f"the records of {file.name} do not say whose they are, so nobody can be held out; name the columns that do"
            " in the policy: data_set.identified_by"
        )
        raise AdaptError(msg)
    training, held_out = cohorts.division.split(records)
    chosen = choose_device(device)
    adapted = adapting.adapt(shared, training, part=part, most=most, device=chosen)
    said = [model.predict(held_out.inputs, held_out.domains, held_out.images) for model in (shared, adapted.model)]
    return Adaptation(
        adapted=adapted,
        file=file.name,
        skipped=reading.left_out,
        faults=tuple(map(str, reading.faults)),
        held_out=paired(said[0], said[1], held_out.labels, held_out.patients, shared.family),
    )
