"""From a column's cells to values: each different cell is read once, and plain numbers all at once.

Guarantees: the value of a cell, or why it does not fit, is what `Parser.parse` says of that cell alone, whatever the
others are. A number that a mark of absence or a code may mean is always read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.cells import Cell, OwnCodes
from silo_agent.data.columns.arrow_cells import ArrowCells, Places, distinct, taken
from silo_agent.data.columns.number_forms import PLAIN, Floats, NumberForm
from silo_agent.data.errors import Unfit

T = TypeVar("T")
Along = Callable[[Floats], tuple[Floats | NDArray[np.int64], NDArray[np.bool_]]]
"""From finite numbers (n,) to their values, and which of these hold; the other numbers are read one by one."""


@dataclass(frozen=True)
class Parser(Generic[T]):
    """How one column's cells are read.

    `parse` gives a cell's value, and raises `Unfit`, or anything else, for a cell that has none. `along` gives the same
    for numbers in the study's unit, but for those numbers of the file in `apart`, which are read by `parse` because
    more than their value may count. `form` says how the file writes numbers.
    """

    parse: Callable[[Cell], T]
    along: Along | None = None
    apart: Collection[float] = ()
    form: NumberForm = PLAIN

    def spelt(self, own: OwnCodes, parse: Callable[[Cell], T]) -> Parser[T]:
        """The same for cells of which some stand for others, by `own`, which `parse` reads as studies spell them.

        What it stands for may be a number itself, so only cells that stand for themselves are read along.
        """

        def read(cell: Cell) -> T:
            return parse(own.of(cell)) if own.lists(cell) else self.parse(cell)

        numbers = (value for code in own.listed if (value := self.form.raw(code)) is not None)
        return Parser(read, self.along, (*self.apart, *own.numbers, *numbers), self.form)


Make = Callable[[NumberForm], Parser[T]]
"""A parser for a column whose numbers are written so."""


def of_codes(parse: Callable[[Cell], T]) -> Make[T]:
    """A parser that reads no numbers, and so heeds no form of them."""
    return lambda _: Parser(parse)


@dataclass(frozen=True, repr=False, eq=False)
class Parsed:
    """The values of a column's cells, (n,), int64 or float64.

    `unfit` has the places of those that do not fit, `reasons` one for each.
    """

    values: NDArray[Any]
    unfit: Places
    reasons: Sequence[Unfit]

    def __repr__(self) -> str:
        return "Parsed(<private>)"


def read_cells(cells: Sequence[Cell], parser: Parser[T], instead: T) -> Parsed:
    """Read a column. A cell that does not fit has the value `instead`, whose type all values have."""
    kind = np.int64 if isinstance(instead, int) else np.float64
    values = np.full(len(cells), instead, kind)
    left = _read_along(cells, parser, values)
    rest = cells if left is None else taken(cells, left)
    codes, reasons, known = read_distinct(rest, parser.parse)
    # One value for each different cell; which of them stand for nothing is in `reasons`.
    each = np.array([instead if value is None else value for value in known], kind)
    values[slice(None) if left is None else left] = each[codes] if len(codes) else each
    wrong = np.array([reason is not None for reason in reasons], np.bool_)
    bad = np.flatnonzero(wrong[codes]) if wrong.any() else np.zeros(0, np.int64)
    found = [reason for code in codes[bad].tolist() if (reason := reasons[code]) is not None]
    return Parsed(values, bad if left is None else left[bad], found)


def read_distinct(
    cells: Sequence[Cell], parse: Callable[[Cell], T]
) -> tuple[Places, list[Unfit | None], list[T | None]]:
    """Each cell's place among the different ones, (n,); and of each of these why it does not fit, or its value."""
    codes, different = distinct(cells)
    reasons: list[Unfit | None] = []
    values: list[T | None] = []
    for cell in different:
        value, reason = None, None
        try:
            value = parse(cell)
        except Unfit as unfit:
            reason = unfit
        except Exception as error:  # noqa: BLE001  # whatever a cell raises makes its record unfit
            reason = Unfit("a value that can be used", type(error).__name__)
        reasons.append(reason)
        values.append(value)
    return codes, reasons, values


def _read_along(cells: Sequence[Cell], parser: Parser[T], values: NDArray[Any]) -> NDArray[np.int64] | None:
    """Fill in the values of plain numbers. Returns the places of all other cells, or None if it is the whole column."""
    if parser.along is None or not isinstance(cells, ArrowCells):
        return None
    numbers = parser.form.numbers(cells)
    if numbers is None:
        return None
    plain = np.isfinite(numbers)
    for one in parser.apart:
        plain &= numbers != one
    try:
        with np.errstate(all="ignore"):
            found, fits = parser.along(parser.form.along(numbers[plain]))
    except Exception:  # noqa: BLE001  # then each number says by itself what is wrong with it
        return None
    places = np.flatnonzero(plain)
    values[places[fits]] = found[fits]
    plain[places[~fits]] = False
    return np.flatnonzero(~plain)
