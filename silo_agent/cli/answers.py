"""What an author says in options or at the prompt, as parts of a study's draft.

Guarantees: a part is returned only if the study's schema accepts it; else `AnswerError` says what is wrong and how to
write it. Nothing here opens a data file: ranges, codes and expectations come from the literature or a data dictionary,
and a range taken from records would make a public constant of private data.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from policies.documents.document import MAX_BYTES, DocumentError, check_document
from policies.documents.sections.data import LONGEST_UNIT
from policies.documents.study import CategoryFeature, DomainColumn, Label, NumericFeature
from silo_agent.errors import SiloError

FEATURE: Final = "age:number:0:120 or sex:code:F,M"
LABEL: Final = "ill:yes=1:no=0, or stage:classes=1/2/3,4, or days:number:0:60"
DOMAIN: Final = "sex:code:F,M or age:edges:40,65"
COLUMNS: Final = ("column", "kind", "minimum", "maximum", "values", "unit")
"""Columns of a data dictionary that are read. `MORE` may stand beside them."""
MORE: Final = ("scale", "outside", "fill", "missing", "optional")
LISTED: Final = "|"
"""Between the codes of a cell of a data dictionary."""
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")
_SWITCHES: Final = {"log": ("scale", "log"), "log1p": ("scale", "log1p"), "clip": ("outside", "clip")}
_YES, _NO = ("yes", "true", "1"), ("", "no", "false", "0")

Part = dict[str, Any]


class AnswerError(SiloError):
    """An answer cannot be used. The text says why and what to write."""


def code_of(text: str) -> str | float:
    """A code as the study holds it: a number if it is written as one without leading zeros, else the text."""
    text = text.strip()
    return (float(text) if "." in text else int(text)) if _NUMBER.fullmatch(text) else text


def feature(text: str) -> Part:
    """COLUMN:number:MIN:MAX or COLUMN:code:CODE,CODE, then log, log1p, clip, fill=, missing=, unit=, optional."""
    column, kind, *rest = _pieces(text, 3, FEATURE)
    if kind == "number":
        _require(len(rest) > 1, "a number needs a minimum and a maximum", "age:number:0:120")
        found: Part = {"kind": "number", "column": column, "minimum": _number(rest[0]), "maximum": _number(rest[1])}
        return _checked(
            found | _extras(rest[2:], _SWITCHES, fill=_number, missing=_codes, unit=str), NumericFeature, FEATURE
        )
    _require(kind == "code", f"the kind {kind!r} is none", FEATURE)
    found = {"kind": "category", "column": column, "values": _codes(rest[0])}
    extras = _extras(rest[1:], {"optional": ("optional", True)}, missing=_codes)
    return _checked(found | extras, CategoryFeature, FEATURE)


def label(text: str) -> Part:
    """COLUMN:yes=CODES:no=CODES, COLUMN:classes=CODES/CODES/CODES or COLUMN:number:MIN:MAX with log, log1p, unit=."""
    column, first, *rest = _pieces(text, 2, LABEL)
    if first == "number":
        _require(len(rest) > 1, "a number needs a minimum and a maximum", "days:number:0:60")
        scales = {name: _SWITCHES[name] for name in ("log", "log1p")}
        found: Part = {"minimum": _number(rest[0]), "maximum": _number(rest[1])} | _extras(rest[2:], scales, unit=str)
    else:
        said = _extras([first, *rest], {}, yes=_codes, no=_codes, classes=lambda one: list(map(_codes, one.split("/"))))
        names = {"yes": "positive", "no": "negative", "classes": "classes"}
        found = {names[name]: codes for name, codes in said.items()}
    return _checked({"column": column} | found, Label, LABEL)


def domain(text: str) -> Part:
    """COLUMN:code:CODE,CODE or COLUMN:edges:NUMBER,NUMBER, then names=NAME,NAME if the made ones do not do."""
    column, kind, cells, *rest = _pieces(text, 3, DOMAIN)
    named = _extras(rest, {}, names=lambda one: [name.strip() for name in one.split(",")])
    if kind == "edges":
        edges = [part.strip() for part in cells.split(",")]
        between = [f"{low} to {high}" for low, high in itertools.pairwise(edges)]
        names = [f"below {edges[0]}", *between, f"{edges[-1]} and over"]
        found: Part = {"column": column, "edges": list(map(_number, edges)), "names": names}
    else:
        _require(kind == "code", f"the kind {kind!r} is none", DOMAIN)
        codes = _codes(cells)
        found = {"column": column, "values": codes, "names": list(map(str, codes))}
    return _checked(found | named, DomainColumn, DOMAIN)


def columns(file: Path) -> tuple[list[Part], dict[str, str], list[str]]:
    """Features, units that are notes alone, and faults of a public data dictionary: CSV, a line for each column."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        return [], {}, [f"--columns {file}: cannot be read: {error.strerror}; give the path of a data dictionary"]
    except UnicodeDecodeError:
        return [], {}, [f"--columns {file}: it is not UTF-8 text; save it as UTF-8"]
    rows = csv.DictReader(io.StringIO(text, newline=""))
    header = [name.strip() for name in rows.fieldnames or ()]
    strange = [name for name in header if name not in {*COLUMNS, *MORE}]
    if len(content) > MAX_BYTES or strange or not {"column", "kind"} <= set(header):
        wanted = f"write a header line with column and kind, and any of {', '.join((*COLUMNS[2:], *MORE))}"
        why = f"{strange[0][:40]!r} is no column of a data dictionary" if strange else "it is no data dictionary"
        return [], {}, [f"--columns {file}: {why}; {wanted}"]
    rows.fieldnames = header
    return _rows(rows, file)


