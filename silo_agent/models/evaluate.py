"""Measures a silo's shared and personal model on a labelled file, by domain. The figures are exact.

It is for files that the hospital may look at freely (public test patients, its own records). Nothing is released and
nothing is charged. The results must not influence a study (docs/design/noise.md, "What may feed an upload": accepting
a model on private data is a release).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from silo_agent.data.reader import read_records
from silo_agent.errors import SiloError
from silo_agent.learning.evaluation.evaluation import Quality, quality
from silo_agent.learning.model import SharedModel
from silo_agent.learning.personal import PersonalModel
from silo_agent.storage.folders import StudyFolder


class NoModelError(SiloError):
    """The silo has no finished model of that study."""


@dataclass(frozen=True)
class Evaluation:
    """Quality by domain. `personal` is None if the silo has no personal model."""

    study: str
    name: str
    round: int
    domains: tuple[str, ...]
    shared: tuple[Quality, ...]
    personal: tuple[Quality, ...] | None


def evaluate(folder: Path, round_number: int, data: Path, *, personal_kept: bool = True) -> Evaluation:
    """Evaluate the models that a study's `folder` holds after a round. Raises `NoModelError`, `DataError`.

    `personal_kept` is False if the removal of the personal model has begun. The model is then not looked for.
    """
    path = StudyFolder(folder).model(round_number)
    if not path.exists():
        msg = f"there is no finished round of this study in {folder}; run the study first"
        raise NoModelError(msg)
    model = SharedModel.load(path)
    study = model.study
    records = read_records(data, study.data)
    personal_path = StudyFolder(folder).personal
    personal = PersonalModel.load(personal_path) if personal_kept and personal_path.exists() else None

    def by_domain(predictor: SharedModel | PersonalModel) -> tuple[Quality, ...]:
        probabilities = predictor.predict(records.inputs, records.domains, records.images)
        return tuple(
            quality(
                probabilities[records.domains == m],
                records.labels[records.domains == m],
                study.evaluation.bins,
                model.family,
            )
            for m in range(len(study.data.domains))
        )

    return Evaluation(
        study=study.digest,
        name=study.name,
        round=round_number,
        domains=study.data.domains,
        shared=by_domain(model),
        personal=None if personal is None else by_domain(personal),
    )
