"""Measures a silo's shared and personal model on a labelled file, by domain. The figures are exact.

It is for files that the hospital may look at freely (public test patients, its own records). Nothing is released and
nothing is charged. The results must not influence a study (docs/design/noise.md, "What may feed an upload": accepting
a model on private data is a release). Guarantees: with `held_out` only patients are scored whom no study of this data
set trains on, because the same function of the same bound fields divides them; without it, the result says how many of
each cohort were scored. A record that does not fit the study is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import BINARY, Study
from silo_agent.data.errors import Faults
from silo_agent.data.outcome import half_range
from silo_agent.data.reader import read_records
from silo_agent.data.records import NOBODY, Records
from silo_agent.data.sources.data_set import Division
from silo_agent.data.table import Source, Written
from silo_agent.errors import SiloError
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.figures.calibration_curve import CalibrationPoint, calibration_curve
from silo_agent.learning.figures.calibration_line import CalibrationLine, calibration_line
from silo_agent.learning.figures.decision_curve import NetBenefit, decision_curve
from silo_agent.learning.figures.evaluation import NumberQuality, Quality, quality
from silo_agent.learning.figures.moments import number_quality
from silo_agent.learning.figures.paired import Paired, paired
from silo_agent.learning.figures.subgroup_risks import SubgroupRisk, subgroup_risks
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.personal.choice import ALONE, MIXED, PERSONAL, REFITTED, SHARED
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.unknown_domain import Model
from silo_agent.models.beside_own import BesideOwn, beside_own
from silo_agent.models.chosen import Picked, chosen
from silo_agent.models.jackknife import NO_SPREAD, Spread, spread
from silo_agent.storage.folders import StudyFolder

CHOSEN: Final = "chosen"
_LISTED: Final = 3
"""Most faults that are repeated."""


class NoModelError(SiloError):
    """The silo has no finished model of that study."""


class NoFileError(SiloError):
    """Nobody said which file to measure on."""


@dataclass(frozen=True)
class HospitalCohorts:
    """What decides who trains and who is held out, and whose records are not read.

    `source_of` says where the hospital's records of a study are; `written` says how the hospital writes files.
    """

    division: Division
    source_of: Callable[[Study], Source | None]
    written: Written | None = None
    withdrawn: Collection[str] = ()
    """Who has withdrawn, as in `Records.identities`. No record of theirs is read."""


@dataclass(frozen=True)
class PatientCounts:
    """Patients of the file by cohort, or records if that is the study's `unit`.

    `own`: the file is the one that the hospital trained on.
    """

    unit: str
    training: int
    held_out: int
    own: bool


@dataclass(frozen=True)
class ModelEvaluation:
    """Quality by domain, with intervals of the sampling. The personal parts are None if the silo has no such model.

    `choice` names the model that this hospital chose to predict with, and `why` says why; None if it has not chosen.
    The chosen parts are None if that is the shared or the personal model. `untouched`: how each model of the hospital's
    own does beside the shared one on the held-out patients of the file, by name; empty if the records do not say whose
    they are, or if no patient is held out; `untouched_by`: the same in each domain. `beside`: the shared model beside
    one of the hospital's records alone, on the same patients; None without such a model. `lines`: of each model that is
    shown, by name, the calibration line of each domain; empty but for two classes. `subgroups`: of each of them, what
    it predicts of every group of a listed column over what happened. `curves`: of each of them, the calibration curve
    of each domain, and of all records at the end. `decisions`: of each of them, the decision curve of all records
    around the study's threshold.

    `scored` is "held out" or "all"; `patients` is None if the records do not say whose they are. `skipped` counts the
    records that do not fit the study, and `faults` says why the first were skipped.
    """

    study: str
    name: str
    round: int
    file: str
    scored: str
    patients: PatientCounts | None
    skipped: int
    faults: tuple[str, ...]
    domains: tuple[str, ...]
    shared: tuple[Quality | NumberQuality, ...]
    personal: tuple[Quality | NumberQuality, ...] | None
    shared_intervals: tuple[Spread, ...]
    personal_intervals: tuple[Spread, ...] | None
    choice: str | None = None
    why: str | None = None
    chosen: tuple[Quality | NumberQuality, ...] | None = None
    chosen_intervals: tuple[Spread, ...] | None = None
    untouched: Mapping[str, Paired] = field(default_factory=dict)
    untouched_by: Mapping[str, tuple[Paired, ...]] = field(default_factory=dict)
    beside: BesideOwn | None = None
    lines: Mapping[str, tuple[CalibrationLine, ...]] = field(default_factory=dict)
    subgroups: Mapping[str, tuple[SubgroupRisk, ...]] = field(default_factory=dict)
    curves: Mapping[str, tuple[tuple[CalibrationPoint, ...], ...]] = field(default_factory=dict)
    decisions: Mapping[str, tuple[NetBenefit, ...]] = field(default_factory=dict)


def evaluate(
    folder: Path,
    round_number: int,
    data: Path | None,
    cohorts: HospitalCohorts,
    *,
    held_out: bool = False,
    in_study_form: bool = False,
    personal_kept: bool = True,
) -> ModelEvaluation:
    """Evaluate the models that a study's `folder` holds after a round, by default on the hospital's own file.

    `held_out` leaves out all patients of the training cohort. `in_study_form`: the file is written as the study says,
    and not as this hospital's files are. `personal_kept` is False if the removal of the personal model has begun. The
    model is then not looked for. Raises `NoModelError`, `NoFileError`, `DataError`.
    """
    path = StudyFolder(folder).model(round_number)
    if not path.exists():
        msg = f"there is no finished round of this study in {folder}; run the study first"
        raise NoModelError(msg)
    model = kept_parts.load(path)
    study = model.study
    file, own = file_of(study, data, cohorts)
    # A file of other people need not have the columns that identify records here.
    identified_by = cohorts.division.identified_by if own or held_out else ()
    written = None if in_study_form else cohorts.written
    reading = read_records(
        file, study.data, identified_by, faults=Faults(_LISTED), written=written, withdrawn=cohorts.withdrawn
    )
    records = reading.some()
    patients, untouched = None, None
    if NOBODY not in records.identities:
        training, evaluation = cohorts.division.split(records)
        unit = "record" if study.data.patient is None else "patient"
        patients = PatientCounts(unit, training.patient_count, evaluation.patient_count, own)
        records, untouched = evaluation if held_out else records, evaluation
    own_models, picked = _own_models(StudyFolder(folder), round_number) if personal_kept else ({}, None)
    models: dict[str, Model] = {SHARED: model, **own_models}
    said = {name: one.predict(records.inputs, records.domains, records.images) for name, one in models.items()}
    found = {name: _by_domain(predictions, records, study, model) for name, predictions in said.items()}
    shared, shared_intervals = found[SHARED]
    personal, personal_intervals = found.get(PERSONAL, (None, None))
    chosen_one, chosen_intervals = found.get(CHOSEN, (None, None))
    compared: dict[str, tuple[Paired, ...]] = {}
    beside = None
    if untouched is not None and len(untouched):
        own_records = StudyFolder(folder).alone
        if personal_kept and own_records.exists():
            beside = beside_own(model, AloneModel.load(own_records), untouched)
        compared = {name: _beside(model, own_model, untouched) for name, own_model in own_models.items()}
    risks = {name: predictions[:, 1] for name, predictions in said.items() if study.data.label.count == BINARY}
    return ModelEvaluation(
        study=study.digest,
        name=study.name,
        round=round_number,
        file=file.name,
        scored="held out" if held_out else "all",
        patients=patients,
        skipped=reading.left_out,
        faults=tuple(map(str, reading.faults)),
        domains=study.data.domains,
        shared=shared,
        personal=personal,
        shared_intervals=shared_intervals,
        personal_intervals=personal_intervals,
        choice=None if picked is None else picked.name,
        why=None if picked is None else picked.why,
        chosen=chosen_one,
        chosen_intervals=chosen_intervals,
        untouched={name: one[-1] for name, one in compared.items()},
        untouched_by={name: one[:-1] for name, one in compared.items()},
        beside=beside,
        lines={name: _lines(own_risks, records, study) for name, own_risks in risks.items()},
        subgroups={name: subgroup_risks(study.data, records, own_risks) for name, own_risks in risks.items()},
        curves={name: _curves(own_risks, records, study) for name, own_risks in risks.items()},
        decisions={
            name: decision_curve(own_risks, records.labels, records.patients, study.threshold)
            for name, own_risks in risks.items()
        },
    )


def _own_models(folder: StudyFolder, round_number: int) -> tuple[dict[str, Model], Picked | None]:
    """The personal model, what this hospital chose if that is another one, and its choice. Raises `ModelFileError`."""
    models: dict[str, Model] = {}
    if folder.personal.exists():
        models[PERSONAL] = PersonalModel.load(folder.personal)
    picked = chosen(folder, round_number) if folder.choice.exists() else None
    if picked is not None and picked.name in {*REFITTED, ALONE, MIXED}:
        models[CHOSEN] = picked.model
    return models, picked


def _beside(shared: SharedModel, own: Model, records: Records) -> tuple[Paired, ...]:
    """The own model less the shared one in each domain, and over all records at the end."""
    first, second = (one.predict(records.inputs, records.domains, records.images) for one in (shared, own))
    masks = [records.domains == m for m in range(len(shared.study.data.domains))] + [np.ones(len(records), np.bool_)]
    return tuple(
        paired(first[rows], second[rows], records.labels[rows], records.patients[rows], shared.family) for rows in masks
    )


def file_of(study: Study, data: Path | None, cohorts: HospitalCohorts) -> tuple[Source, bool]:
    """The records to read, and whether they are the hospital's own of this study. Raises `NoFileError`."""
    trained = cohorts.source_of(study)
    if data is not None:
        return data, isinstance(trained, Path) and data.exists() and data.samefile(trained)
    if trained is None:
        msg = (
            f"agent.yaml names no data for the study {study.name!r}; name a labelled file, add them under data or"
            f" databases, or let it use data that are named there: fedward-silo study approve {study.name} --data NAME"
        )
        raise NoFileError(msg)
    return trained, True


