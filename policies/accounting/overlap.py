"""The same patient at several hospitals: what all that these have released costs somebody whose records lie at each.

A ledger bounds what one hospital's releases tell about a patient of its own. Hospitals do not know whom they share, and
need not: this bound holds for whoever is a patient of all of them at once, and for whoever is one of some.

**Why it holds.** Adding the patient everywhere changes the transcript in two ways. An encoder's update carries noise
of its own hospital's, so the updates of all hospitals compose like releases of one (counts add up). A noised sum may
carry one noise for all hospitals together (mode `distributed`), and then the patient moves it once for each: by at
most sum_i c_i where the single hospital may move it by c_i. Releases i of hospital h have mu_hi = c_hi / sd_i; by the
triangle inequality |sum_h mu_h| <= sum_h |mu_h|, and a composition of Gaussians costs what one Gaussian of that mu
does (Dong, Roth and Su 2022, Cor. 3.3). The same bound covers mode `local`, where the true value is smaller, and
releases that a recovery charged without saying which. A public hash puts the patient into one cohort of each hospital,
training or evaluation, as the hospital's own salt has it: all combinations count, or, where these are too many, both
cohorts at once.
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
_MOST_COMBINATIONS: Final = 64
"""Of cohorts, or of pairs, that are priced one by one; above it something simpler and larger is priced."""


@dataclass(frozen=True)
class Several:
    """Bounds on epsilon at one delta, infinite where somebody released without noise."""

    delta: float
    alone: tuple[float, ...]
    """Of a patient of one hospital, in the order given."""
    two: float
    """Of a patient of any two of them."""
    all: float
    """Of a patient of all of them."""


def bound(hospitals: Sequence[Sequence[Cost]], delta: float) -> Several:
    """Price what these hospitals were charged, for patients of one, of two and of all of them.

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


def epsilon(hospitals: Sequence[Sequence[Cost]], delta: float) -> float:
    """Upper bound at `delta` for one patient more or less at all of these hospitals at once. Raises `CostError`."""
    return max(accountant.epsilon(costs, delta) for costs in _worlds(hospitals))


def _worlds(hospitals: Sequence[Sequence[Cost]]) -> Iterator[list[Cost]]:
    """What the patient's releases are, for each way in which the hospitals' hashes may place the patient."""
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
    """The costs of each cohort that has any."""
    parts = [tuple(cost for cost in costs if cost.cohort == cohort) for cohort in COHORTS]
    return [part for part in parts if part] or [()]


def _together(chosen: Iterable[Sequence[Cost]]) -> tuple[Cost, ...]:
    """One patient's releases at all hospitals, as if of one: plain ones as one Gaussian, sampled ones as they are."""
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
    """Two hospitals each, of those with equal ledgers one."""
    ledgers = [tuple(costs) for costs in hospitals]
    return {(ledgers[i], ledgers[j]) for i, j in combinations(range(len(ledgers)), 2)}
