"""Whether a table is another one's copy: in other bytes, another format, another order, in part or among more rows.

Guarantees: rows are compared by keyed digests of what their cells mean, so that a copy in CSV, with other ends of lines
or delimiters, and one in Parquet are alike. The key is this process's own and is never kept. Numbers count to six
digits, as single precision keeps them. Columns are found by their names; one whose cells mostly differ (a pseudonym, a
date that was shifted) does not count. If names differ, too, whole rows are compared, whatever the order of their cells.

What is not seen: rows whose cells were changed in most columns, parts of columns under other names, tables that are too
coarse (most rows are equal to others of their own table), and fewer than eight equal rows.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from silo_agent.data.cells import Cell, identity_text, number, plain
from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import Unfit

Columns = Mapping[str, Sequence[Cell]]
"""Cells by the name of their column, all of one length."""
_KEY: Final = secrets.token_bytes(32)
_DELIMITERS: Final = (",", ";", "\t", "|")
_FEWEST: Final = 2
"""Fewest columns that tell a row: a running number alone is in many tables."""
_FEWEST_ROWS: Final = 8
"""Fewest rows that two tables share, if they are to be one table's: a few rows are alike by chance."""
_NOTHING: Final = frozenset({"na", "n/a", "nan", "null", "none", "nil", "?", "-", "."})
"""What stands for an empty cell in many programs."""


def columns_of(path: Path) -> Columns:
    """All columns of a file, by their names in the first line or in the format. Raises what the file system raises.

    A row that cannot be read is left out.
    """
    return _FORMATS.get(path.suffix, _of_text)(path)


def _of_parquet(path: Path) -> Columns:
    table = pq.ParquetFile(path).read()
    names = _different(table.column_names)
    return {name: [as_cell(scalar) for scalar in table.column(place)] for place, name in enumerate(names)}


def _of_text(path: Path) -> Columns:
    content = path.read_bytes()
    delimiter = max(_DELIMITERS, key=lambda one: _width(content, one))
    rows = [cells for _, cells in split_rows(content, delimiter) if not isinstance(cells, Unfit)]
    if not rows:
        return {}
    # The first line is kept as a row, too: a file without a header has none to lose.
    kept = [row for row in rows if len(row) == len(rows[0])]
    return dict(zip(_different(rows[0]), map(list, zip(*kept, strict=True)), strict=True))


_FORMATS: Final[Mapping[str, Callable[[Path], Columns]]] = {".csv": _of_text, ".parquet": _of_parquet}
"""All formats that a silo reads (`silo_agent.data.sources.opening.SUFFIXES`): a copy in any of them is found."""


def as_cell(value: object) -> Cell:
    """A value of a database or of Parquet as a cell; nothing if it has no form as one."""
    try:
        return plain(value.as_py() if isinstance(value, pa.Scalar) else value)
    except Exception:  # noqa: BLE001  # text that is not UTF-8, or whatever else a value raises
        return None


def alike(one: Columns, other: Columns) -> bool:
    """Whether most rows of the smaller table are rows of the larger one."""
    first, second = _meant(one), _meant(other)
    shared = [name for name in first if name in second and _overlap(first[name], second[name])]
    if len(shared) >= _FEWEST and _mostly([first[name] for name in shared], [second[name] for name in shared]):
        return True
    if len(first) != len(second) or len(first) < _FEWEST:
        return False
    return _mostly(_sorted(first.values()), _sorted(second.values()))


@lru_cache(maxsize=1 << 16, typed=True)  # True equals 1, and means another thing
def _meaning(cell: Cell) -> str:
    value = number(cell)
    if value is not None and not value.is_integer():
        return f"{value:.6g}"
    meaning = identity_text(cell)
    return "" if meaning.lower() in _NOTHING else meaning.removesuffix(" 00:00:00")


def _meant(columns: Columns) -> dict[str, list[str]]:
    return {name.strip().casefold(): [_meaning(cell) for cell in cells] for name, cells in columns.items()}


def _overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether at least half of one column's different cells stand in the other."""
    first, second = set(one), set(other)
    return 2 * len(first & second) >= min(len(first), len(second))


def _mostly(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> bool:
    """Whether two tables, as columns, share at least half of the rows of the smaller one, and tell rows apart."""
    digests = [[_digest(row) for row in zip(*columns, strict=True)] for columns in (one, other)]
    first, second = map(set, digests)
    if 2 * len(first) < len(digests[0]) or 2 * len(second) < len(digests[1]):
        return False  # so coarse that strangers have equal rows
    shared = len(first & second)
    return shared >= _FEWEST_ROWS and 2 * shared >= min(len(first), len(second))


def _digest(row: Iterable[str]) -> bytes:
    digest = hashlib.blake2b(key=_KEY, digest_size=16)
    for cell in row:
        raw = cell.encode()
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.digest()


def _sorted(columns: Iterable[Sequence[str]]) -> list[tuple[str, ...]]:
    """The same table with the cells of each row in order."""
    return list(zip(*(sorted(row) for row in zip(*columns, strict=True)), strict=True))


def _width(content: bytes, delimiter: str) -> int:
    """How many cells the first line has."""
    _, cells = next(split_rows(content[: content.find(b"\n") + 1 or None], delimiter), (1, []))
    return 0 if isinstance(cells, Unfit) else len(cells)


def _different(names: Sequence[str]) -> list[str]:
    """Names of columns, each once."""
    return [name if name not in names[:place] else f"{name} {place}" for place, name in enumerate(names)]
