"""The rows that a study began with, so that every round sees the same.

Guarantees: the first reading of a study keeps its rows, as the hospital wrote them and with how it wrote them; every
later one reads what was kept, whatever became of the file or the database. A person who withdraws is in no later
reading. The rows are kept as bytes that `SnapshotStore` seals. Images are not kept: rows name their files, which must
stay. Rows are kept and read some thousands at a time, so memory does not follow from how many there are.

The bytes: a mark; then frames, each with its length before it. The first says in JSON how the hospital wrote the rows
and which column names a patient; every other has some rows in Arrow's stream format, each column with its own type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from policies.documents.study import DataSchema
from silo_agent.data.cells import Cell
from silo_agent.data.columns.arrow_cells import ArrowCells
from silo_agent.data.errors import Faults
from silo_agent.data.images import Levels
from silo_agent.data.reader import RecordBuilder, open_rows
from silo_agent.data.records import Records
from silo_agent.data.table import Source, Table, Written, folder_of

_MARK: Final = b"fedward rows 2\n"
_LENGTH: Final = 8
_META: Final = b"fedward rows"
"""Under which version 0.6, whose bytes are one Arrow stream, kept the first frame."""
_FORM, _JSON = b"fedward cells", b"json"
_ROWS, _IDENTITIES, _COLUMN = "rows", "identities", "column "


class SnapshotStore(Protocol):
    """Where the bytes of one study's rows lie."""

    def kept(self) -> bool:
        """Whether there was a first reading."""
        ...

    def recall(self) -> Iterator[bytes]:
        """What was kept, in pieces. Raises `LocalFileError` if one cannot be opened, or if there was no reading."""
        ...

    def require_whole(self, *, begun: bool) -> None:
        """Raise `LocalFileError` if what was kept cannot be opened, or is gone though the study has begun."""
        ...

    def keep(self, content: Iterable[bytes]) -> None:
        """Keep bytes durably and sealed, in place of those before. If they raise, those before stay."""
        ...

    def withdrawn(self) -> Collection[str]:
        """Everybody who has withdrawn, as in `Records.identities`. Raises `LocalFileError`."""
        ...

    def stamp(self) -> object:
        """Another value after every withdrawal."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Within it nobody else withdraws or keeps anything."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class KeptRows:
    """What was kept: how the hospital wrote the rows, the column that names a patient, and the rows, table by table."""

    written: Written | None
    patient: str | None
    tables: Iterator[Table]

    def __repr__(self) -> str:
        return "KeptRows(<private>)"


def read_begun(
    source: Source,
    schema: DataSchema,
    identified_by: Sequence[str],
    store: SnapshotStore,
    *,
    room: Levels | None = None,
    written: Written | None = None,
) -> Records:
    """The fitting records (`reader.read_records`) of the rows that the study began with, kept at the first reading.

    Whoever withdraws a person meanwhile waits. Raises `DataError` and `RecordError` at the first reading alone;
    `LocalFileError` if what was kept cannot be opened; OSError.
    """
    with store.alone():
        people = store.withdrawn()
        if not store.kept():
            opened = open_rows(source, schema, identified_by, written=written)
            tables = opened.tables(opened.columns, Faults())
            builder = RecordBuilder(folder_of(source), schema, written, room=room)
            store.keep(pack(_also(builder, tables, people, schema.patient), written, schema.patient))
            return builder.reading().records
        kept, cut_off = unpack(store.recall()), False
        builder = RecordBuilder(folder_of(source), schema, kept.written, room=room)
        for table in kept.tables:
            left = table.without(people, kept.patient)
            cut_off |= len(left.rows) < len(table.rows)
            builder.add(left)
        if cut_off:  # a withdrawal was cut off
            forget(store, people)
    return builder.reading().records


def _also(
    builder: RecordBuilder, tables: Iterable[Table], people: Collection[str], patient: str | None
) -> Iterator[Table]:
    """The rows of everybody else; the builder gets those that can be kept."""
    for table in tables:
        left = keepable(table.without(people, patient))
        builder.add(left)
        yield left


def keeps(store: SnapshotStore, person: str) -> bool:
    """Whether a study keeps a row of this person. Raises `LocalFileError`, OSError."""
    if not store.kept():
        return False
    return _rows_of(store, [person]) > 0


def _rows_of(store: SnapshotStore, people: Collection[str]) -> int:
    kept = unpack(store.recall())
    return sum(len(table.rows) - len(table.without(people, kept.patient).rows) for table in kept.tables)


def forget(store: SnapshotStore, people: Collection[str]) -> int:
    """Remove some people's rows for good, within `SnapshotStore.alone`. Returns how many rows.

    Raises `LocalFileError`, OSError.
    """
    if not store.kept():
        return 0
    removed = _rows_of(store, people)
    if removed:
        kept = unpack(store.recall())
        left = (table.without(people, kept.patient) for table in kept.tables)
        store.keep(pack(left, kept.written, kept.patient))
    return removed


def pack(tables: Iterable[Table], written: Written | None, patient: str | None) -> Iterator[bytes]:
    """Rows (of `keepable`) as bytes, in pieces. `patient` is the column that names a row's patient, if one does."""
    meta = {"written": None if written is None else written.fields(), "patient": patient}
    yield _MARK + _framed(json.dumps(meta).encode())
    for table in tables:
        yield _framed(_rows(table))


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(_LENGTH, "big") + content


