"""Compares one cell of a file with its column's schema.

Guarantees: a cell means the same in CSV (text) and in Parquet (typed). Numbers compare as numbers, texts as texts
without surrounding blanks, truth values as true/false in any case. A cell that is not understood is never guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from policies.documents.study import Code

Cell = str | int | float | bool | None
"""A cell as a reader returns it. CSV gives only texts. Parquet gives its own types, and None for null."""

_ZERO_FRACTION = re.compile(r"([+-]?[0-9]+)\.0*")
_EXACT = 2.0**53
"""From this magnitude on, one float stands for several integers."""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHOWN = 40
MAX_TEXT = 1 << 17
"""Most characters of a cell's text, as `csv` has it: one patient's cell must not fill a column's memory."""


def plain(value: object) -> Cell:
    """Return a value of a file or a database as a cell: what is neither text, number nor truth value becomes its text.

    Raises `ValueError` for text that is too long or not UTF-8.
    """
    if value is None or isinstance(value, int | float):
        return value
    whole = (
        value if isinstance(value, str) else str(bytes(value) if isinstance(value, memoryview | bytearray) else value)
    )
    whole.encode()
    if len(whole) > MAX_TEXT:
        msg = "a text that is too long"
        raise ValueError(msg)
    return whole


def number(cell: Cell) -> float | None:
    """Return the cell as a finite number, or None. Thousands marks, decimal commas, "nan", "inf" are no numbers."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, str):
        text = cell.strip()
        if _NUMBER.fullmatch(text) is None:
            return None
        value = float(text)
    else:
        value = float(cell)
    return value if math.isfinite(value) else None


def text(cell: Cell) -> str:
    """Return the cell as trimmed text, whole numbers without a fraction: "7" for 7 and for 7.0."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def identifier(cell: Cell) -> str:
    """Return a patient's identifier as text. A whole number has no fraction: "7" for 7, 7.0 and "7.0".

    So a CSV file and a Parquet file of the same people draw the same cohorts. Everything else stays as it is written:
    "007" is not "7", and "3.10" is not "3.1". Raises `ValueError` for a float that stands for several whole numbers:
    a column of identifiers becomes one if a single cell of it is empty, and people would become one another.
    """
    if isinstance(cell, float) and abs(cell) >= _EXACT:
        msg = "an identifier that a floating-point number cannot hold"
        raise ValueError(msg)
    return _whole(text(cell))


def _whole(trimmed: str) -> str:
    """The text of a whole number without its fraction of zeros, any other as it is."""
    found = _ZERO_FRACTION.fullmatch(trimmed) if "." in trimmed else None
    return trimmed if found is None else found[1]


def identity_text(cell: Cell) -> str:
    """Return the meaning of an identifying cell as text. It is the same in CSV and Parquet, however it is written.

    Whole numbers have no fraction, and other numbers are the shortest text of their float. Null, NaN and an empty cell
    are "". Unlike `identifier` it may be the same for two cells ("007" and "7"), because it only draws cohorts and
    joins no records.
    """
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    value = number(cell)
    if value is not None:
        return str(int(value)) if value.is_integer() and abs(value) < _EXACT else repr(value)
    trimmed = text(cell)
    return trimmed.lower() if trimmed.lower() in ("true", "false") else trimmed


def shown(cell: Cell) -> str:
    """Return the cell in a short form for the silo's own error messages."""
    if cell is None or cell == "":
        return "nothing"
    whole = repr(cell)
    return whole if len(whole) <= _SHOWN else whole[:_SHOWN] + "..."


class CodeTable:
    """Finds a cell among the codes of a schema."""

    def __init__(self, codes: Iterable[Code]) -> None:
        self.codes = tuple(codes)
        self._texts: dict[str, int] = {}
        self._numbers: dict[float, int] = {}
        self._truths: dict[bool, int] = {}
        for place, code in enumerate(self.codes):
            if isinstance(code, bool):
                self._truths.setdefault(code, place)
            elif isinstance(code, str):
                self._texts.setdefault(code.strip(), place)
            else:
                self._numbers.setdefault(float(code), place)
        for written, place in tuple(self._texts.items()):
            self._texts.setdefault(_whole(written), place)

    def find(self, cell: Cell) -> int | None:
        """Return the place of the cell's code, or None."""
        if cell is None:
            return None
        if isinstance(cell, bool):
            return self._truths.get(cell, self._texts.get(text(cell)))
        trimmed = text(cell)
        for form in (trimmed, _whole(trimmed)):
            if form in self._texts:
                return self._texts[form]
        if self._numbers:
            value = number(cell)
            if value is not None and value in self._numbers:
                return self._numbers[value]
        if self._truths and isinstance(cell, str) and trimmed.lower() in ("true", "false"):
            return self._truths.get(trimmed.lower() == "true")
        return None

    @property
    def read_as_numbers(self) -> frozenset[float]:
        """All numbers that a code may be taken for, in whatever form it is written."""
        return frozenset(value for code in self.codes if (value := number(code)) is not None)

    def __str__(self) -> str:
        return "one of " + ", ".join(repr(code) for code in self.codes)


class OwnCodes:
    """Finds what one column's own codes of a hospital stand for in studies."""

    def __init__(self, codes: Mapping[str, Code | None]) -> None:
        forms = [(form, meant) for own, meant in codes.items() for form in (own, number(own)) if form is not None]
        self._own = CodeTable([form for form, _ in forms])
        self._meant = [meant for _, meant in forms]
        self.listed = tuple(codes)
        self.numbers = self._own.read_as_numbers

    def lists(self, cell: Cell) -> bool:
        """Whether a cell stands for something else."""
        return self._place(cell) is not None

    def _place(self, cell: Cell) -> int | None:
        return self._own.find("" if cell is None else cell)

    def of(self, cell: Cell) -> Cell:
        """Return the study's code for a cell, None if it means "not recorded", or the cell itself if it is not listed.

        Null and an empty cell are the same here, as they are in CSV and Parquet.
        """
        place = self._place(cell)
        return cell if place is None else self._meant[place]


class Absence:
    """Says whether a cell means that nothing was recorded."""

    def __init__(self, tokens: Iterable[str], codes: Iterable[Code] = ()) -> None:
        self.marks = frozenset(form for token in tokens for form in (token.strip(), _whole(token.strip())))
        self._codes = CodeTable(codes)
        marks = {value for token in self.marks if (value := number(token)) is not None}
        self.numbers = self._codes.read_as_numbers | marks
        """All numbers that may mean absence, in whatever form they are written."""

    def covers(self, cell: Cell) -> bool:
        """True for null, a Parquet NaN, a token of the file, or a code of the column.

        A whole number is the token that is its text: a column's type, which another patient's cell may have decided
        when the file was written, must not make a patient of -9.
        """
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return True
        if not isinstance(cell, bool):
            trimmed = text(cell)
            if trimmed in self.marks or _whole(trimmed) in self.marks:
                return True
        return self._codes.find(cell) is not None
