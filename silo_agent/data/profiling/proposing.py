"""What a hospital's file seems to say of how it is written, for a person to confirm before a policy says it.

Guarantees: a text of the file is shown only if at least `FEWEST` patients have it, because a policy may be read by
others; names of columns and counts are shown as they are. What may be read in two ways is named and not proposed. No
study is looked at, so a policy follows from the file alone.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from policies.documents.sections.spelling import UTF_8, FileFormat
from silo_agent.data.cells import Cell, number, text
from silo_agent.data.columns.arrow_cells import Places, distinct, joined
from silo_agent.data.columns.number_forms import NumberForm
from silo_agent.data.csv_rows import split_line
from silo_agent.data.errors import DataError, RecordFault, Unfit
from silo_agent.data.sources.csv_blocks import line_blocks, rows_of_block
from silo_agent.data.sources.parquet_rows import parquet_rows

FEWEST: Final = 20
"""Patients who have a text before it is shown."""
_DELIMITERS: Final = get_args(FileFormat.model_fields["delimiter"].annotation)
_MARKS: Final = frozenset(
    {"na", "n/a", "nan", "null", "none", "nil", "-", "--", "---", ".", "..", "?", "#n/a", "n.a.", "k.a.", "k. a."}
    | {"nd", "n.d.", "unknown", "unbekannt", "missing"}
)
"""Texts that mean "not recorded" in many files, in small letters."""
_DAYS: Final = ("%d.%m.%Y", "%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
_FORMATS: Final = tuple(day + time for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S"))
_MOST_CODES: Final = 30
"""Different texts of a column that is still one of codes."""
_NEARLY_ALL: Final = 0.9
_COMMA: Final = re.compile(r"[+-]?[0-9]*,[0-9]+([eE][+-]?[0-9]+)?")
_FIRST_LINES: Final = 1000


@dataclass(frozen=True)
class Proposal:
    """One thing that a policy may say: its field, the value, and in a sentence why."""

    field: str
    value: Any
    why: str


@dataclass(frozen=True, repr=False, eq=False)
class Look:
    """What was seen: how the file is parted, proposals for `spelling`, and lines that only a person can complete."""

    rows: int
    file: tuple[Proposal, ...]
    spelling: tuple[Proposal, ...]
    remarks: tuple[str, ...]

    def __repr__(self) -> str:
        return "Look(<private>)"


@dataclass(frozen=True, repr=False, eq=False)
class _Column:
    """One column: its different cells with the patients and rows that have each."""

    name: str
    cells: tuple[Cell, ...]
    patients: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def told(self) -> list[tuple[str, int, int]]:
        """Texts that are not empty, with their patients and rows."""
        found = zip(map(text, self.cells), self.patients, self.rows, strict=True)
        return [(said, patients, rows) for said, patients, rows in found if said]


@dataclass(frozen=True, repr=False, eq=False)
class _Seen:
    marks: dict[str, list[str]] = field(default_factory=dict)
    commas: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    dates: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def look(path: Path, patient: str) -> Look:
    """Look at a whole CSV or Parquet file, whose column `patient` says whose each row is. Raises `DataError`."""
    try:
        parquet = path.suffix == ".parquet"
        file, columns = ((), _of_parquet(path)) if parquet else _of_csv(path)
    except FileNotFoundError:
        raise _refused(path, "no file", "the data of this hospital") from None
    except (OSError, pa.ArrowException) as error:
        raise _refused(path, f"an unreadable file ({type(error).__name__})", "a readable file") from None
    if patient not in columns:
        names = "the column that says whose a row is; without a header line name all columns in data_set.file.columns"
        raise _refused(path, f"no column {patient!r} in its first line", names)
    whose, _ = distinct(columns[patient])
    seen = _Seen()
    for name, cells in columns.items():
        if name != patient:
            shown = name if name.isprintable() else _quoted(name)
            _judge(_counted(shown, cells, whose), seen)
    return Look(len(whose), tuple(file), tuple(_proposals(seen)), tuple(seen.remarks))


def _refused(path: Path, found: str, expected: str) -> DataError:
    return DataError([RecordFault(path.name, 0, "", found, expected)])


def _of_parquet(path: Path) -> dict[str, Sequence[Cell]]:
    with pq.ParquetFile(path) as file:
        names = list(file.schema_arrow.names)
        tables = list(parquet_rows(file, list(range(len(names)))))
    return {name: joined([one.columns[place] for one in tables]) for place, name in enumerate(names)}


def _of_csv(path: Path) -> tuple[list[Proposal], dict[str, Sequence[Cell]]]:
    encoding = _encoding(path)
    with path.open("rb") as file:
        first = next(line_blocks(file, encoding=encoding), b"\n")
    lines = first.split(b"\n")[:_FIRST_LINES]
    delimiter = max(_DELIMITERS, key=lambda one: _agreeing(lines, one))
    header = split_line(lines[0], delimiter)
    if isinstance(header, Unfit) or not header:
        raise _refused(path, "a first line that cannot be parted", "a header line")
    proposals = []
    if delimiter != ",":
        why = f"the first {len(lines) - 1} lines have {len(header)} cells each if they are parted so"
        proposals.append(Proposal("data_set.file.delimiter", delimiter, why))
    if encoding != UTF_8:
        beyond = ", ".join(name for name in header if not name.isascii())
        why = "the bytes are not UTF-8" + (f"; the header line then reads: {beyond}" if beyond else "")
        proposals.append(Proposal("data_set.file.encoding", encoding, why))
    parts, line = [], 2
    with path.open("rb") as file:
        for place, block in enumerate(line_blocks(file, encoding=encoding)):
            own = block[block.index(b"\n") + 1 :] if place == 0 else block
            parts.append(rows_of_block(own, line, delimiter, len(header), range(len(header))).columns)
            line += own.count(b"\n")
    return proposals, {name.strip(): joined([part[i] for part in parts]) for i, name in enumerate(header)}


def _encoding(path: Path) -> str:
    """UTF-8 if the whole file is; else the Western encoding that has a character for each of its bytes."""
    decoder, whole = codecs.getincrementaldecoder(UTF_8)(), True
    western = True
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise _refused(path, "a file in UTF-16", "a CSV file saved as UTF-8")
        file.seek(0)
        while chunk := file.read(1 << 22):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                whole = False
                decoder.reset()
            try:
                chunk.decode("windows-1252")
            except UnicodeDecodeError:
                western = False
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        whole = False
    if whole:
        return UTF_8
    return "windows-1252" if western else "iso-8859-1"


def _agreeing(lines: Sequence[bytes], delimiter: str) -> tuple[float, int]:
    """The share of lines that have the header's width, and that width; nothing for one cell."""
    widths = [len(cells) for line in lines if line and isinstance(cells := split_line(line, delimiter), list)]
    if not widths or widths[0] < 2:  # noqa: PLR2004  # one cell is no parting
        return 0.0, 0
    return sum(width == widths[0] for width in widths) / len(widths), widths[0]


