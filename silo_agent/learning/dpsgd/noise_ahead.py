"""Noise that is made while gradients are computed: it depends on no record, so another thread draws it ahead.

Guarantees that the vectors come in the order in which they are made, that at most one lies ready, and that what the
maker raises is raised by whoever takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class Ahead:
    """Makes `count` vectors, each while the one before it is not yet needed. Use it with `with`."""

    def __init__(self, make: Callable[[], Integers], count: int) -> None:
        self._make, self._rest = make, count
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="noise")
        self._next: Future[Integers] | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def take(self) -> Integers:
        """The next vector. Raises what making it raised, and LookupError if all were taken."""
        if self._next is None:
            msg = "all vectors of noise were taken: there are no more steps than were charged"
            raise LookupError(msg)
        taken = self._next.result()
        self._begin()
        return taken

    def _begin(self) -> None:
        self._next = self._thread.submit(self._make) if self._rest else None
        self._rest -= self._next is not None
