"""Noise that is made while gradients are computed: it depends on no record, so another thread draws it ahead.

Guarantees that the values come in the order in which they are made, that little more than one vector lies ready, of a
long one little more than `READY` values, and that what the maker raises is raised by whoever takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

PIECE: Final = 1 << 22
"""Most values that are made at once. A whole number of the sampler's chunks, so pieces change no value."""
READY: Final = 1 << 24
"""Values of a long vector that may lie ready: the whole noise of a network of 16 million weights, 128 MiB."""


class Ahead:
    """Makes `vectors` vectors of `values` integers, in pieces of which none lies in two vectors. Use it with `with`."""

    def __init__(self, make: Callable[[int], Integers], values: int, vectors: int) -> None:
        """`make` returns so many integers: the next ones."""
        self._make, self._values = make, values
        self._unmade, self._untaken = values * vectors, values * vectors
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
        self._coming: deque[tuple[int, Future[Integers]]] = deque()
        self._piece = np.zeros(0, np.int64)

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def take(self, values: int) -> Iterator[Integers]:
        """The next values, in pieces. Raises what making them raised, and LookupError if fewer are left."""
        if values > self._untaken:
            msg = "all vectors of noise were taken: there are no more steps than were charged"
            raise LookupError(msg)
        self._untaken -= values
        return self._taken(values)

    def _taken(self, values: int) -> Iterator[Integers]:
        while values:
            if not len(self._piece):
                self._piece = self._coming.popleft()[1].result()
                self._begin()
            part, self._piece = self._piece[:values], self._piece[values:]
            values -= len(part)
            yield part

    def _begin(self) -> None:
        while self._unmade and sum(size for size, _ in self._coming) < min(READY, self._values):
            size = min(PIECE, (self._unmade - 1) % self._values + 1)
            self._unmade -= size
            self._coming.append((size, self._thread.submit(self._make, size)))
