import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from silo_agent.config import SqlSource
from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.errors import DataError, Faults, RecordError
from silo_agent.data.reader import read_records
from silo_agent.data.sources import opening
from silo_agent.data.sources.opening import read_table
from silo_agent.data.sources.sql_batches import SqlRows
from silo_agent.data.table import needed_columns
from support.studies import tiny_study

HEADER = "patient,group,age,lactate,ill"
SCHEMA = tiny_study().data


def write(path, *rows):
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")


def test_a_folder_of_csv_and_parquet_is_one_table_in_the_order_of_names(tmp_path):
    write(tmp_path / "2.csv", "p3,b,70,5,1")
    write(tmp_path / "1.csv", "p1,a,60,4,0", "p2,a,61,4,1")
    row = {"patient": ["p4"], "group": ["b"], "age": [80.0], "lactate": [6.0], "ill": [0]}
    pq.write_table(pa.table(row), tmp_path / "3.parquet")
    write(tmp_path / ".hidden.csv", "p9,a,60,4,0")
    (tmp_path / "notes.txt").write_text("no table", encoding="utf-8")
    read = read_records(tmp_path, SCHEMA).whole()
    assert read.labels.tolist() == [0, 1, 1, 0]
    assert read.domains.tolist() == [0, 0, 1, 1]


def test_a_fault_in_a_folder_is_told_with_its_own_file(tmp_path):
    write(tmp_path / "a.csv", "p1,a,60,4,0")
    write(tmp_path / "b.csv", "p2,a,sixty,4,0", "p3,a,61,4,1")
    check = read_records(tmp_path, SCHEMA, faults=Faults(5))
    assert (check.kept, check.left_out) == (2, 1)
    assert [(fault.file, fault.row, fault.column) for fault in check.faults] == [("b.csv", 2, "age")]


def test_all_files_of_a_folder_that_cannot_be_used_are_told_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("patient,group\n", encoding="utf-8")
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError) as caught:
        read_records(tmp_path, SCHEMA).whole()
    assert {fault.file for fault in caught.value.faults} == {"a.csv", "b.parquet"}


def test_a_folder_without_data_says_so(tmp_path):
    with pytest.raises(DataError, match="found a folder without data, expected files that end in"):
        read_records(tmp_path, SCHEMA).whole()


def refused(path, needed=("patient", "age")):
    with pytest.raises(DataError) as caught:
        read_table(path, SCHEMA, Faults(), needed=needed)
    (fault,) = caught.value.faults
    return fault


def test_a_file_of_another_form_is_refused_by_one_sentence(tmp_path, monkeypatch):
    path = tmp_path / "ward.csv"
    path.write_text(HEADER.replace(",", ";") + "\np1;a;60;4;0\n")
    parted = refused(path)
    assert parted.found == "a header line whose columns are parted by semicolons"
    assert parted.expected.startswith("',': set data_set.file.delimiter to ';' in the policy")
    path.write_text("p1,a,60,4,0\np2,b,61,4,1\n")
    assert refused(path).found == "none of the 2 columns that the study needs"
    path.write_text("p1\np2\n")
    assert refused(path, ("patient",)).column == "patient", "of one column nobody can tell"
    path.write_text("patient\np2\n")
    assert list(read_table(path, SCHEMA, Faults(), needed=("patient",)).columns["patient"]) == ["p2"]

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setitem(opening._FORMATS, ".csv", fail)
    assert (refused(path).found, refused(path).expected) == ("an unreadable file (OSError)", "a readable file")


def test_rows_with_a_cell_that_cannot_be_decoded_are_left_out_and_named(tmp_path):
    texts = [b"p1", b"\xff", b"p3", b"p4"]
    groups = [b"a", b"\xff", b"\xfe", b"b"]
    columns = [pa.Array.from_buffers(pa.string(), 4, pa.array(one, pa.binary()).buffers()) for one in (texts, groups)]
    pq.write_table(pa.table(columns, ["patient", "group"]), tmp_path / "ward.parquet")
    faults = Faults()
    read = read_table(tmp_path / "ward.parquet", SCHEMA, faults, needed=("patient", "group"))
    assert ({name: list(cells) for name, cells in read.columns.items()}, list(read.rows), read.broken) == (
        {"patient": ["p1", "p4"], "group": ["a", "b"]},
        [1, 4],
        2,
    )
    assert [(one.row, one.column, one.found) for one in faults.first()] == [
        (2, "patient", "a value that cannot be decoded"),
        (3, "group", "a value that cannot be decoded"),
    ]


@pytest.mark.parametrize("odd", ["x" * (MAX_TEXT + 1), "\udcff"])
@pytest.mark.parametrize("beside", [60, b"x"])
def test_a_row_of_a_database_that_has_no_form_as_cells_is_left_out_and_named(tmp_path, monkeypatch, odd, beside):
    """Whatever other values its column holds, and in whichever part of the result it comes."""
    values = [("p1", 60), (odd, 61), ("p3", 62), (beside, odd), ("p5", 64)]
    monkeypatch.setattr(opening.sql, "columns", lambda _: ["patient", "age"])
    monkeypatch.setattr(opening.sql, "rows", lambda _: iter([SqlRows(3, values[:3]), SqlRows(2, values[3:])]))
    source, faults = SqlSource(url=f"sqlite:///{tmp_path}/ward.sqlite3", statement="SELECT * FROM stay"), Faults()
    read = read_table(source, SCHEMA, faults, needed=("patient", "age"))
    assert (list(read.columns["patient"]), list(read.rows), read.broken) == (["p1", "p3", "p5"], [1, 3, 5], 2)
    assert [(one.row, one.found) for one in faults.first()] == [
        (2, "a value that cannot be decoded"),
        (4, "a value that cannot be decoded"),
    ]


def test_which_columns_are_read_and_which_rows_are_none(tmp_path):
    path = tmp_path / "ward.txt"
    path.write_text(f"{HEADER}\np1,a,60,4,0\np2,a\np3,b,61,4,1\np4,b,61,4,1,9\n")
    read = read_table(path, SCHEMA, Faults(), needed=("age", "scan"), optional=("scan", "age"))
    assert ({name: list(cells) for name, cells in read.columns.items()}, read.broken) == ({"age": ["60", "61"]}, 2)
    both = tiny_study(data={"domain": [{"column": "age", "edges": [50], "names": ["a", "b"]}]}).data
    assert sorted(needed_columns(both)) == ["age", "ill", "lactate", "patient"]
    path.write_bytes(b"\xe4lter,age\np1,60\n")
    assert refused(path).found == "bytes that are not in the file's encoding"


def test_a_file_that_cannot_be_read_because_of_what_it_holds_is_nothing_that_others_hear_of(tmp_path):
    """Arrow decodes all categories of a group of rows at once: one patient's bytes end the whole reading."""
    raw = pa.array([b"a", b"\xff"], pa.binary())
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.Array.from_buffers(pa.string(), 2, raw.buffers()))
    rows = {"patient": ["p1", "p2", "p3"], "group": texts, "age": [60, 61, 62], "lactate": [4, 5, 6], "ill": [0, 1, 0]}
    pq.write_table(pa.table(rows), tmp_path / "ward.parquet")
    with pytest.raises(RecordError) as caught:
        read_records(tmp_path / "ward.parquet", SCHEMA)
    assert caught.value.found.startswith("ward.parquet: ArrowInvalid")
    assert "ward" not in str(caught.value)
