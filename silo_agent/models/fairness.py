"""A silo's fairness report: shared and personal model by protected group, on patients whom training never saw.

These figures are exact and stay inside the hospital. Nothing is released and nothing is charged. If a protected
attribute is the study's domain, the report has the figures of all hospitals together beside them, which follow from
sums that were released and charged (docs/design/terms.md, "Fairness").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from policies.documents.study import Study
from silo_agent.data.errors import Faults
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.errors import SiloError
from silo_agent.learning.encoder.encoder import features
from silo_agent.learning.figures.evaluation import Estimate
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.models.attacker import attacker_auc
from silo_agent.models.evaluate import HospitalCohorts, NoModelError, file_of
from silo_agent.models.groups import Fairness, Released, fairness, released
from silo_agent.storage.folders import StudyFolder


class NoReportError(SiloError):
    """The study has nothing that the report could be divided by."""


@dataclass(frozen=True)
class Report:
    """The report of one study: an entry for each protected attribute. `personal` is None if there is no such model.

    `together`: all hospitals' patients, from the noised sums. None if no protected attribute is the study's domain, or
    if the last round's sums have not been opened.
    """

    study: str
    name: str
    round: int
    file: str
    held_out: int
    shared: tuple[Fairness, ...]
    personal: tuple[Fairness, ...] | None
    together: Released | None = None


def report(folder: Path, round_number: int, cohorts: HospitalCohorts, *, personal_kept: bool = True) -> Report:
    """Report on the models that a study's `folder` holds after a round, on the hospital's held-out patients.

    `personal_kept` is False if the removal of the personal model has begun. Raises `NoModelError`, `NoFileError`,
    `NoReportError`, `DataError`.
    """
    path = StudyFolder(folder).model(round_number)
    if not path.exists():
        msg = f"there is no finished round of this study in {folder}; run the study first"
        raise NoModelError(msg)
    model = SharedModel.load(path)
    study = model.study
    if not study.data.protected:
        msg = (
            "this study lists no column in data.protected, so there are no groups to compare; ask for a study that does"
        )
        raise NoReportError(msg)
    if not is_of_classes(model.family):
        msg = "a fairness report is about classes, and data.label of this study is a number"
        raise NoReportError(msg)
    file, _ = file_of(study, None, cohorts)
    reading = read_records(
        file,
        study.data,
        cohorts.division.identified_by,
        faults=Faults(3),
        written=cohorts.written,
        withdrawn=cohorts.withdrawn,
    )
    records = reading.some()
    held_out = cohorts.division.split(records)[1]
    own = StudyFolder(folder).personal
    personal = PersonalModel.load(own) if personal_kept and own.exists() else None
    return Report(
        study=study.digest,
        name=study.name,
        round=round_number,
        file=file.name,
        held_out=held_out.patient_count,
        shared=of_model(model, held_out),
        personal=None if personal is None else of_model(personal, held_out),
        together=_of_sums(StudyFolder(folder), study),
    )


def of_model(model: SharedModel | PersonalModel, records: Records) -> tuple[Fairness, ...]:
    """The figures of a model for every protected attribute of its study, whose outcome is classes."""
    study, family, protected = model.study, model.family, records.protected
    if protected is None or not is_of_classes(family):
        msg = "the records have no protected attributes, or the outcome is a number"
        raise ValueError(msg)
    encoder = model.build_encoder() if isinstance(model, SharedModel) else model.network.encoder
    seen = features(encoder, records.inputs, records.images)[:, : study.model.representation].numpy()
    said = model.predict(records.inputs, records.domains, records.images)
    return tuple(
        fairness(
            said,
            records.labels,
            protected[:, place],
            records.patients,
            attribute=factor.column,
            names=factor.names,
            bins=study.evaluation.bins,
            family=family,
            attacker=attacker_auc(seen, protected[:, place], records.patients),
        )
        for place, factor in enumerate(study.data.protected)
    )


def _of_sums(folder: StudyFolder, study: Study) -> Released | None:
    """What the opened sums say of the groups. Raises `NoReportError` for a file of results that is not the study's."""
    attribute = study.data.domain[0]
    if (attribute,) != study.data.domain or attribute not in study.data.protected or not folder.results.exists():
        return None
    try:
        content = json.loads(folder.results.read_bytes())
        if content["study"] != study.digest:
            msg = f"{folder.results} belongs to another study; restore it from a backup"
            raise NoReportError(msg)
        found = [
            {figure: None if said is None else Estimate(**said) for figure, said in result.items()}
            for result in content["by_domain"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        msg = f"{folder.results} is damaged; restore it from a backup, or move it away to report on the models alone"
        raise NoReportError(msg) from None
    return released(attribute.column, attribute.names, found)
