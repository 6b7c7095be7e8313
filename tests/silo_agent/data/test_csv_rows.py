import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import Unfit
from support.hostile_bytes import PIECES

CELLS = st.lists(st.text(st.sampled_from('a,;" \x0b\x85\u2028\x00é'), max_size=5), min_size=2, max_size=4)
PARTS = [*PIECES, b"a", b"1", b" ", b"\\", "\u2028\x85\x0b".encode(), b'"a""b"', b"x" * MAX_TEXT]
HOSTILE = st.lists(st.integers(0, len(PARTS) - 1), max_size=8).map(lambda some: b"".join(PARTS[one] for one in some))


def read(content, delimiter=","):
    content = content.encode() if isinstance(content, str) else content
    found = split_rows(content, delimiter)
    return [(line, None if isinstance(cells, Unfit) else cells) for line, cells in found]


def test_rows_are_told_with_their_line_and_blank_ones_are_empty():
    assert read('a,b\r\n\n"c",e\rf,"g""h"') == [(1, ["a", "b"]), (2, []), (3, ["c", "e"]), (4, ["f", 'g"h'])]
    assert read("") == []
    assert read("\ufeffa,b\n\ufeff\n\ufeffc,\ufeffd") == [(1, ["a", "b"]), (2, []), (3, ["c", "\ufeffd"])]


@pytest.mark.parametrize(
    "foul", ['"x,1', 'x,"1', '"x"y,1', '"', 'x,"1"2', '"' + "x" * 200_000, "x" * (MAX_TEXT + 1) + ",1"]
)
def test_a_row_with_a_foul_quote_costs_its_own_line_wherever_it_stands(foul):
    fit = ["a,1", 'b,"2"', '"c, d",3', 'e,12"', 'f"g,4']
    rows = [cells for _, cells in read("\n".join(fit))]
    assert None not in rows
    for place in range(len(fit) + 1):
        found = read("\n".join([*fit[:place], foul, *fit[place:]]) + "\n")
        assert [cells for _, cells in found] == [*rows[:place], None, *rows[place:]]


def test_a_quote_that_a_later_line_closes_takes_no_line_with_it():
    """Notes of two patients, in which inches were written: 8,000 records between them were one row."""
    between = [f"p{place},1,ok" for place in range(8000)]
    found = read("\n".join(['q1,1,"12', *between, 'q2,1,12"']))
    assert [cells for _, cells in found] == [None, *(row.split(",") for row in between), ["q2", "1", '12"']]
    one = read('a,"two\nlines",1\nb,2,3')
    assert one == [(1, None), (2, ['lines"', "1"]), (3, ["b", "2", "3"])]


def test_what_is_wrong_is_said_without_the_text():
    ((line, found),) = split_rows(b'"secret"x,1\n', ",")
    assert "secret" not in f"{found.found} {found.expected} {found}"
    assert (line, found.expected) == (1, "cells separated by ',' and closed quotes")
    ((_, found),) = split_rows(b"M\xfcller,1\n", ",")
    assert found.found == "bytes that are not in the file's encoding"
    assert found.expected == "a CSV file saved as UTF-8, or as data_set.file.encoding of the policy says"
    ((_, found),) = split_rows(b'secret,"1\n', ",")
    assert found.found == "a quote that is open at the line's end"
    assert found.expected.endswith("keep cells of several lines in a Parquet file or a database")


@given(st.lists(CELLS), st.sampled_from(",;\t"))
def test_what_a_writer_of_csv_writes_is_read_as_it_was(rows, delimiter):
    class Lines(list):
        write = list.append

    lines = Lines()
    csv.writer(lines, delimiter=delimiter).writerows(rows)
    assert [cells for _, cells in read("".join(lines), delimiter)] == rows


@given(st.lists(HOSTILE, min_size=1, max_size=5), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_line_is_read_alike_among_any_others(written, end):
    """Whatever bytes stand before or after it."""
    lines = [line + end for chunk in written for line in chunk.splitlines() or [b""]]
    assert [cells for _, cells in read(b"".join(lines))] == [read(line)[0][1] for line in lines]
