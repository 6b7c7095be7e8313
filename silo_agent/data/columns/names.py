"""Names of many patients in Arrow's memory: a few bytes more than their letters, where Python takes fifty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from silo_agent.data.columns.arrow_cells import Places

_AT_ONCE: Final = 1 << 14
_TABLE: Final = 1 << 19
"""Names that are told apart at once."""


class Names(Sequence[str]):
    """A sequence of texts that cannot change. It equals any sequence of the same texts."""

    def __init__(self, names: Iterable[str] | pa.LargeStringArray) -> None:
        self._array = names if isinstance(names, pa.Array) else pa.array(list(names), pa.large_string())

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Names: ...
    def __getitem__(self, place: int | slice) -> str | Names:
        """One name, or a part of them."""
        found = self._array[place]
        return Names(found) if isinstance(place, slice) else str(found)

    def __iter__(self) -> Iterator[str]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self._array[begin : begin + _AT_ONCE].to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return bool(self._array.equals(other._array))
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return "Names(<private>)"

    def at(self, chosen: NDArray[np.bool_]) -> Names:
        """Those that a mask (n,) chooses."""
        return Names(self._array.filter(pa.array(chosen)))


class Numbering:
    """Numbers patients as they first come, table by table. `one_each`: every record is a patient of its own."""

    def __init__(self, *, one_each: bool) -> None:
        self._one_each = one_each
        self._codes = list[NDArray[np.int32]]()
        self._names = list[pa.LargeStringArray]()

    def add(self, codes: Places, names: Sequence[str]) -> None:
        """Add records. `names` has the different ones of a table, and `codes` (n,) says which is each record's."""
        present, first, places = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        self._codes.append(rank[places])
        self._names.append(pa.array([names[code] for code in present[order].tolist()], pa.large_string()))

    def all(self) -> tuple[NDArray[np.int64], Names]:
        """Each record's patient, (n,), and what each patient is called. Nothing is added after it."""
        if not self._codes:
            return np.zeros(0, np.int64), Names([])
        sizes = [len(names) for names in self._names]
        names, self._names = pa.concat_arrays(self._names), []
        if self._one_each:
            parts = [codes.astype(np.int64) + begin for codes, begin in zip(self._codes, _begins(sizes), strict=True)]
            places = np.concatenate(parts)
            return np.arange(len(places), dtype=np.int64), Names(names.take(pa.array(places)))
        numbers, first = _numbered(names)
        patients = np.empty(sum(map(len, self._codes)), np.int64)
        end = 0
        for codes, begin in zip(self._codes, _begins(sizes), strict=True):
            patients[end : end + len(codes)] = numbers[begin + codes.astype(np.int64)]
            end += len(codes)
        return patients, Names(names.take(pa.array(first)))


def _begins(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes)[:-1].tolist()]


def _numbered(names: pa.LargeStringArray) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Each text's number among the different ones as they first come, (n,), and the place of each of these.

    A table of all of them takes a hundred bytes a name, so it is made of a part of them at a time, by their last bytes.
    """
    parts = 1 + len(names) // _TABLE
    bounds = np.frombuffer(names.buffers()[1], np.int64, len(names) + 1, names.offset * 8)
    letters = np.frombuffer(names.buffers()[2] or b"\0", np.uint8)
    part = (10 * _from_the_end(letters, bounds, 1) + _from_the_end(letters, bounds, 2)) % np.uint16(parts)
    numbers = np.empty(len(names), np.int32)
    firsts, count = list[NDArray[np.int64]](), 0
    for one in range(parts):
        places = np.flatnonzero(part == one)
        encoded = names.take(pa.array(places)).dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        numbers[places] = codes + np.int32(count)
        # Codes are given as texts first come: a text is new where the largest code so far grows.
        firsts.append(places[np.diff(np.maximum.accumulate(codes), prepend=-1) > 0])
        count += len(encoded.dictionary)
    first = np.concatenate(firsts)
    order = np.argsort(first)
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    return rank[numbers], first[order]


def _from_the_end(letters: NDArray[np.uint8], bounds: NDArray[np.int64], place: int) -> NDArray[np.uint16]:
    """A byte of each text, counted from its end; 0 for a text that is shorter, and has none of its neighbour's."""
    there = np.diff(bounds) >= place
    found = np.zeros(len(there), np.uint16)
    found[there] = letters[bounds[1:][there] - place]
    return found
