import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.columns.arrow_cells import ArrowCells
from silo_agent.data.sources import parquet_rows as module
from silo_agent.data.sources.parquet_rows import parquet_rows


def read(path, table, places, monkeypatch, at_once=2):
    monkeypatch.setattr(module, "ROWS", at_once)
    pq.write_table(table, path / "ward.parquet")
    with pq.ParquetFile(path / "ward.parquet") as file:
        return list(parquet_rows(file, places))


def test_rows_come_in_parts_with_their_numbers_and_columns_in_the_order_asked_for(tmp_path, monkeypatch):
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", None], "c": [0.5, None, 1.5]})
    parts = read(tmp_path, table, (2, 0), monkeypatch)
    assert [part.numbers.tolist() for part in parts] == [[1, 2], [3]]
    assert [[list(cells) for cells in part.columns] for part in parts] == [[[0.5, None], [1, 2]], [[1.5], [3]]]
    assert all(isinstance(cells, ArrowCells) for part in parts for cells in part.columns)
    assert "private" in repr(parts[0])


def test_columns_of_one_name_are_told_by_their_place(tmp_path, monkeypatch):
    """A policy may list names of its own for a file whose names say nothing."""
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["x", "y"])], ["same", "same"])
    (part,) = read(tmp_path, table, (1, 0), monkeypatch)
    assert [list(cells) for cells in part.columns] == [["x", "y"], [1, 2]]


@pytest.mark.parametrize("foul", [b"\xff", b"x" * (MAX_TEXT + 1)])
def test_a_text_without_a_form_leaves_out_its_row_in_whichever_part_it_stands(tmp_path, monkeypatch, foul):
    raw = pa.array([b"a", b"x" * MAX_TEXT, b"c", foul, b"e"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 5, raw.buffers())
    parts = read(tmp_path, pa.table({"n": [1, 2, 3, 4, 5], "t": texts}), (0, 1), monkeypatch)
    assert [part.numbers.tolist() for part in parts] == [[1, 2], [3], [5]]
    assert [part.broken for part in parts] == [{}, {4: 1}, {}]
    assert [list(part.columns[0]) for part in parts] == [[1, 2], [3], [5]]


def test_a_category_that_is_too_long_leaves_out_its_rows(tmp_path, monkeypatch):
    texts = pa.array(["a", "x" * (MAX_TEXT + 1), "a"]).dictionary_encode()
    (part,) = read(tmp_path, pa.table({"t": texts}), (0,), monkeypatch, 9)
    assert (part.numbers.tolist(), part.broken) == ([1, 3], {2: 0})


def test_other_types_become_their_text(tmp_path, monkeypatch):
    days = pa.array([0, 18_000, 2**31 - 1], pa.date32())
    table = pa.table({"d": days, "m": pa.array(["1.50", "2", None]).cast(pa.decimal128(9, 2))})
    parts = read(tmp_path, table, (0, 1), monkeypatch, 9)
    assert [[list(cells) for cells in part.columns] for part in parts] == [
        [["1970-01-01", "2019-04-14"], ["1.50", "2.00"]]
    ]
    assert parts[0].broken == {3: 0}
