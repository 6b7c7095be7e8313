"""Who covers whose uploads, and who holds shares of whose secrets: everybody, or the neighbours on a circle. Pure.

Guarantees: what a silo sends, reads and derives in an attempt grows with its neighbours, and not with the roster, where
that is safe. In a study of N silos, of which T sign a list and t may be hostile, N - T may be missing. The roster's
silos stand on a circle, in the order of their names. Each has as neighbours the `reach` = N - T + t + 1 silos (2 or
more) before it and as many after it. It holds shares of theirs and of its own, and `reach` shares give a secret.
Whatever a coordinator shows to whom, the honest silos of a list then hang together by pair masks, and fewer than
`reach` silos can reveal anything of an attempt that T have voided (docs/design/sums.md, "The circle", after Bell et
al., CCS 2020; it has no random graph, because here the adversary chooses who drops out).

Up to `ALL_UP_TO` silos, and where twice the reach is the whole roster, everybody is everybody's neighbour, and T shares
give a secret (Bonawitz et al., CCS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

ALL_UP_TO: Final = 64
"""Silos of a roster up to which everybody is everybody's neighbour."""
LEAST: Final = 2
"""Least neighbours on either side, so that no silo alone holds what gives another one's secret."""


def reach_of(silos: int, colluders: int, threshold: int) -> int:
    """Return how many neighbours a silo has on either side: one more than may be missing or hostile, at least `LEAST`.

    `silos`: those that the study lists. `threshold`: how many of them sign a list (`survivors.threshold`).
    """
    return max(LEAST, silos - threshold + colluders + 1)


@dataclass(frozen=True)
class Circle:
    """The silos of a roster on a circle."""

    names: tuple[str, ...]
    """Sorted."""
    reach: int
    """Neighbours on either side (`reach_of`); 0 if everybody is to be everybody's neighbour."""

    @cached_property
    def sparse(self) -> bool:
        """Whether some silos of the roster are no neighbours."""
        return len(self.names) > ALL_UP_TO and 0 < 2 * self.reach < len(self.names) - 1

    def holders(self, owner: str) -> tuple[str, ...]:
        """Return who holds shares of this silo's secrets, sorted: its neighbours and itself.

        Raises `KeyError` for a silo that is not in the roster.
        """
        place, size = self._places[owner], len(self.names)
        if not self.sparse:
            return self.names
        return tuple(sorted(self.names[(place + step) % size] for step in range(-self.reach, self.reach + 1)))

    def neighbours(self, silo: str) -> tuple[str, ...]:
        """Return the silos with which this one shares pair masks, sorted. Raises `KeyError` as `holders` does."""
        return tuple(name for name in self.holders(silo) if name != silo)

    def later(self, silo: str) -> tuple[str, ...]:
        """Return the neighbours to which a silo sends a secret in its greeting. The others send theirs to it."""
        return tuple(name for name in self.neighbours(silo) if name > silo)

    def earlier(self, silo: str) -> tuple[str, ...]:
        """Return the neighbours whose greetings have a secret for this silo."""
        return tuple(name for name in self.neighbours(silo) if name < silo)

    def shares(self, threshold: int) -> int:
        """Return how many shares give a secret in a study whose lists `threshold` silos sign."""
        return self.reach if self.sparse else threshold

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}
