import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import Unfit

CELLS = st.lists(st.text(st.sampled_from('a,;" \n\r'), max_size=5), min_size=2, max_size=4)


def read(text, delimiter=","):
    found = split_rows(text.splitlines(keepends=True), delimiter)
    return [(line, None if isinstance(cells, Unfit) else cells) for line, cells in found]


def test_rows_are_told_with_their_last_line_and_blank_ones_are_empty():
    assert read('a,b\n\n"c\nd",e\nf,"g""h"') == [
        (1, ["a", "b"]),
        (2, []),
        (4, ["c\nd", "e"]),
        (5, ["f", 'g"h']),
    ]
    assert read("") == []


@pytest.mark.parametrize("foul", ['"x,1', 'x,"1', '"x"y,1', '"', 'x,"1"2', '"' + "x" * 200_000])
def test_a_row_with_a_foul_quote_costs_its_own_line_wherever_it_stands(foul):
    fit = ["a,1", 'b,"2"', '"c, d",3', '"e\nf",4']
    rows = [cells for _, cells in read("\n".join(fit))]
    for place in range(len(fit) + 1):
        found = read("\n".join([*fit[:place], foul, *fit[place:]]) + "\n")
        assert [cells for _, cells in found] == [*rows[:place], None, *rows[place:]]


def test_what_is_wrong_is_said_without_the_text():
    (found,) = split_rows(['"secret"x,1\n'], ",")
    assert "secret" not in f"{found[1].found} {found[1].expected} {found[1]}"
    assert (found[1].expected, found[0]) == ("cells separated by ',' and closed quotes", 1)
    (found,) = split_rows(["M\udcfcller,1\n"], ",")
    assert (found[1].found, found[1].expected) == ("bytes that are not UTF-8", "a CSV file saved as UTF-8")


@given(st.lists(CELLS), st.sampled_from(",;\t"))
def test_what_a_writer_of_csv_writes_is_read_as_it_was(rows, delimiter):
    class Lines(list):
        write = list.append

    lines = Lines()
    csv.writer(lines, delimiter=delimiter).writerows(rows)
    text = "".join(lines)
    found = split_rows(text.splitlines(keepends=True), delimiter)
    assert [cells for _, cells in found] == rows
