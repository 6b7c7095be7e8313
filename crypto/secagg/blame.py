"""Who spoilt the sums: what follows from the lists of spoilt sums if at most t silos are hostile. Pure.

A set of silos *explains* the spoilt lists if it has at most t names and meets every list. The hostile silos are such a
set, so whoever is in all of them is hostile, and at least one silo of any set that meets all of them is. Sums that
opened prove nothing: a hostile silo may behave while its victim is out (docs/design/sums.md, "Spoilt sums").

Only minimal explanations are looked at, because a set contains whoever all minimal ones inside it contain. If more than
`MOST` sets would have to be looked at, nobody is named, and the smallest list stands for the smallest provable set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Final

MOST: Final = 4096
"""Most sets that are looked at, of explanations and of suspects."""

Names = frozenset[str]


def explanations(lists: Iterable[Iterable[str]], colluders: int) -> tuple[Names, ...]:
    """Return the minimal sets of at most `colluders` names that meet every list, smallest first, then by name.

    Without lists the empty set explains everything. None are returned if no set explains the lists, or if more than
    `MOST` sets would have to be looked at.
    """
    wanted = sorted({frozenset(names) for names in lists}, key=lambda names: (len(names), sorted(names)))
    sets: set[Names] = set()
    open_ = [frozenset[str]()]
    seen = set(open_)
    while open_:
        if len(seen) > MOST:
            return ()
        chosen = open_.pop()
        unmet = next((names for names in wanted if not names & chosen), None)
        if unmet is None:
            sets.add(chosen)
        elif len(chosen) < colluders:
            fresh = {chosen | {name} for name in unmet} - seen
            seen |= fresh
            open_ += sorted(fresh, key=sorted)
    minimal = [one for one in sets if not any(other < one for other in sets)]
    return tuple(sorted(minimal, key=lambda one: (len(one), sorted(one))))


def named(lists: Iterable[Iterable[str]], colluders: int) -> Names:
    """Return the silos that every explanation contains; none if nothing explains the lists, or too many sets do."""
    sets = explanations(lists, colluders)
    return frozenset.intersection(*sets) if sets else frozenset()


def provable(lists: Sequence[Iterable[str]], colluders: int) -> Names:
    """Return a smallest set of which at least one silo must be hostile; empty if there is no list.

    It meets every explanation. If none is known (more than `colluders` silos are hostile, or the lists are too many),
    it is the smallest list.
    """
    smallest = min((frozenset(names) for names in lists), key=lambda one: (len(one), sorted(one)), default=frozenset())
    sets = explanations(lists, colluders)
    suspects = sorted(frozenset[str]().union(*sets))
    looked_at = 0
    for size in range(1, len(smallest)):
        for chosen in combinations(suspects, size):
            looked_at += 1
            if looked_at > MOST:
                return smallest
            if all(one.intersection(chosen) for one in sets):
                return frozenset(chosen)
    return smallest


def sit_out(
    active: Sequence[str],
    lists: Sequence[Iterable[str]],
    colluders: int,
    spare: int,
    first: int,
    *,
    away: Collection[str] = (),
) -> Names | None:
    """Return who is left out of the next sum: an explanation of which at most `spare` silos are still active.

    It is the one that costs fewest silos that are there (not `away`), then the smallest. `first` rotates who comes
    first among equals. Returns None if no explanation can be spared.
    """
    inside = [one.intersection(active) for one in explanations(lists, colluders)]
    fitting = [one for one in inside if len(one) <= spare]
    if not fitting:
        return None
    costs = [(len(one.difference(away)), len(one)) for one in fitting]
    equal = [one for one, cost in zip(fitting, costs, strict=True) if cost == min(costs)]
    return equal[first % len(equal)]
