"""When MK-MMD's kernel weights are chosen: on every batch, or after so many steps on the batches of those steps.

Chosen on one batch the weights follow the batch's noise; chosen on several they follow the two models. A stored batch
is read again when weights are chosen, so that its features are those of the models as they are now
(docs/design/terms.md, "When the weights are chosen").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.terms.losses.mk_mmd import FEWEST, GAMMAS, RIDGE, coefficients, compare, power_problem
from silo_agent.learning.terms.term import Seen


class Mixtures:
    """The weights (layers, 19) of one personal model, and when they are chosen again.

    `every`: steps between two choices; 1 means at every step, on its batch. `look` gives what both models see of the
    records with the given numbers.
    """

    def __init__(
        self, every: int, look: Callable[[NDArray[np.int64]], Seen], known: NDArray[np.float64] | None
    ) -> None:
        self.weights = known
        self._every, self._look = every, look
        self._batches: deque[NDArray[np.int64]] = deque(maxlen=every)
        self._since = 0

    def at(self, seen: Seen) -> NDArray[np.float64] | None:
        """The weights of a step. None: they are to be chosen on its batch. The first step ever chooses on its own."""
        if self._every == 1:
            return None
        if self.weights is None and len(seen.phi) >= FEWEST:
            self.weights = choose([seen])
        return self.weights

    def taken(self, numbers: NDArray[np.int64]) -> None:
        """A step was taken on these records."""
        if self._every == 1 or len(numbers) < FEWEST:
            return
        self._batches.append(numbers)
        self._since += 1
        if self._since == self._every:
            self._choose()

    def finish(self) -> None:
        """The round is over: choose on the last batches, so that a round of few steps moves the weights too."""
        if self._since:
            self._choose()

    def _choose(self) -> None:
        self.weights, self._since = choose(self._look(numbers) for numbers in self._batches), 0


def choose(batches: Iterable[Seen]) -> NDArray[np.float64]:
    """Weights (layers, 19) of greatest power for the pairs within the batches, of at least two records each."""
    found: list[list[_Moments]] = []
    for seen in batches:
        problems = (power_problem(compare(layer.own, layer.constant).statistics()) for layer in seen.compared())
        found.append([(len(seen.phi) ** 2, *problem) for problem in problems])
    return np.array([coefficients(*_pooled(batch)) for batch in zip(*found, strict=True)])


_Moments = tuple[int, NDArray[np.float64], NDArray[np.float64]]
"""Number of pairs, and mean and covariance as of `power_problem`."""


def _pooled(parts: Iterable[_Moments]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`power_problem` of all pairs together, from that of each batch."""
    counts, means, covariances = (np.array(values, np.float64) for values in zip(*parts, strict=True))
    ridge, total = RIDGE * np.eye(len(GAMMAS)), counts.sum()
    mean = counts @ means / total
    apart = means - mean
    within = np.tensordot(counts - 1.0, (covariances - ridge) / 2.0, axes=1)
    scatter = within + (counts[:, None] * apart).T @ apart
    return mean, 2.0 * scatter / (total - 1.0) + ridge
