"""Lines are split many at once where no doubt is, and by themselves everywhere else; both give the same rows."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import Unfit
from silo_agent.data.sources import csv_blocks
from silo_agent.data.sources.csv_blocks import line_blocks, rows_of_block
from support.hostile_bytes import PIECES

PARTS = [*PIECES, b"a", b"1", b",", b",,", b" ", b"\\", "\u2028\x85\x0b".encode(), b'"a""b"', b'"c,d"', b'""']
HOSTILE = st.lists(st.sampled_from(PARTS), max_size=8).map(b"".join)
END = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(content, width=2, delimiter=",", size=1 << 20):
    """Rows as (line, cells) and broken lines, of all blocks."""
    rows, broken, first = [], [], 1
    for block in line_blocks(io.BytesIO(content), size):
        found = rows_of_block(block, first, delimiter, width, range(width))
        cells = zip(*found.columns, strict=True)
        rows += zip(found.lines.tolist(), map(list, cells), strict=True)
        broken += found.broken
        first += block.count(b"\n")
    return rows, broken


@given(st.lists(st.tuples(HOSTILE, END), max_size=6), st.integers(1, 4), st.integers(1, 60))
def test_a_line_is_split_as_by_itself_in_blocks_of_any_size(chunks, width, size):
    content = b"".join(line + end for line, end in chunks)
    rows, broken = read(content, width, size=size)
    alone = [(line, cells) for line, cells in split_rows(content, ",") if isinstance(cells, Unfit) or cells]
    fit = [(line, cells) for line, cells in alone if not isinstance(cells, Unfit) and len(cells) == width]
    assert rows == fit
    assert [one.line for one in broken] == [line for line, cells in alone if (line, cells) not in fit]


@given(st.lists(HOSTILE, max_size=6), END, st.integers(1, 40))
def test_blocks_are_the_lines_of_the_file_whatever_their_size(chunks, end, size):
    content = end.join(chunks)
    blocks = list(line_blocks(io.BytesIO(content), size))
    assert all(block.endswith(b"\n") for block in blocks)
    assert b"".join(blocks).splitlines() == content.splitlines()


@pytest.mark.parametrize(
    "line", [b"a,1", b'"a",1', b'"a,b","1"', b'"",""', b",", "é,1".encode(), b" a , 1", b"x" * (MAX_TEXT - 2) + b",1"]
)
def test_lines_without_doubt_are_never_split_by_themselves(monkeypatch, line):
    """Else a hospital waits a minute for what takes a second."""
    _, expected = next(split_rows(line, ","))
    monkeypatch.setattr(csv_blocks, "split_line", None)
    rows, broken = read(b"\n".join([line] * 20))  # quotes are told apart 64 bytes at once
    assert (rows, broken) == ([(place, expected) for place in range(1, 21)], [])


@pytest.mark.parametrize(
    "foul", [b'"x,1', b'x,"1', b'"x"y,1', b"x\xff,1", b"x", b"x,1,2", b"\0,1", b'"g""h",1', b"x" * MAX_TEXT + b",1"]
)
def test_a_line_in_doubt_is_split_by_itself_and_no_other_is(monkeypatch, foul):
    asked, split = [], csv_blocks.split_line
    monkeypatch.setattr(csv_blocks, "split_line", lambda line, mark: asked.append(line) or split(line, mark))
    rows, _ = read(b"\n".join([b"a,1", foul, b'"b",2', b"", b"c,3"]))
    assert asked == [foul]
    assert [row for row in rows if row[0] != 2] == [(1, ["a", "1"]), (3, ["b", "2"]), (5, ["c", "3"])]


def test_a_block_in_which_arrow_finds_other_rows_is_split_line_by_line(monkeypatch):
    """It finds what `rows_of_block` promises today; another version of it must not move a patient's cells."""
    table = csv_blocks.pyarrow.csv.read_csv
    content = b"a,1\nb,2\n"
    for wrong in (lambda *_: table(io.BytesIO(b"a,1\n"), *_[1:]), lambda *_: table(io.BytesIO(b"a\n"), *_[1:])):
        with monkeypatch.context() as patch:
            patch.setattr(csv_blocks.pyarrow.csv, "read_csv", wrong)
            assert read(content) == ([(1, ["a", "1"]), (2, ["b", "2"])], [])


def test_a_mark_of_more_than_one_byte_parts_cells_too():
    assert read("a§1\nb,§2\n".encode(), delimiter="§") == ([(1, ["a", "1"]), (2, ["b,", "2"])], [])


def test_what_is_asked_for_comes_in_the_order_in_which_it_is_asked():
    found = rows_of_block(b'a,b,c\n"d",e,f\n"g"",h,i\n"j""k",l,m\n', 7, ",", 3, (2, 0))
    assert [list(column) for column in found.columns] == [["c", "f", "m"], ["a", "d", 'j"k']]
    assert (found.lines.tolist(), [one.line for one in found.broken]) == ([7, 8, 10], [9])
    assert "private" in repr(found) + repr(found.broken[0])


def test_whatever_parts_the_cells_lines_are_split_as_by_themselves():
    """A study's author may write any character."""
    for mark in map(chr, range(128)):
        content = f'a{mark}1\n"b{mark}"{mark}2\n""{mark}""\n{mark}\nplain\n'.encode()
        for width in (1, 2):
            alone = [cells for _, cells in split_rows(content, mark) if not isinstance(cells, Unfit)]
            rows, _ = read(content, width, mark)
            assert [cells for _, cells in rows] == [cells for cells in alone if len(cells) == width], repr(mark)
