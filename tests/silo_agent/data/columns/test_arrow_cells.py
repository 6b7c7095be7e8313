"""A column in Arrow's memory says of each cell what the cell says alone."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import MAX_TEXT, number
from silo_agent.data.columns import arrow_cells
from silo_agent.data.columns.arrow_cells import ArrowCells, cells_of, decoded, distinct, joined, taken

TEXTS = st.text(st.sampled_from("0123456789+-.eE_ \t\x1c\u00a0naif٣"), max_size=6) | st.floats().map(str)
COLUMNS = st.one_of(
    st.lists(st.none() | TEXTS),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.none() | st.floats()),
    st.lists(st.none() | st.booleans()),
    st.lists(st.none()),
    st.lists(st.none() | st.integers() | st.floats() | TEXTS | st.booleans()),
)


def looks(cells):
    return [(type(cell), repr(cell)) for cell in cells]


@given(COLUMNS)
def test_cells_stay_what_they_are(values):
    cells = cells_of(values)
    assert looks(cells) == looks(values)
    kinds = {type(value) for value in values} - {type(None)}
    fits = all(not isinstance(value, int) or abs(value) < 2**63 for value in values)
    assert isinstance(cells, ArrowCells) or len(kinds) > 1 or not fits
    places = np.arange(len(values))[::2]
    assert looks(taken(cells, places)) == looks(values[::2])
    assert looks(joined([cells, cells_of([])])) == looks(values)
    assert looks(joined([cells, cells])) == looks(values * 2)


@given(COLUMNS)
def test_the_different_cells_and_their_places_give_the_column(values):
    codes, different = distinct(cells_of(values))
    assert len(codes) == len(values)
    # Zeros of both signs are one number, and may be one cell.
    assert [repr(different[code]).replace("-0.0", "0.0") for code in codes] == [
        repr(value).replace("-0.0", "0.0") for value in values
    ]
    assert len(set(looks(different))) == len(different) or "nan" in map(str, different), "NaN is each its own"


@given(COLUMNS)
def test_a_number_is_what_the_cell_alone_is(values):
    cells = cells_of(values)
    if not isinstance(cells, ArrowCells):
        return
    found = cells.numbers()
    alone = [number(value) for value in values]
    if found is None:
        assert not [value for value in alone if value is not None]
        return
    assert len(found) == len(values)
    for told, value in zip(found.tolist(), alone, strict=True):
        # What no cast can tell is left to be read by itself, and is never another number.
        assert (math.isfinite(told) and repr(told) == repr(value)) or not math.isfinite(told)


def test_plain_numbers_among_texts_are_all_told(monkeypatch):
    """Else each is read by itself, which takes a hundred times as long."""
    texts = [f"{place / 8}" for place in range(1000)]
    assert np.isfinite(ArrowCells(pa.array(texts)).numbers()).all()
    among = [*texts, "NA", "", "?"] * 2
    asked = []
    monkeypatch.setattr(arrow_cells, "number", lambda text: asked.append(text) or number(text))
    found = ArrowCells(pa.array([f" {text}" for text in among])).numbers()
    assert np.isfinite(found).sum() == 2000
    assert len(asked) < 100


def test_types_that_have_no_form_are_refused():
    with pytest.raises(TypeError, match="binary"):
        ArrowCells(pa.array([b"x"]))
    assert "private" in repr(ArrowCells(pa.array(["secret"])))


def test_a_part_of_a_column_is_a_column():
    cells = ArrowCells(pa.array([1, None, 3], pa.int16()))
    assert (cells[0], list(cells[1:]), len(cells[1:])) == (1, [None, 3], 2)


def test_cells_of_no_type_and_parts_of_no_column():
    nothing = ArrowCells(pa.nulls(2))
    codes, different = nothing.distinct()
    assert (codes.tolist(), different, nothing.numbers()) == ([0, 0], [None], None)
    assert ArrowCells(pa.nulls(0)).distinct()[1] == []
    assert list(joined([])) == []


def test_a_whole_column_of_texts_may_have_more_than_two_gibibytes():
    part = ArrowCells(pa.array(["a", None], pa.string()))
    assert joined([part, part]).array.equals(pa.array(["a", None] * 2, pa.large_string()))


def test_values_without_a_form_are_told_by_their_place(monkeypatch):
    for values, cells, undecoded in (
        (["a", "x" * (MAX_TEXT + 1), "c"], ["a", None, "c"], [1]),
        (["a", "\udcff"], ["a", None], [1]),
        ([b"x", 2, "y" * MAX_TEXT], ["b'x'", 2, "y" * MAX_TEXT], []),
    ):
        found, places = decoded(values)
        assert (list(found), places) == (cells, undecoded)
    monkeypatch.setattr(arrow_cells, "plain", None)
    for values in (["a", None, "é"], [1, 2.5, True, None], [None]):
        found, places = decoded(values)
        assert (list(found), places) == (values, []), "without a look at each of them"
