"""A model's figures by protected group, and how far apart the groups are. Exact and private.

What may leave the hospital are the metrics by domain from noised sums alone: `released` compares them
(docs/design/terms.md, "Fairness").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.figures.evaluation import Estimate, quality
from silo_agent.learning.figures.intervals import clipped, difference
from silo_agent.learning.outcomes.family import OfClasses

_SHUFFLES: Final = 200
_LEVEL: Final = 95.0
_PAIR: Final = 2


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


@dataclass(frozen=True)
class Released:
    """The groups of a protected attribute at all hospitals together, from the opened, noised sums. Nothing is private.

    `groups` are names; `figures` has for each of `FIGURES` an estimate of every group. `gaps`: the largest less the
    smallest estimate, with the 95 % interval of the difference of these two groups. None with fewer than two estimates.
    """

    attribute: str
    groups: tuple[str, ...]
    figures: dict[str, tuple[Estimate | None, ...]]
    gaps: dict[str, Estimate | None]


def released(attribute: str, groups: Sequence[str], results: Sequence[Mapping[str, Estimate | None]]) -> Released:
    """Compare `results`, one for each of `groups`, by the figure's name. A figure that a result lacks is None.

    The groups' sums have independent noise and hold different patients, so their estimates are independent.
    """
    figures = {figure: tuple(result.get(figure) for result in results) for figure in FIGURES}
    return Released(attribute, tuple(groups), figures, {name: _released_gap(name, of) for name, of in figures.items()})


def _released_gap(figure: str, estimates: Sequence[Estimate | None]) -> Estimate | None:
    known = sorted((e.value, e.low, e.high) for e in estimates if e is not None and e.value is not None)
    if len(known) < _PAIR:
        return None
    gap = difference(known[-1], known[0])
    return Estimate(*(gap if figure == "expected_observed" else clipped(gap)))


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
