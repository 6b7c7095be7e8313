"""Sums of costs, whatever their order: how much of each kind of release there was, what one sum has beyond another.

Guarantees: `merged` neither loses nor adds a release, and the accountant prices its result like the list it came from.
`beyond(more, less)` is the smallest sum that, added to `less`, has at least as much of each kind as `more`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from policies.plan.cost import COHORTS, MAX_COUNT, Cohort, Cost

Kind = tuple[Cohort, float, float]


def merged(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    """The same releases, with equal ones merged, sorted by kind."""
    return tuple(_costs(_counted(costs)))


def beyond(more: Iterable[Cost], less: Iterable[Cost]) -> tuple[Cost, ...]:
    """What `more` has of each kind of release beyond what `less` has; empty if that is nothing."""
    return tuple(_costs(_counted(more) - _counted(less)))


def largest(sums: Iterable[Iterable[Cost]]) -> tuple[Cost, ...]:
    """The smallest sum that has at least as much of each kind of release as every one of `sums`."""
    most: Counter[Kind] = Counter()
    for costs in sums:
        most |= _counted(costs)
    return tuple(_costs(most))


def _counted(costs: Iterable[Cost]) -> Counter[Kind]:
    counts: Counter[Kind] = Counter()
    for cost in costs:
        counts[cost.cohort, cost.sampling_rate, cost.noise] += cost.count
    return counts


def _costs(counts: Counter[Kind]) -> Iterator[Cost]:
    order = sorted(counts, key=lambda kind: (COHORTS.index(kind[0]), *kind[1:]))
    for kind in order:
        rest = counts[kind]
        while rest > 0:
            yield Cost(*kind, min(rest, MAX_COUNT))
            rest -= MAX_COUNT
