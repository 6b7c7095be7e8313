"""The rows of a Parquet file, some thousands at a time.

Guarantees: a cell that has no form in a study (text that is not UTF-8 or too long, a date after 9999) leaves out its
own row. Numbers, texts and truth values stay in Arrow's memory; values of any other type become their text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from silo_agent.data.cells import MAX_TEXT, Cell
from silo_agent.data.columns.arrow_cells import ArrowCells, decoded, taken

ROWS: Final = 1 << 14
"""Rows that are read at once."""


@dataclass(frozen=True, repr=False, eq=False)
class ParquetRows:
    """Rows of a file: their numbers from 1, (n,), and the cells of each column that was asked for.

    `broken` has the numbers of rows that are not among them, and for each the place of the first column to blame.
    """

    numbers: NDArray[np.int64]
    columns: tuple[Sequence[Cell], ...]
    broken: dict[int, int]

    def __repr__(self) -> str:
        return "ParquetRows(<private>)"


def parquet_rows(file: pq.ParquetFile, places: Sequence[int]) -> Iterator[ParquetRows]:
    """Yield all rows of a file, with the columns at these places of its schema. Raises `pa.ArrowException`, OSError."""
    names = file.schema_arrow.names
    asked = list(dict.fromkeys(names[place] for place in places))
    unique = all(names.count(name) == 1 for name in asked)
    first = 1
    for batch in file.iter_batches(ROWS, columns=asked if unique else None, use_threads=False):
        own = [batch.column(names[place]) if unique else batch.column(place) for place in places]
        yield _rows(own, first, batch.num_rows)
        first += batch.num_rows


def _rows(arrays: Sequence[pa.Array], first: int, count: int) -> ParquetRows:
    columns, broken = [], dict[int, int]()
    for place, array in enumerate(arrays):
        cells, undecoded = cells_of(array)
        columns.append(cells)
        for row in undecoded:
            broken.setdefault(row, place)
    numbers = np.arange(first, first + count, dtype=np.int64)
    if broken:
        kept = np.setdiff1d(np.arange(count), list(broken))
        columns, numbers = [taken(cells, kept) for cells in columns], numbers[kept]
    return ParquetRows(numbers, tuple(columns), {first + row: place for row, place in sorted(broken.items())})


def cells_of(array: pa.Array) -> tuple[Sequence[Cell], list[int]]:
    """Return cells, and the places of values that have no form as one. Categories are decoded."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        cells = ArrowCells(array)
    except TypeError:
        return _one_by_one(array)
    return (cells, []) if _is_sound(array) else _one_by_one(array)


def _is_sound(array: pa.Array) -> bool:
    """Whether all texts are UTF-8, and none is too long."""
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return ArrowCells(array).longest() <= MAX_TEXT


def _one_by_one(array: pa.Array) -> tuple[Sequence[Cell], list[int]]:
    values: list[object] = []
    foul = []
    for place, scalar in enumerate(array):
        try:
            values.append(scalar.as_py())
        except Exception:  # noqa: BLE001  # text that is not UTF-8, or a date after 9999
            values.append(None)
            foul.append(place)
    cells, undecoded = decoded(values)
    return cells, foul + undecoded
