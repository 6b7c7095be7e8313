"""How a hospital's file is written: its bytes, rows and cells, and how it spells what studies ask for.

Guarantees: what decides whose a record is (`FileFormat`) is apart from what does not (`Spelling`). Nothing here is
guessed: a date has one format, a number one decimal mark, and a unit what makes another of it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from policies.documents import bounds
from policies.documents.sections.data import Code, ColumnName, Unit
from policies.documents.sections.kinds import PolicyPart, printable

UTF_8: Final = "utf-8"
Encoding = Literal[
    "utf-8",
    "iso-8859-1",
    "iso-8859-2",
    "iso-8859-15",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "shift_jis",
    "gb18030",
    "euc-kr",
    "big5",
]
"""Encodings in which no byte of a character can be taken for the end of a line. Latin-1 is iso-8859-1."""


def _date_format(text: str) -> str:
    """Refuse a format by which one text may be two days, or which does not say the whole day."""
    signs = re.findall(r"%.?", text)
    once = all(signs.count(sign) <= 1 for sign in _DATE_SIGNS)
    if not once or not set(signs) <= set(_DATE_SIGNS) or not {"%Y", "%m", "%d"} <= set(signs):
        msg = (
            f"{text!r} must have %Y (year in four digits), %m (month) and %d (day) once each, and of other signs only"
            ' %H, %M and %S (a time); for example "%d.%m.%Y"'
        )
        raise ValueError(msg)
    return text


_DATE_SIGNS: Final = ("%Y", "%m", "%d", "%H", "%M", "%S")
DateFormat = Annotated[str, bounds.text(40), AfterValidator(printable), AfterValidator(_date_format)]


class FileFormat(PolicyPart):
    """How the hospital's file is parted into rows and cells.

    It is the hospital's to say: with other cells a record would be another one to `identified_by`, so a study that
    chose them would draw other cohorts.
    """

    delimiter: Literal[",", ";", "\t", "|", ":", "^", "~"]
    """The character between the cells of a CSV file. A Parquet file has none."""
    columns: Annotated[tuple[ColumnName, ...], Field(max_length=8192)]
    """The names of the columns of a file without a header line, in the file's order; `[]` if the file has such a line
    (or names its columns, as Parquet does)."""
    encoding: Encoding = UTF_8
    """Which characters the bytes of a CSV file stand for. A Parquet file or a database says it itself."""


def _texts(content: object) -> object:
    """Own codes as texts, because JSON has no other names: YAML reads 1 as a number."""
    if not isinstance(content, dict):
        return content
    if any(isinstance(own, bool) for own in content):
        msg = "a code of the file reads as a truth value; write it in quotes, as it stands in the file"
        raise ValueError(msg)
    texts = [str(own).strip() if isinstance(own, str | int) else own for own in content]
    if len(set(texts)) != len(texts):
        msg = "two codes of the file are the same text; keep one"
        raise ValueError(msg)
    return dict(zip(texts, content.values(), strict=True))


OwnCodes = Annotated[
    dict[Annotated[str, bounds.text(200)], Code | None], Field(min_length=1, max_length=1024), BeforeValidator(_texts)
]


class Between(PolicyPart):
    """A column that the file does not have, but two dates: the time between them. It depends on no day of today."""

    start: ColumnName
    """The column of the earlier date, such as that of birth."""
    end: ColumnName
    """The column of the later date, such as that of admission."""
    unit: Literal["years", "days"]
    """What is counted: completed years, as an age is, or days."""


class Conversion(PolicyPart):
    """What makes another unit of a number: `factor` times the number, plus `offset`."""

    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """What the number is multiplied with."""
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """What is added then, in the other unit."""


class OwnUnit(PolicyPart):
    """In which unit a column of the file is, and what makes the units of it for which studies ask."""

    unit: Unit
    """The file's own unit."""
    into: dict[Unit, Conversion] = Field(default_factory=dict, max_length=64)
    """By a unit for which studies may ask: what makes it of the file's own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.unit in self.into:
            msg = f"into lists {self.unit}, which is the file's own unit; remove it there"
            raise ValueError(msg)
        return self

    def conversion(self, unit: str | None) -> Conversion | None:
        """What makes a study's unit of the file's; None if nothing does, or if the study names no unit."""
        return Conversion(factor=1.0) if unit == self.unit else self.into.get(unit or "")


class Spelling(PolicyPart):
    """How this hospital's file spells what studies ask for, where it differs from them. It takes precedence.

    No cohort depends on it, because cohorts are drawn by the cells as they stand in the file. So the ledger is not
    bound to it, and it may change from study to study.
    """

    missing: Annotated[tuple[Annotated[str, bounds.text(64)], ...], bounds.items(64)] | None = None
    """Cells that mean "not recorded" in every column, instead of those that a study lists in `data.missing`; `null`
    keeps the study's."""
    codes: dict[ColumnName, OwnCodes] = Field(default_factory=dict, max_length=8192)
    """By column: the file's own codes, each with the code that studies use for it, or `null` if it means "not
    recorded". Codes that are not listed are taken as they are."""
    decimal: Literal[".", ","] = "."
    """What stands before the fraction of a number in text. With a comma, `1.5` is no number: a point may part thousands
    there, and nothing is guessed."""
    absent: tuple[ColumnName, ...] = Field(default=(), max_length=8192)
    """Columns that the hospital does not have. To a study each of their cells is "not recorded"."""
    dates: dict[ColumnName, DateFormat] = Field(default_factory=dict, max_length=256)
    """By column: how its dates are written, in the signs of Python's strptime, such as `"%d.%m.%Y"`. Dates of Parquet
    and of databases are `"%Y-%m-%d"`, and with a time `"%Y-%m-%d %H:%M:%S"`."""
    between: dict[ColumnName, Between] = Field(default_factory=dict, max_length=256)
    """By a column that studies ask for: the two columns of `dates` between which it is the time, such as an age."""
    units: dict[ColumnName, OwnUnit] = Field(default_factory=dict, max_length=8192)
    """By column of numbers: its unit in the file, and what makes other units of it. A study that names another unit, or
    none, is refused."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        faults = [
            f"between.{column} counts from {one.start} to {one.end}, and dates does not say how {name} is written; add"
            " it there"
            for column, one in self.between.items()
            for name in dict.fromkeys((one.start, one.end))
            if name not in self.dates
        ]
        made = {**dict.fromkeys(self.between, "between"), **dict.fromkeys(self.absent, "absent")}
        faults += [
            f"{made[column]} lists {column}, of which the file then has no cells, and {other} lists it too; keep one"
            for other, listed in (("codes", self.codes), ("dates", self.dates), ("units", self.units))
            for column in listed
            if column in made
        ]
        faults += [
            f"absent and between both list {column}; keep one" for column in self.absent if column in self.between
        ]
        if len(set(self.absent)) != len(self.absent):
            faults.append("absent lists a column twice; keep one")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def said(self) -> dict[str, Any]:
        """The fields that say something, as JSON has them, with those that every version has."""
        document, plain = self.model_dump(mode="json"), Spelling().model_dump(mode="json")
        return {name: value for name, value in document.items() if name in _FIRST_SPELLING or value != plain[name]}


_FIRST_SPELLING: Final = frozenset({"missing", "codes"})
"""Fields of `spelling` in the canonical form of each policy that has one, so that its digest stays what it was."""
