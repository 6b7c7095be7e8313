"""A model's figures by protected group, and how far apart the groups are. Exact and private.

What may leave the hospital are the metrics by domain from noised sums alone (docs/design/terms.md, "Fairness").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.evaluation.evaluation import quality
from silo_agent.learning.families.family import OfClasses

_SHUFFLES: Final = 200
_LEVEL: Final = 95.0


@dataclass(frozen=True)
class GroupQuality:
    """Figures of one group; None if it has no records, or none of a class that the figure needs.

    `calibration` is the expected calibration error, `expected_observed` what was predicted over what happened,
    `false_negatives` the share of the ill whom the model calls well (two classes only, at its usual threshold of 1/2).
    """

    group: str
    records: int
    auc: float | None
    expected_observed: float | None
    calibration: float | None
    false_negatives: float | None


FIGURES: Final = ("auc", "expected_observed", "calibration", "false_negatives")


@dataclass(frozen=True)
class Gap:
    """Largest less smallest of the groups' figures, and what is found in one of 20 cases if groups make no difference.

    `by_chance`: the 95th percentile of the gap if the groups are dealt out to the patients at random. A gap below it
    says nothing. Both are None with fewer than two groups that have the figure.
    """

    gap: float | None
    by_chance: float | None


@dataclass(frozen=True)
class Fairness:
    """One model and one protected attribute. `gaps` has one entry for each of `FIGURES`.

    `attacker`: AUC of who guesses the attribute from the representation (`attacker.attacker_auc`).
    """

    attribute: str
    groups: tuple[GroupQuality, ...]
    gaps: dict[str, Gap]
    attacker: float | None


def fairness(
    probabilities: NDArray[np.float64],
    labels: NDArray[np.int64],
    places: NDArray[np.int64],
    patients: NDArray[np.int64],
    *,
    attribute: str,
    names: Sequence[str],
    bins: int,
    family: OfClasses,
    attacker: float | None,
) -> Fairness:
    """The figures of every group, for `probabilities` (n, C) and the groups' `places` (n,) among `names`.

    `patients` (n,) says whose each record is. The result is a function of its arguments.
    """

    def by_group(of: NDArray[np.int64]) -> tuple[GroupQuality, ...]:
        masks = (of == place for place in range(len(names)))
        pairs = zip(names, masks, strict=True)
        return tuple(_of_group(name, probabilities[own], labels[own], bins, family) for name, own in pairs)

    found, drawn = by_group(places), np.random.default_rng(0)
    people, index = np.unique(patients, return_inverse=True)
    first = np.zeros(len(people), np.int64)
    first[index.ravel()] = places
    dealt = [by_group(drawn.permutation(first)[index.ravel()]) for _ in range(_SHUFFLES)]
    gaps = {}
    for figure in FIGURES:
        by_chance = [gap for gap in (_gap(groups, figure) for groups in dealt) if gap is not None]
        chance = float(np.percentile(by_chance, _LEVEL)) if by_chance else None
        gap = _gap(found, figure)
        gaps[figure] = Gap(gap, None if gap is None else chance)
    return Fairness(attribute, found, gaps, attacker)


def _of_group(
    name: str, probabilities: NDArray[np.float64], labels: NDArray[np.int64], bins: int, family: OfClasses
) -> GroupQuality:
    whole = quality(probabilities, labels, bins, family)
    missed = None
    ill = labels > 0
    if family.has_auc and ill.any():
        missed = float((family.decisions(probabilities[ill]) != labels[ill]).mean())
    return GroupQuality(name, len(labels), whole.auc, whole.expected_observed, whole.calibration, missed)


def _gap(groups: Sequence[GroupQuality], figure: str) -> float | None:
    values = [value for value in (getattr(group, figure) for group in groups) if value is not None]
    return max(values) - min(values) if len(values) > 1 else None
