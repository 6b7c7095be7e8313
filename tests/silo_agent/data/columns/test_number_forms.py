"""How a column writes numbers: read at once as read alone, and never guessed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import Absence
from silo_agent.data.columns.arrow_cells import ArrowCells, cells_of
from silo_agent.data.columns.number_forms import PLAIN, NumberForm
from silo_agent.data.columns.parsing import Parser, read_cells

COMMA = NumberForm(",")
NUMBERS = st.floats(-1e6, 1e6).map(lambda value: repr(value).replace(".", ","))
TEXTS = st.one_of(NUMBERS, st.text("0123456789.,+-e \0", max_size=6))


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1,5", 1.5), (" -,5", -0.5), ("7", 7.0), ("1e3", 1000.0), (2.5, 2.5), (3, 3.0)]
    + [(cell, None) for cell in ("1.5", "1.234,5", "1,234,5", "", "x", None, True, ",")],
)
def test_with_a_comma_a_point_makes_no_number(cell, value):
    assert COMMA.raw(cell) == COMMA.number(cell) == value


@given(st.lists(TEXTS, min_size=1, max_size=8), st.sampled_from([".", ","]))
def test_a_column_is_read_at_once_as_each_of_its_cells_alone(texts, decimal):
    cells, form = cells_of(texts), NumberForm(decimal, 0.1, -3.0)
    assert isinstance(cells, ArrowCells)

    def alone(cell):
        value = form.number(cell)
        return -1e9 if value is None else value

    def along(values):
        return values, np.ones(len(values), np.bool_)

    at_once = read_cells(cells, Parser(alone, along, (), form), 0.0)
    assert at_once.values.tolist() == [alone(cell) for cell in texts]


def test_numbers_that_are_typed_have_no_mark():
    assert COMMA.numbers(cells_of([1.5, None])).tolist()[0] == 1.5
    assert COMMA.numbers(cells_of([True])) is None


def test_a_unit_is_a_factor_and_then_an_offset():
    form = NumberForm(".", 0.5, -10.0)
    assert form.number("8") == -6.0
    assert form.raw("8") == 8.0
    assert not form.plain
    assert PLAIN.plain
    assert not NumberForm(offset=1.0).plain
    assert not NumberForm(factor=2.0).plain
    assert form.number("x") is None


def test_marks_of_absence_are_what_stands_in_the_file():
    absence = Absence(("-9", "8,0", "."), (7,))
    form = NumberForm(",", 2.0)
    for cell in ("-9", "-9,0", "8,0", ".", "7", "7,0", 7, None, -9):
        assert form.covers(absence, cell), cell
    for cell in ("8", "3,5", "-4,5", "x"):
        assert not form.covers(absence, cell), cell
    assert form.apart(absence) >= {-9.0, 7.0, 8.0}


def test_how_a_number_is_written_is_said():
    assert PLAIN.written == "1.5"
    assert COMMA.written == "1,5"
    assert NumberForm(",", 2.0).written == "1,5 in the unit that the policy converts (spelling.units)"