def _counted(name: str, cells: Sequence[Cell], whose: Places) -> _Column:
    codes, different = distinct(cells)
    rows = np.bincount(codes, minlength=len(different)) if len(different) else np.zeros(0, np.int64)
    pairs = np.unique(np.stack([np.asarray(codes, np.int64), np.asarray(whose, np.int64)], axis=1), axis=0)
    patients = np.bincount(pairs[:, 0], minlength=len(different)) if len(different) else rows
    return _Column(name, tuple(different), tuple(patients.tolist()), tuple(rows.tolist()))


def _judge(column: _Column, seen: _Seen) -> None:
    told = column.told
    total = sum(rows for _, _, rows in told)
    if not total:
        return
    commas = [one for one in told if _COMMA.fullmatch(one[0])]
    numbers = [one for one in told if number(one[0]) is not None or NumberForm(",").raw(one[0]) is not None]
    points = [one for one in numbers if "." in one[0]]
    formats = _formats(told, total)
    if formats:
        _judge_dates(column.name, formats, seen)
    elif _rows(numbers) >= total / 2:
        if _rows(commas) and not _rows(points):
            seen.commas.append(column.name)
        elif _rows(points):
            seen.points.append(column.name)
            if _rows(commas):
                seen.remarks.append(f"column {column.name}: some numbers have a comma, and some a point; mend the file")
        others = [one for one in told if one not in numbers]
        _judge_texts(column.name, others, seen)
    elif len(told) <= _MOST_CODES:
        seen.remarks.append(_codes(column.name, told))


