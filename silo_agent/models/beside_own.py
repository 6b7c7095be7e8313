"""The shared model beside one of this hospital's records alone, for all held-out patients and for each domain.

The figures are exact, and as private as the records. Guarantees: both models are measured on the same patients, whom
neither has seen, and a difference is called one only if its 95 % interval has it on one side of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.records import Records
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.figures.paired import PairedDifference, paired
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.outcomes.links import logits_of, losses

Verdict = Literal["better", "worse", "no clear difference", "too few patients"]
"""What the shared model is for a group, beside the hospital's own records alone."""


@dataclass(frozen=True)
class GroupBeside:
    """One group's figures: the area under the curve (more is better), or the mean loss (less is better).

    `domain` is None for all patients. `difference` is the shared model's figure less the other's, None if it has none,
    and `verdict` what its interval says of the shared model.
    """

    domain: str | None
    patients: int
    shared: float | None
    own: float | None
    difference: PairedDifference | None
    verdict: Verdict


@dataclass(frozen=True)
class BesideOwn:
    """The groups, all patients first. `kind` says what was made of this hospital's records: regression or boosting."""

    kind: str
    figure: Literal["AUC", "loss"]
    groups: tuple[GroupBeside, ...]


def beside_own(shared: SharedModel, own: AloneModel, records: Records) -> BesideOwn:
    """Compare them on records of patients whom neither has seen."""
    family, names = shared.family, shared.study.data.domains
    areas = is_of_classes(family) and family.has_auc
    said = [model.predict(records.inputs, records.domains, records.images) for model in (shared, own)]

    def figure(predictions: NDArray[np.float64], labels: NDArray[np.int64]) -> float | None:
        if not len(labels):
            return None
        if areas:
            return auc(predictions[:, 1], labels)
        return float(losses(logits_of(predictions, family), labels, family).mean())

    def group(domain: str | None, rows: NDArray[np.bool_]) -> GroupBeside:
        labels, patients = records.labels[rows], records.patients[rows]
        first, second = (one[rows] for one in said)
        found = paired(second, first, labels, patients, family)
        difference = found.auc if areas else found.loss
        verdict = _verdict(difference, more_is_better=areas)
        return GroupBeside(domain, found.patients, figure(first, labels), figure(second, labels), difference, verdict)

    everybody = np.ones(len(records), np.bool_)
    groups = [group(None, everybody), *(group(name, records.domains == m) for m, name in enumerate(names))]
    return BesideOwn(own.kind, "AUC" if areas else "loss", tuple(groups))


def _verdict(found: PairedDifference | None, *, more_is_better: bool) -> Verdict:
    if found is None or found.low is None or found.high is None:
        return "too few patients"
    if found.low <= 0.0 <= found.high:
        return "no clear difference"
    return "better" if (found.value > 0.0) == more_is_better else "worse"


def sentences(found: BesideOwn) -> list[str]:
    """One plain sentence for each group that the shared model is worse for."""
    lines = []
    for one in found.groups:
        if one.verdict == "worse" and one.shared is not None and one.own is not None:
            whom = "all patients together" if one.domain is None else f"the domain {one.domain}"
            lines.append(
                f"For {whom} the shared model is worse than one of this hospital's records alone: {found.figure}"
                f" {one.shared:.3f} and not {one.own:.3f}."
            )
    return lines
