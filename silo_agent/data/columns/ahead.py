"""Work on keys whose results are needed one after another, done by threads before they are needed.

Guarantees: a key's result is what the work gives for this key alone. Work that fails beside other work is done again
when nothing else is going on, and what it raises then is what the caller gets: want of memory, which another key's work
may have caused, costs no key its result. At most `WINDOW` results wait, whatever the number of keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
MOST_WORKERS: Final = 4
"""Each may hold a decoded file of a third of a gigabyte."""
WINDOW: Final = 2 * MOST_WORKERS
_GOING: Final = WeakSet[Future[Any]]()
"""All work that was begun in this process, also what nobody expects any more."""
_GUARD: Final = Lock()


class WorkAhead(Generic[K, V]):
    """Does `work` for keys that are expected, a few at a time. It goes to another process without its results."""

    def __init__(self, work: Callable[[K], V]) -> None:
        self._work = work
        self._coming: Iterator[K] = iter(())
        self._begun = dict[K, Future[V]]()

    def expect(self, keys: Iterable[K]) -> None:
        """Say which keys will be asked for, about in this order. What was expected before is dropped."""
        for future in self._begun.values():
            future.cancel()
        self._begun.clear()
        self._coming = iter(keys)
        self._fill()

    def has(self, key: K) -> bool:
        """Whether the work for a key was begun."""
        return key in self._begun

    def get(self, key: K) -> V:
        """The result of one key. Raises what the work raises."""
        future = self._begun.pop(key, None)
        self._fill()
        if future is not None:
            try:
                return future.result()
            except Exception:  # noqa: BLE001, S110  # another key's work may be why
                pass
        with _GUARD:
            going = set(_GOING)
        wait(going)
        return self._work(key)

    def __reduce__(self) -> tuple[type[WorkAhead[K, V]], tuple[Callable[[K], V]]]:
        return WorkAhead, (self._work,)

    def _fill(self) -> None:
        while len(self._begun) < WINDOW:
            key = next(self._coming, None)
            if key is None:
                return
            if key not in self._begun:
                future = self._begun[key] = _pool(os.getpid()).submit(self._work, key)
                with _GUARD:
                    _GOING.add(future)


@lru_cache(1)
def _pool(_: int) -> ThreadPoolExecutor:
    """The threads of this process; a process that was forked has none of its parent's."""
    return ThreadPoolExecutor(min(MOST_WORKERS, len(os.sched_getaffinity(0))), "decoding")