def _rows(told: Iterable[tuple[str, int, int]]) -> int:
    return sum(rows for _, _, rows in told)


def _formats(told: Sequence[tuple[str, int, int]], total: int) -> list[str]:
    """The formats in which nearly all cells are dates."""
    return [form for form in _FORMATS if _rows(one for one in told if _is_day(one[0], form)) >= _NEARLY_ALL * total]


def _is_day(said: str, form: str) -> bool:
    try:
        datetime.strptime(said, form)  # noqa: DTZ007  # a day has no zone
    except ValueError:
        return False
    return True


def _judge_dates(name: str, formats: Sequence[str], seen: _Seen) -> None:
    if len(formats) == 1:
        seen.dates[name] = formats[0]
    else:
        listed = " or ".join(f'"{form}"' for form in formats)
        seen.remarks.append(f"column {name}: dates that may be {listed}; write the right one under dates")


def _judge_texts(name: str, others: Sequence[tuple[str, int, int]], seen: _Seen) -> None:
    for said, patients, _ in others:
        if said.lower() in _MARKS and patients >= FEWEST:
            seen.marks.setdefault(said, []).append(name)
    left = [one for one in others if one[0].lower() not in _MARKS or one[1] < FEWEST]
    if left:
        seen.remarks.append(
            f"column {name}: cells among the numbers are texts ({_shown(left)}); codes or missing say what they mean"
        )


def _codes(name: str, told: Sequence[tuple[str, int, int]]) -> str:
    return f"column {name}: codes ({_shown(told)}); if studies write them otherwise, list them under codes"


def _shown(told: Sequence[tuple[str, int, int]]) -> str:
    """The texts that enough patients have, without any count: it stands in the policy as a comment."""
    shown = [_quoted(said) for said, patients, _ in told if patients >= FEWEST]
    rest = ["others" if shown else "texts"] if len(shown) < len(told) else []
    return ", ".join([*shown, *(f"{one} of fewer than {FEWEST} patients each" for one in rest)])


def _quoted(value: object) -> str:
    """A value as YAML and JSON have it, in one line: what a console or YAML would not show as it is, is spelled out."""
    plain = json.dumps(value, ensure_ascii=False)
    return plain if plain.isprintable() else json.dumps(value)


def _proposals(seen: _Seen) -> Iterator[Proposal]:
    if seen.marks:
        columns = sorted({name for names in seen.marks.values() for name in names})
        why = f"among the numbers of {', '.join(columns)}; empty cells mean it too"
        yield Proposal("spelling.missing", ["", *seen.marks], why)
    if seen.commas and not seen.points:
        why = f"numbers of {', '.join(seen.commas)} have a comma before their fraction, and none has a point"
        yield Proposal("spelling.decimal", ",", why)
    elif seen.commas:
        seen.remarks.append(
            f"numbers have a comma in {', '.join(seen.commas)} and a point in {', '.join(seen.points)}; mend the file"
        )
    if seen.dates:
        why = "nearly all cells are dates of this form; between makes ages and days of two of them"
        yield Proposal("spelling.dates", seen.dates, why)


def as_yaml(proposals: Iterable[Proposal], remarks: Iterable[str]) -> str:
    """The part `spelling` of a policy, with remarks as comments. Empty if there are none of both."""
    fields: Mapping[str, Any] = {one.field.removeprefix("spelling."): one.value for one in proposals}
    lines = [f"  {name}: {_quoted(value)}" for name, value in fields.items()]
    noted = [f"# {one}" for one in remarks]
    return "\n".join(["", *noted, *(["spelling:", *lines] if lines else []), ""]) if lines or noted else ""
