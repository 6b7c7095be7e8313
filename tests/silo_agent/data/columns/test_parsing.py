import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import DomainColumn, Label, NumericFeature
from silo_agent.data.cells import OwnCodes, number
from silo_agent.data.columns.arrow_cells import ArrowCells, cells_of
from silo_agent.data.columns.parsers import domain_parser, feature_parser, outcome_parser, scaled_fill
from silo_agent.data.columns.parsing import Parser, read_cells
from silo_agent.data.errors import Unfit
from support.tables import make_schema

SCHEMA = make_schema(missing=("", "-9", "1e1"))
FEATURES = [
    NumericFeature(
        column="x", kind="number", minimum=0.1, maximum=77.7, scale=scale, outside=outside, fill=fill, missing=(3,)
    )
    for scale in ("linear", "log", "log1p")
    for outside in ("drop", "clip")
    for fill in (None, 5.0)
]
PARSERS = [
    *(feature_parser(feature, SCHEMA) for feature in FEATURES),
    domain_parser(DomainColumn(column="x", edges=(3.0, 40.0), names=("a", "b", "c")), ("", "-9")),
    *(
        outcome_parser(Label(column="x", minimum=0.1, maximum=77.7, scale=scale))
        for scale in ("linear", "log", "log1p")
    ),
]
NUMBERS = (
    st.floats()
    | st.floats(0, 100)
    | st.integers(-10, 100).map(float)
    | st.sampled_from([0.1, 77.7, 3.0, -9.0, 10.0, 40.0])
)


@given(st.lists(NUMBERS), st.sampled_from(PARSERS), st.booleans())
def test_many_numbers_at_once_have_the_bits_that_each_has_alone(values, parser, as_texts):
    cells = cells_of([repr(value) for value in values] if as_texts else values)
    instead = 0 if parser in PARSERS[len(FEATURES) :] else 0.0
    found = read_cells(cells, parser, instead)
    expected, unfit = [], []
    for place, cell in enumerate(cells):
        try:
            expected.append(parser.parse(cell))
        except Unfit as reason:
            expected.append(instead)
            unfit.append((place, reason.expected))
    assert repr(found.values.tolist()) == repr(expected)
    assert list(zip(found.unfit.tolist(), (reason.expected for reason in found.reasons), strict=True)) == unfit


def test_plain_numbers_are_read_along_and_all_others_once_each():
    """Also those that a mark or a code may mean."""
    asked = []

    def parse(cell):
        asked.append(cell)
        return float(number(cell) or -1.0)

    parser = Parser(parse, lambda values: (values, values < 50.0), frozenset({7.0}))
    found = read_cells(ArrowCells(pa.array(["1", "7", "7.0", "60", "x", "x", None, "2"])), parser, 0.0)
    assert found.values.tolist() == [1.0, 7.0, 7.0, 60.0, -1.0, -1.0, -1.0, 2.0]
    assert asked == ["7", "7.0", "60", "x", None]


def test_a_column_whose_numbers_fail_together_is_read_one_by_one():
    def along(values):
        raise FloatingPointError

    found = read_cells(cells_of([1.0, 2.0, -1.0]), Parser(lambda cell: 1 / (cell + 1), along), 0.0)
    assert found.values.tolist() == [1 / 2, 1 / 3, 0.0]
    assert (found.unfit.tolist(), [str(one.found) for one in found.reasons]) == ([2], ["ZeroDivisionError"])
    assert "private" in repr(found)


def test_own_codes_stand_for_what_a_study_means_also_where_they_are_numbers():
    own = OwnCodes({"7": 70, "8.0": None, "old": 90})
    parser = Parser(lambda cell: -1.0 if cell is None else float(cell), lambda values: (values, values >= 0.0))
    spelt = parser.spelt(own.of, own.numbers)
    assert read_cells(cells_of([7, 8, 9]), spelt, 0.0).values.tolist() == [70.0, -1.0, 9.0]
    assert read_cells(cells_of(["7.0", "8", "9", "old"]), spelt, 0.0).values.tolist() == [70.0, -1.0, 9.0, 90.0]


@pytest.mark.parametrize("kind", [int, float])
def test_the_type_of_all_values_is_that_of_what_stands_in_for_the_unfit(kind):
    for cells in ([], ["1"], ["x"]):
        assert read_cells(cells, Parser(kind), kind(0)).values.dtype == np.dtype(
            {int: np.int64, float: np.float64}[kind]
        )


def test_a_fill_that_cannot_be_scaled_is_none():
    assert np.isnan([scaled_fill(feature) for feature in FEATURES]).tolist() == [
        feature.fill is None for feature in FEATURES
    ]
    hostile = NumericFeature.model_construct(minimum=-1.0, maximum=1e-300, scale="log", fill=0.0)
    assert np.isnan(scaled_fill(hostile))
