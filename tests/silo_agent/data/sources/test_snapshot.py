"""The rows that a study began with: every later reading sees them, whatever becomes of the file."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.columns.arrow_cells import cells_of
from silo_agent.data.errors import DataError, RecordError
from silo_agent.data.reader import read_records
from silo_agent.data.sources import snapshot
from silo_agent.data.sources.opening import OpenSource
from silo_agent.data.sources.snapshot import forget, keepable, pack, read_begun, unpack
from silo_agent.data.table import Table, Written, name_of
from silo_agent.storage.errors import LocalFileError
from support.stores import Memory
from support.studies import tiny_study

HEADER = "patient,group,age,lactate,ill"
SCHEMA = tiny_study().data
BY_RECORD = SCHEMA.model_copy(update={"patient": None})
ROWS = ["7.0,a,60,4,0", "7,a,61,4,1", "007,b,70,5,1", "p4,b,80,6,0", "p5,a,121,4,0"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n", encoding="utf-8")
    return path


def texts():
    return st.text(st.characters(exclude_categories=()), max_size=5)


CELLS = st.sampled_from([None, False, 0, 0.0, -0.0, "0"]) | st.integers() | st.floats() | texts()


@given(st.data())
def test_rows_are_the_same_after_they_were_kept(data):
    """In pieces of any size, each table with its own types."""
    columns = data.draw(st.sets(st.sampled_from(["patient", "rows", "files", "column x"]), min_size=1))
    written = data.draw(st.sampled_from([None, Written(";", ("patient",), ("?",), {"ill": {"yes": 1, "9": None}})]))
    tables, first = [], 2
    for count in data.draw(st.lists(st.integers(0, 6), max_size=3)):
        cells = {name: data.draw(st.lists(CELLS, min_size=count, max_size=count)) for name in columns}
        own = [f"{place}" for place in range(count)] if data.draw(st.booleans()) else []
        numbers = np.arange(first, first + count)
        tables.append(
            Table(f"{first}.csv", {name: cells_of(some) for name, some in cells.items()}, numbers, tuple(own))
        )
        first += count
    content = b"".join(pack(tables, written, "patient"))
    size = data.draw(st.integers(1, max(1, len(content))))
    back = unpack(content[begin : begin + size] for begin in range(0, len(content), size))
    assert (back.written, back.patient) == (written, "patient")
    assert [shown(table) for table in back.tables] == [shown(table) for table in tables], "also types, and what is none"


def shown(table):
    columns = {name: list(cells) for name, cells in table.columns.items()}
    return repr((table.file, columns, list(map(int, table.rows)), table.identities))


def test_equal_cells_are_kept_as_they_look():
    """Else the sign of a patient's zero, or its type, would be that of the first patient with an equal cell."""
    for cells in ([0.0, -0.0, 0, False, "0", -0.0, 0.0, 1, 1.0, True], [0.0, -0.0, 1.0], [1, 0], [True, False, None]):
        store = Memory()
        store.keep(pack([Table("ward.csv", {"x": cells_of(cells)}, list(range(len(cells))))], None, None))
        assert list(map(repr, store.cells("x"))) == list(map(repr, cells))


