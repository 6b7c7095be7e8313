import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from silo_agent.data.errors import DataError
from silo_agent.data.reader import check_records, read_records
from silo_agent.data.table import Table
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
    read = read_records(tmp_path, SCHEMA)
    assert read.labels.tolist() == [0, 1, 1, 0]
    assert read.domains.tolist() == [0, 0, 1, 1]


def test_a_fault_in_a_folder_is_told_with_its_own_file(tmp_path):
    write(tmp_path / "a.csv", "p1,a,60,4,0")
    write(tmp_path / "b.csv", "p2,a,sixty,4,0", "p3,a,61,4,1")
    check = check_records(tmp_path, SCHEMA, 5)
    assert (check.kept, check.left_out) == (2, 1)
    assert [(fault.file, fault.row, fault.column) for fault in check.faults] == [("b.csv", 2, "age")]


def test_all_files_of_a_folder_that_cannot_be_used_are_told_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("patient,group\n", encoding="utf-8")
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError) as caught:
        read_records(tmp_path, SCHEMA)
    assert {fault.file for fault in caught.value.faults} == {"a.csv", "b.parquet"}


def test_a_folder_without_data_says_so(tmp_path):
    with pytest.raises(DataError, match="found a folder without data, expected files that end in"):
        read_records(tmp_path, SCHEMA)


def test_a_row_without_an_identity_is_left_out_and_counted():
    """Also where it stands among others of a folder."""
    table = Table("ward", {"id": ["a", "b", "c"]}, [2, 3, 4], broken=1, files=["1.csv", "1.csv", "2.csv"])
    left = table.identified(["x", None, "z"])
    assert (left.columns, left.rows, left.files) == ({"id": ["a", "c"]}, [2, 4], ["1.csv", "2.csv"])
    assert (left.identities, left.broken) == (("x", "z"), 2)
