"""Measures a silo's shared and personal model on a labelled file, by domain. The figures are exact.

It is for files that the hospital may look at freely (public test patients, its own records). Nothing is released and
nothing is charged. The results must not influence a study (docs/design/noise.md, "What may feed an upload": accepting
a model on private data is a release).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.outcome import half_range
from silo_agent.data.reader import read_records
from silo_agent.errors import SiloError
from silo_agent.learning.evaluation.evaluation import NumberQuality, Quality, quality
from silo_agent.learning.evaluation.moments import number_quality
from silo_agent.learning.families.family import is_of_classes
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
    shared: tuple[Quality | NumberQuality, ...]
    personal: tuple[Quality | NumberQuality, ...] | None


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

    def by_domain(predictor: SharedModel | PersonalModel) -> tuple[Quality | NumberQuality, ...]:
        predictions = predictor.predict(records.inputs, records.domains, records.images)
        found = (records.domains == m for m in range(len(study.data.domains)))
        return tuple(_quality(predictions[own], records.labels[own], model) for own in found)

    return Evaluation(
        study=study.digest,
        name=study.name,
        round=round_number,
        domains=study.data.domains,
        shared=by_domain(model),
        personal=None if personal is None else by_domain(personal),
    )


def _quality(
    predictions: NDArray[np.float64], labels: NDArray[np.int64], model: SharedModel
) -> Quality | NumberQuality:
    study, family = model.study, model.family
    if is_of_classes(family):
        return quality(predictions, labels, study.evaluation.bins, family)
    return number_quality(predictions, labels, half_range(study.data.label))