def _rows(table: Table) -> bytes:
    """The cells of rows, and whose each is."""
    arrays, fields = list[pa.Array](), list[pa.Field]()
    for name, cells in table.columns.items():
        typed = isinstance(cells, ArrowCells)
        array = cells.array if isinstance(cells, ArrowCells) else _Packed(cells).array()
        arrays.append(array)
        fields.append(pa.field(_COLUMN + name, array.type, metadata=None if typed else {_FORM: _JSON}))
    numbers = pa.array(np.asarray(table.rows, np.int64))
    arrays.append(numbers)
    fields.append(pa.field(_ROWS, numbers.type))
    if table.identities:
        arrays.append(pa.array(table.identities, pa.large_string()))
        fields.append(pa.field(_IDENTITIES, pa.large_string()))
    content = pa.record_batch(arrays, schema=pa.schema(fields, {_META: table.file}))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(content)
    return bytes(sink.getvalue().to_pybytes())


def keepable(table: Table) -> Table:
    """The table without rows that have a cell that cannot be kept: they are left out as those that cannot be read."""
    mixed = (cells for cells in table.columns.values() if not isinstance(cells, ArrowCells))
    bad = {place for cells in mixed for place in _Packed(cells).bad}
    return table.at(np.setdiff1d(np.arange(len(table.rows)), list(bad))) if bad else table


def unpack(content: Iterable[bytes]) -> KeptRows:
    """Inverse of `pack`, and of what version 0.6 kept."""
    pieces = iter(content)
    start = b""
    for piece in pieces:
        start += piece
        if len(start) >= len(_MARK):
            break
    if not start.startswith(_MARK):
        return _of_version_0_6(b"".join(chain([start], pieces)))
    frames = _frames(chain([start.removeprefix(_MARK)], pieces))
    meta: dict[str, Any] = json.loads(next(frames))
    return KeptRows(_written(meta), meta["patient"], map(_table, frames))


def _frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= _LENGTH:
            end = _LENGTH + int.from_bytes(waiting[:_LENGTH], "big")
            if len(waiting) < end:
                break
            yield bytes(waiting[_LENGTH:end])
            del waiting[:end]


def _table(frame: bytes) -> Table:
    found = pa.ipc.open_stream(frame).read_all()
    columns: dict[str, Sequence[Cell]] = {}
    for field in found.schema:
        if field.name.startswith(_COLUMN):
            column = found.column(field.name)
            packed = (field.metadata or {}).get(_FORM) == _JSON
            own = _unpacked(column) if packed else ArrowCells(pa.concat_arrays(column.chunks))
            columns[field.name.removeprefix(_COLUMN)] = own
    identities = found.column(_IDENTITIES).to_pylist() if _IDENTITIES in found.column_names else ()
    file = found.schema.metadata[_META].decode()
    return Table(file, columns, found.column(_ROWS).to_numpy(), tuple(identities))


def _of_version_0_6(content: bytes) -> KeptRows:
    found = pa.ipc.open_stream(content).read_all()
    meta: dict[str, Any] = json.loads(found.schema.metadata[_META])
    columns = {name: _unpacked(found.column(name)) for name in found.column_names if name != _ROWS}
    table = Table(
        meta["file"],
        {name.removeprefix(_COLUMN): cells for name, cells in columns.items() if name.startswith(_COLUMN)},
        found.column(_ROWS).to_numpy(),
        tuple(str(cell) for cell in columns.get(_IDENTITIES, ())),
    )
    return KeptRows(_written(meta), meta["patient"], iter([table]))


def _written(meta: dict[str, Any]) -> Written | None:
    return None if meta["written"] is None else Written.parse(meta["written"])


class _Packed:
    """Cells as places among the different ones, each in JSON: a column may hold texts and numbers side by side.

    `bad` are the places in the column of cells that have no such form.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._texts: dict[str, int] = {}
        self._codes: list[int] = []
        self.bad: list[int] = []
        known: dict[tuple[type, Cell], int] = {}
        for place, cell in enumerate(cells):
            # -0.0 equals 0.0, and a row must not be kept with the sign of another's.
            key = (type(cell), repr(cell) if isinstance(cell, float) else cell)
            code = known.get(key)
            if code is None:
                try:
                    code = known[key] = self._texts.setdefault(_json(cell), len(self._texts))
                except Exception:  # noqa: BLE001  # whatever a cell raises leaves out its row
                    self.bad.append(place)
                    code = 0
            self._codes.append(code)

    def array(self) -> pa.DictionaryArray:
        """The column, if none of its cells is bad."""
        return pa.DictionaryArray.from_arrays(
            pa.array(self._codes, pa.int32()), pa.array(self._texts, pa.large_string())
        )


def _json(cell: Cell) -> str:
    return json.dumps(cell)


def _unpacked(column: pa.ChunkedArray) -> list[Cell]:
    cells: list[Cell] = []
    for chunk in column.chunks:
        values = [json.loads(text) for text in chunk.dictionary.to_pylist()]
        cells += [values[place] for place in chunk.indices.to_pylist()]
    return cells
