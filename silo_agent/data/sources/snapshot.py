"""The rows that a study began with, so that every round sees the same.

Guarantees: the first reading of a study keeps its rows, as the hospital wrote them and with how it wrote them; every
later one reads what was kept, whatever became of the file or the database. A person who withdraws is in no later
reading. The rows are kept as bytes that `SnapshotStore` seals. Images are not kept: rows name their files, which must
stay.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any, Final, Protocol

import pyarrow as pa

from policies.documents.study import DataSchema
from silo_agent.data.cells import Cell
from silo_agent.data.images import Levels
from silo_agent.data.reader import read_records, read_rows
from silo_agent.data.records import Records
from silo_agent.data.table import Source, Table, Written

_META: Final = b"fedward rows"
_ROWS, _IDENTITIES, _FILES, _COLUMN = "rows", "identities", "files", "column "


class SnapshotStore(Protocol):
    """Where the bytes of one study's rows lie."""

    def kept(self) -> bool:
        """Whether there was a first reading."""
        ...

    def recall(self) -> bytes:
        """What was kept. Raises `LocalFileError` if it cannot be opened, or if there was no reading."""
        ...

    def require_whole(self, *, begun: bool) -> None:
        """Raise `LocalFileError` if what was kept cannot be opened, or is gone though the study has begun."""
        ...

    def keep(self, content: bytes) -> None:
        """Keep bytes durably and sealed, in place of those before."""
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

    Raises `DataError` at the first reading alone; `LocalFileError` if what was kept cannot be opened; OSError.
    """
    fresh = None if store.kept() else read_rows(source, schema, identified_by, written=written)
    with store.alone():
        if fresh is not None and not store.kept():
            store.keep(pack(fresh.without(store.withdrawn(), schema.patient), written, schema.patient))
        table, written, patient = unpack(store.recall())
        left = table.without(store.withdrawn(), patient)
        if len(left.rows) < len(table.rows):  # a withdrawal was cut off
            store.keep(pack(left, written, patient))
    return read_records(source, schema, rows=left, room=room, written=written).records


def forget(store: SnapshotStore, people: Collection[str]) -> int:
    """Remove some people's rows for good, within `SnapshotStore.alone`. Returns how many rows.

    Raises `LocalFileError`, OSError.
    """
    if not store.kept():
        return 0
    table, written, patient = unpack(store.recall())
    left = table.without(people, patient)
    removed = len(table.rows) - len(left.rows)
    if removed:
        store.keep(pack(left, written, patient))
    return removed


def pack(table: Table, written: Written | None, patient: str | None) -> bytes:
    """Rows as bytes (Arrow's stream format). `patient` is the column that names a row's patient, if one does.

    A row with a cell that cannot be kept is left out, as one that cannot be read.
    """
    packed = {name: _Packed(cells) for name, cells in table.columns.items()}
    bad = {place for column in packed.values() for place in column.bad}
    if bad:
        return pack(table.at([place for place in range(len(table.rows)) if place not in bad]), written, patient)
    meta = {
        "file": table.file,
        "broken": table.broken,
        "written": None if written is None else asdict(written),
        "patient": patient,
    }
    arrays = {_COLUMN + name: column.array() for name, column in packed.items()}
    arrays[_ROWS] = pa.array(table.rows, pa.int64())
    for name, texts in ((_IDENTITIES, table.identities), (_FILES, table.files)):
        if texts:
            arrays[name] = _Packed(texts).array()
    content = pa.table(arrays).replace_schema_metadata({_META: json.dumps(meta)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(content)
    return bytes(sink.getvalue().to_pybytes())


def unpack(content: bytes) -> tuple[Table, Written | None, str | None]:
    """Inverse of `pack`."""
    found = pa.ipc.open_stream(content).read_all()
    meta: dict[str, Any] = json.loads(found.schema.metadata[_META])
    columns = {name: _unpacked(found.column(name)) for name in found.column_names if name != _ROWS}
    written = None if meta["written"] is None else Written.parse(meta["written"])
    table = Table(
        meta["file"],
        {name.removeprefix(_COLUMN): cells for name, cells in columns.items() if name.startswith(_COLUMN)},
        found.column(_ROWS).to_pylist(),
        tuple(str(cell) for cell in columns.get(_IDENTITIES, ())),
        meta["broken"],
        [str(cell) for cell in columns.get(_FILES, ())],
    )
    return table, written, meta["patient"]


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