def _lines(risks: NDArray[np.float64], records: Records, study: Study) -> tuple[CalibrationLine, ...]:
    masks = [records.domains == m for m in range(len(study.data.domains))]
    return tuple(calibration_line(risks[own], records.labels[own], records.patients[own]) for own in masks)


def _curves(risks: NDArray[np.float64], records: Records, study: Study) -> tuple[tuple[CalibrationPoint, ...], ...]:
    """The calibration curve of each domain, and of all records at the end."""
    masks = [records.domains == m for m in range(len(study.data.domains))] + [np.ones(len(records), np.bool_)]
    return tuple(calibration_curve(risks[own], records.labels[own], records.patients[own]) for own in masks)


def _by_domain(
    said: NDArray[np.float64], records: Records, study: Study, model: SharedModel
) -> tuple[tuple[Quality | NumberQuality, ...], tuple[Spread, ...]]:
    bins, family = study.evaluation.bins, model.family
    masks = [records.domains == m for m in range(len(study.data.domains))]
    if not is_of_classes(family):
        half = half_range(study.data.label)
        return tuple(number_quality(said[own], records.labels[own], half) for own in masks), (NO_SPREAD,) * len(masks)
    return (
        tuple(quality(said[own], records.labels[own], bins, family) for own in masks),
        tuple(spread(said[own], records.labels[own], records.patients[own], bins, family) for own in masks),
    )
