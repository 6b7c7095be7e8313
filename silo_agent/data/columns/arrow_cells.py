"""The cells of a column in Arrow's memory: one type, and no Python object for each cell.

Guarantees: cell by cell it is the sequence of Python values that it was made of. What is asked of all cells at once
(`distinct`, `numbers`) says of each cell what `cells` says of it alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from silo_agent.data.cells import MAX_TEXT, Cell, number, plain

Places = NDArray[np.int64] | NDArray[np.int32]
_WHOLE: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_NUMBERS: Final = _WHOLE | {"float", "double"}
_TEXTS: Final = frozenset({"string", "large_string"})
_TYPES: Final = _NUMBERS | _TEXTS | {"bool", "null"}
_FEW: Final = 32
"""Texts that are told one by one: a cast that fails costs as much."""
_OF_PYTHON: Final = {str: pa.large_string(), float: pa.float64(), int: pa.int64(), bool: pa.bool_()}


class ArrowCells(Sequence[Cell]):
    """Cells of one type: texts, whole numbers, numbers or truth values, each of which may be null.

    Raises `TypeError` for an array of another type.
    """

    def __init__(self, array: pa.Array) -> None:
        if str(array.type) not in _TYPES:
            msg = f"cells of type {array.type} have no form in a column"
            raise TypeError(msg)
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, place: int) -> Cell: ...
    @overload
    def __getitem__(self, place: slice) -> ArrowCells: ...
    def __getitem__(self, place: int | slice) -> Cell | ArrowCells:
        """One cell, or a part of the column."""
        found = self.array[place]
        return ArrowCells(found) if isinstance(place, slice) else _python(found)

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.array.to_pylist())

    def __repr__(self) -> str:
        return "ArrowCells(<private>)"

    def take(self, places: Places) -> ArrowCells:
        """The cells at some places."""
        return ArrowCells(self.array.take(pa.array(places)))

    def distinct(self) -> tuple[Places, list[Cell]]:
        """The different cells, and for each cell of the column its place among them, (n,)."""
        if pa.types.is_null(self.array.type):
            return np.zeros(len(self), np.int32), [None] if len(self) else []
        encoded = self.array.dictionary_encode(null_encoding="encode")
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()

    def numbers(self) -> NDArray[np.float64] | None:
        """For each cell the number that `cells.number` finds, (n,); None if the column's type has none.

        A cell is NaN or infinite if it is no finite number, or one that only `cells.number` can tell.
        """
        kind = str(self.array.type)
        if kind in _NUMBERS:
            # Unsafe: a whole number from 2^53 on becomes the nearest float, as in Python.
            return _floats(pc.cast(self.array, pa.float64(), safe=False))
        return self._of_texts() if kind in _TEXTS else None

    @property
    def has_texts(self) -> bool:
        """Whether the cells are texts."""
        return str(self.array.type) in _TEXTS

    def longest(self) -> int:
        """Bytes of the longest text, which has no more characters."""
        return int(pc.max(pc.binary_length(self.array)).as_py() or 0)

    def _of_texts(self) -> NDArray[np.float64]:
        with suppress(pa.ArrowInvalid):
            return _floats(pc.cast(self.array, pa.float64()))
        with suppress(pa.ArrowInvalid):  # often the only cells that are no numbers are empty
            return _floats(pc.cast(pc.if_else(pc.equal(self.array, ""), None, self.array), pa.float64()))
        encoded = self.array.dictionary_encode(null_encoding="encode")
        # Python's `strip` takes away these blanks, too.
        told = _told(pc.ascii_trim_whitespace(encoded.dictionary))
        places: Places = encoded.indices.to_numpy(zero_copy_only=False)
        return told[places]


def _told(texts: pa.Array) -> NDArray[np.float64]:
    """The numbers of texts of which some are none: halves without such a text are cast at once."""
    try:
        return _floats(pc.cast(texts, pa.float64()))
    except pa.ArrowInvalid:
        if len(texts) <= _FEW:
            return _one_by_one(texts)
        half = len(texts) // 2
        return np.concatenate([_told(texts[:half]), _told(texts[half:])])


def _one_by_one(texts: pa.Array) -> NDArray[np.float64]:
    found = np.full(len(texts), np.nan)
    for place, text in enumerate(texts.to_pylist()):
        with suppress(Exception):  # the cell is read by itself later, and fails there
            value = number(text)
            found[place] = np.nan if value is None else value
    return found


def _floats(array: pa.Array) -> NDArray[np.float64]:
    return np.asarray(array.fill_null(np.nan).to_numpy(zero_copy_only=False), np.float64)


def _python(scalar: pa.Scalar) -> Any:  # the types in `_TYPES` are Python's own
    return scalar.as_py()


def cells_of(values: Sequence[Cell]) -> Sequence[Cell]:
    """Cells in Arrow's memory if all have one type that Arrow has; else as they are."""
    kinds = set(map(type, values)) - {type(None)}
    kind = _OF_PYTHON.get(next(iter(kinds), str)) if len(kinds) <= 1 else None
    if kind is None:
        return values
    try:
        return ArrowCells(pa.array(values, kind, from_pandas=False))
    except (ValueError, OverflowError):  # a lone surrogate, or over 64 bits
        return values


def give_back() -> None:
    """Give memory back to the system that columns took and that nothing uses any more."""
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()


def decoded(values: Sequence[object]) -> tuple[Sequence[Cell], list[int]]:
    """Values of a database or a file as cells (`cells.plain`), and the places of those that have no form as one."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {int, float, bool}:
        return cells_of(values), []  # type: ignore[arg-type]  # these types are cells
    if kinds == {str}:
        cells = cells_of(values)  # type: ignore[arg-type]  # texts are cells
        if isinstance(cells, ArrowCells) and cells.longest() <= MAX_TEXT:
            return cells, []
    found, undecoded = list[Cell](), list[int]()
    for place, value in enumerate(values):
        try:
            found.append(plain(value))
        except Exception:  # noqa: BLE001  # text that is not UTF-8, and whatever else a value raises
            found.append(None)
            undecoded.append(place)
    return cells_of(found), undecoded


def taken(cells: Sequence[Cell], places: Places) -> Sequence[Cell]:
    """The cells at some places, in the form in which all are."""
    return cells.take(places) if isinstance(cells, ArrowCells) else [cells[place] for place in places.tolist()]


def joined(parts: Sequence[Sequence[Cell]]) -> Sequence[Cell]:
    """The cells of parts of a column, one part after another."""
    arrays = [_long(part.array) for part in parts if isinstance(part, ArrowCells)]
    if arrays and len(arrays) == len(parts) and all(array.type == arrays[0].type for array in arrays):
        return ArrowCells(pa.concat_arrays(arrays))
    return [cell for part in parts for cell in part]


def _long(array: pa.Array) -> pa.Array:
    """Texts with offsets of 64 bits: all of a column may have more than 2 GiB."""
    return array.cast(pa.large_string()) if array.type == pa.string() else array


def distinct(cells: Sequence[Cell]) -> tuple[Places, list[Cell]]:
    """As `ArrowCells.distinct`, for cells in whatever form. Cells of different types are different."""
    if isinstance(cells, ArrowCells):
        return cells.distinct()
    known: dict[tuple[type, Cell], int] = {}
    codes = np.fromiter((known.setdefault((type(cell), cell), len(known)) for cell in cells), np.int64, len(cells))
    return codes, [cell for _, cell in known]