def _rows(rows: csv.DictReader[str], file: Path) -> tuple[list[Part], dict[str, str], list[str]]:
    found: list[Part] = []
    units: dict[str, str] = {}
    faults: list[str] = []
    try:
        for row in rows:
            cells = {name: (cell or "").strip() for name, cell in row.items() if name is not None}
            try:
                _require(None not in row, "the line has more cells than the header", "one cell for each column")
                part = _row(cells)
            except AnswerError as error:
                faults.append(f"--columns {file}, line {rows.line_num}: {error}")
                continue
            found.append(part)
            unit = cells.get("unit", "")
            if unit.isprintable() and unit and "unit" not in part:
                units[part["column"]] = unit
    except csv.Error as error:
        faults.append(f"--columns {file}, line {rows.line_num}: {error}; save it as plain CSV")
    return found, units, faults


def _row(cells: Mapping[str, str]) -> Part:
    """One feature from a line of the data dictionary."""
    kind = cells["kind"]
    given = {name: cell for name, cell in cells.items() if cell and name not in {"column", "kind", "unit"}}
    unit = cells.get("unit", "")
    stated = kind == "number" and unit.isprintable() and 0 < len(unit) <= LONGEST_UNIT
    allowed = {
        "number": ("minimum", "maximum", "scale", "outside", "fill", "missing"),
        "code": ("values", "missing", "optional"),
    }
    _require(kind in allowed, f"the kind {kind!r} is none", "number or code")
    foreign = [name for name in given if name not in allowed[kind]]
    _require(not foreign, f"a {kind} has no {', '.join(foreign)}", "nothing there")
    found: Part = {"kind": "number" if kind == "number" else "category", "column": cells["column"]}
    found |= {"unit": unit} if stated else {}
    for name, cell in given.items():
        if name in {"minimum", "maximum", "fill"}:
            found[name] = _number(cell)
        elif name in {"values", "missing"}:
            found[name] = [code_of(one) for one in cell.split(LISTED)]
        elif name == "optional":
            _require(cell.lower() in {*_YES, *_NO}, f"optional is {cell!r}", "yes or no")
            found[name] = cell.lower() in _YES
        else:
            found[name] = cell
    return _checked(found, NumericFeature if kind == "number" else CategoryFeature, ", ".join(allowed[kind]))


def _pieces(text: str, least: int, example: str) -> list[str]:
    pieces = [piece.strip() for piece in text.split(":")]
    _require(len(pieces) >= least and bool(pieces[0]), "too few parts stand here", example)
    return pieces


def _extras(pieces: Iterable[str], switches: Mapping[str, tuple[str, Any]], **readers: Callable[[str], Any]) -> Part:
    found: Part = {}
    allowed = ", ".join([*switches, *(f"{name}=..." for name in readers)]) or "nothing more"
    for piece in pieces:
        name, equals, value = piece.partition("=")
        _require(piece in switches or (bool(equals) and name in readers), f"{piece!r} is not understood", allowed)
        key, meant = switches[piece] if piece in switches else (name, readers[name](value))
        _require(key not in found, f"{key} stands twice", "one of them")
        found[key] = meant
    return found


def _codes(text: str) -> list[str | float]:
    return [code_of(part) for part in text.split(",")]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"{text!r} is not a number; write one, such as 0.5"
        raise AnswerError(msg) from None


def _checked(part: Part, schema: Any, example: str) -> Part:
    try:
        check_document(part, schema, "")
    except DocumentError as error:
        msg = f"{'; '.join(plain(fault) for fault in error.faults)}; write for example {example}"
        raise AnswerError(msg) from None
    return part


def plain(fault: str) -> str:
    """A fault of a document without what means nothing to whoever has no document yet."""
    return fault.removeprefix("field (document): ").replace("Value error, ", "").removeprefix("field ")


def _require(holds: bool, problem: str, instead: str) -> None:  # noqa: FBT001 - a condition
    if not holds:
        msg = f"{problem}; write {instead}"
        raise AnswerError(msg)


def parsed(option: str, texts: Iterable[str], parse: Callable[[str], Part], faults: list[str]) -> Iterator[Part]:
    """Each answer to a repeatable option; what cannot be used is added to `faults`."""
    for text in texts:
        try:
            yield parse(text)
        except AnswerError as error:
            faults.append(f"{option} {text[:80]!r}: {error}")