def test_rows_that_version_0_6_kept_are_read_and_forgotten_as_today(file):
    """Bytes as that version wrote them: one stream, in which every column holds JSON."""
    texts = {name: [row.split(",")[place] for row in ROWS] for place, name in enumerate(HEADER.split(","))}
    arrays = {
        f"column {name}": pa.array([json.dumps(cell) for cell in cells], pa.large_string()).dictionary_encode()
        for name, cells in texts.items()
    }
    arrays["rows"] = pa.array(range(2, len(ROWS) + 2), pa.int64())
    meta = {
        "file": "ward.csv",
        "broken": 0,
        "written": {"delimiter": ",", "columns": [], "missing": None, "codes": {}},
        "patient": "patient",
    }
    content = pa.table(arrays).replace_schema_metadata({b"fedward rows": json.dumps(meta)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(content)
    old, new = Memory(content=sink.getvalue().to_pybytes()), Memory()
    expected = read_begun(file, SCHEMA, ("patient",), new)
    found = read_begun(file, SCHEMA, ("patient",), old)
    assert (found.identities, found.inputs[:].tolist()) == (expected.identities, expected.inputs[:].tolist())
    assert forget(old, ["7"]) == 2
    assert (old.writes, old.cells("patient")) == (1, ["007", "p4", "p5"])


def test_every_reading_after_the_first_sees_the_rows_of_the_first(file):
    store = Memory()
    first = read_begun(file, SCHEMA, ("patient",), store)
    direct = read_records(file, SCHEMA, ("patient",)).records
    assert first.inputs[:].tolist() == direct.inputs[:].tolist()
    assert (first.labels.tolist(), first.identities) == (direct.labels.tolist(), direct.identities)
    file.write_text(f"{HEADER}\nq1,a,1,1,1\n", encoding="utf-8")
    assert read_begun(file, SCHEMA, ("patient",), store).identities == first.identities
    file.unlink()
    assert read_begun(file, SCHEMA, ("patient",), store).inputs[:].tolist() == first.inputs[:].tolist()
    assert store.writes == 1


def test_how_the_hospital_wrote_the_rows_is_kept_with_them(file):
    store, written = Memory(), Written(",", (), None, {"ill": {"0": 1, "1": 0}})
    before = read_begun(file, SCHEMA, ("patient",), store, written=written)
    assert before.labels.tolist() == [1, 0, 0, 1]
    after = read_begun(file, SCHEMA, ("patient",), store, written=Written(";", ("other",)))
    assert after.labels.tolist() == before.labels.tolist()


def test_a_file_that_cannot_be_used_keeps_nothing(file):
    store = Memory()
    file.write_text("patient,group\n", encoding="utf-8")
    with pytest.raises(DataError):
        read_begun(file, SCHEMA, ("patient",), store)
    assert not store.kept()


def test_who_withdraws_is_in_no_later_reading_and_everybody_else_is(file):
    store = Memory()
    before = read_begun(file, SCHEMA, ("patient",), store)
    assert before.identities == ("7", "007", "p4")
    name = name_of(["7"], by_patient=True)
    store.people.add(name)
    assert forget(store, [name]) == 2, "rows of '7' and '7.0', not of '007'"
    assert "7" not in store.cells("patient")
    after = read_begun(file, SCHEMA, ("patient",), store)
    assert after.identities == ("007", "p4")
    assert after.inputs[:].tolist() == before.inputs[:].tolist()[2:]
    assert forget(store, [name]) == 0


def test_a_withdrawal_before_the_first_reading_or_cut_off_counts_all_the_same(file):
    early, late = Memory(), Memory()
    early.people.add("p4")
    assert read_begun(file, SCHEMA, ("patient",), early).identities == ("7", "007")
    read_begun(file, SCHEMA, ("patient",), late)
    late.people.add("p4")  # and its rows were not removed
    assert read_begun(file, SCHEMA, ("patient",), late).identities == ("7", "007")
    assert (early.writes, late.writes) == (1, 2), "the rows of whoever has withdrawn are never written"
    for store in (early, late):
        assert "p4" not in store.cells("patient")


def test_a_record_that_is_its_own_patient_is_withdrawn_by_its_identifying_cells(file):
    store = Memory()
    before = read_begun(file, BY_RECORD, ("patient", "age"), store)
    name = name_of(["007", "70"], by_patient=False)
    assert name in before.identities
    store.people.add(name)
    after = read_begun(file, BY_RECORD, ("patient", "age"), store)
    assert after.identities == tuple(one for one in before.identities if one != name)


def test_nothing_is_removed_where_nothing_was_kept():
    assert forget(Memory(), ["p4"]) == 0


def test_a_row_with_a_cell_that_cannot_be_kept_is_left_out_alone(file, monkeypatch):
    columns = {"x": ["a", object(), "c"], "y": [1, 2, b"3"], "z": [4, 5, 6]}
    left = keepable(Table("ward.csv", columns, [2, 3, 4], ("p", "q", "r")))
    assert (left.columns, list(left.rows), left.identities) == ({"x": ["a"], "y": [1], "z": [4]}, [2], ("p",))

    def odd(*_):
        columns = {name: [row.split(",")[place] for row in ROWS] for place, name in enumerate(HEADER.split(","))}
        columns["age"][2] = object()
        return iter([Table("ward.csv", columns, list(range(2, len(ROWS) + 2)))])

    monkeypatch.setattr(snapshot, "open_rows", lambda *_, **__: OpenSource("ward.csv", (), odd))
    assert read_begun(file, SCHEMA, ("patient",), Memory()).identities == ("7", "p4")


def test_a_reading_that_fails_on_the_way_keeps_nothing(file, monkeypatch):
    def cut(*_):
        yield Table("ward.csv", {name: ["1"] for name in HEADER.split(",")}, [2])
        msg = "gone"
        raise RecordError(msg)

    monkeypatch.setattr(snapshot, "open_rows", lambda *_, **__: OpenSource("ward.csv", (), cut))
    store = Memory()
    with pytest.raises(RecordError):
        read_begun(file, SCHEMA, ("patient",), store)
    assert not store.kept()


def test_rows_that_go_while_they_are_read_are_not_read_anew(file):
    """Whoever removes them meanwhile would have the study go on with other rows than those that it began with."""

    class Vanishing(Memory):
        asked = 0

        def kept(self):
            self.asked += 1
            return self.asked == 1

        def recall(self):
            msg = "gone"
            raise LocalFileError(msg)
            yield

    with pytest.raises(LocalFileError, match="gone"):
        read_begun(file, SCHEMA, ["patient"], Vanishing())
