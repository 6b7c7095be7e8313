"""The same patient at several hospitals: what the releases of all of them cost somebody who has records at each.

A ledger bounds what one hospital's releases tell about a patient of that hospital. Hospitals do not know which patients
they share, and need not know. This bound holds for a patient of all of them at once, and for a patient of some of them.

Updates of all hospitals compose like those of one. The mu of noised sums add up over hospitals, because the sums may
share one noise. The proof: docs/design/noise.md, "Several hospitals".

At each hospital a public hash with the hospital's own salt puts the patient into one cohort, training or evaluation.
All combinations of cohorts are priced and the largest price counts. If there are too many combinations, the patient is
priced as if in both cohorts at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from policies.accounting import accountant
from policies.errors import CostError
from policies.plan.cost import COHORTS, MAX_NOISE, Cost

MAX_HOSPITALS: Final = 256
SEVERAL: Final = (2, 3)
"""Numbers of hospitals at which one patient may well be."""
_MOST_COMBINATIONS: Final = 64
"""Combinations of cohorts, or pairs of hospitals, that are priced one by one. For more, a larger bound is priced."""


@dataclass(frozen=True)
class Several:
    """Upper bounds on epsilon at one delta; infinite if a hospital released without noise."""

    delta: float
    alone: tuple[float, ...]
    """For a patient of one hospital; hospitals stand in the order given."""
    two: float
    """For a patient of any two of them."""
    all: float
    """For a patient of all of them."""


def bound(hospitals: Sequence[Sequence[Cost]], delta: float) -> Several:
    """Price what these hospitals were charged, for a patient of one, of any two and of all of them.

    Raises `CostError` for fewer than 2 or more than 256 hospitals, and for a delta outside [1e-12, 1).
    """
    if not 2 <= len(hospitals) <= MAX_HOSPITALS:  # noqa: PLR2004 - below two there is nobody to share a patient with
        msg = f"{len(hospitals)} ledgers were given; give those of 2 to {MAX_HOSPITALS} hospitals"
        raise CostError(msg)
    alone = tuple(accountant.epsilon(costs, delta) for costs in hospitals)
    everywhere = epsilon(hospitals, delta)
    pairs = _pairs(hospitals)
    if len(pairs) > _MOST_COMBINATIONS:
        return Several(delta, alone, everywhere, everywhere)
    return Several(delta, alone, min(everywhere, max(epsilon(pair, delta) for pair in pairs)), everywhere)


def of_plan(costs: Sequence[Cost], silos: int, delta: float) -> dict[int, float]:
    """By number of hospitals: epsilon for a patient of that many, of `silos` that all release what these cost."""
    return {many: epsilon([costs] * many, delta) for many in SEVERAL if many <= silos}


def epsilon(hospitals: Sequence[Sequence[Cost]], delta: float) -> float:
    """Upper bound on epsilon at `delta` for one patient more or less at all these hospitals. Raises `CostError`."""
    return max(accountant.epsilon(costs, delta) for costs in _worlds(hospitals))


def _worlds(hospitals: Sequence[Sequence[Cost]]) -> Iterator[list[Cost]]:
    """The patient's releases, for each way in which the hospitals' hashes may place the patient in cohorts."""
    choices = [_cohorts(costs) for costs in hospitals]
    if math.prod(map(len, choices)) > _MOST_COMBINATIONS:
        choices = [[tuple(costs)] for costs in hospitals]
    seen: set[tuple[Cost, ...]] = set()
    for chosen in product(*choices):
        together = _together(chosen)
        if together not in seen:
            seen.add(together)
            yield list(together)


def _cohorts(costs: Sequence[Cost]) -> list[tuple[Cost, ...]]:
    """Costs by cohort, without cohorts that have none; one empty part if there are no costs."""
    parts = [tuple(cost for cost in costs if cost.cohort == cohort) for cohort in COHORTS]
    return [part for part in parts if part] or [()]


def _together(chosen: Iterable[Sequence[Cost]]) -> tuple[Cost, ...]:
    """One patient's releases at all hospitals, as if at one: plain ones as one Gaussian, sampled ones unchanged."""
    mus: list[float] = []
    sampled: list[Cost] = []
    for costs in chosen:
        if any(cost.noise == 0 for cost in costs):
            return (Cost("training", 1.0, 0.0, 1),)
        sampled += [Cost("training", c.sampling_rate, c.noise, c.count) for c in costs if c.sampling_rate < 1]
        plain = ((cost.noise, cost.count) for cost in costs if cost.sampling_rate == 1)
        mus.append(math.sqrt(accountant.precision(plain)))
    sampled.sort(key=lambda cost: (cost.sampling_rate, cost.noise, cost.count))
    mu = math.fsum(mus)
    return (*sampled, *([Cost("training", 1.0, min(1 / mu, MAX_NOISE), 1)] if mu else []))


def _pairs(hospitals: Sequence[Sequence[Cost]]) -> set[tuple[tuple[Cost, ...], tuple[Cost, ...]]]:
    """All pairs of hospitals; pairs with equal ledgers appear once."""
    ledgers = [tuple(costs) for costs in hospitals]
    return {(ledgers[i], ledgers[j]) for i, j in combinations(range(len(ledgers)), 2)}
