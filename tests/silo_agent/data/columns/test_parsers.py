import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import CategoryFeature, DomainColumn, Label, NumericFeature
from silo_agent.data.columns.arrow_cells import cells_of
from silo_agent.data.columns.number_forms import PLAIN
from silo_agent.data.columns.parsers import domain_parser, feature_parser, outcome_parser, patient_parser, scaled_fill
from silo_agent.data.columns.parsing import read_cells
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
    *(feature_parser(feature, SCHEMA)(PLAIN) for feature in FEATURES),
    domain_parser(DomainColumn(column="x", edges=(3.0, 40.0), names=("a", "b", "c")), ("", "-9"))(PLAIN),
    *(
        outcome_parser(Label(column="x", minimum=0.1, maximum=77.7, scale=scale))(PLAIN)
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


def test_a_fill_that_cannot_be_scaled_is_none():
    assert np.isnan([scaled_fill(feature) for feature in FEATURES]).tolist() == [
        feature.fill is None for feature in FEATURES
    ]
    hostile = NumericFeature.model_construct(minimum=-1.0, maximum=1e-300, scale="log", fill=0.0)
    assert np.isnan(scaled_fill(hostile))


def test_numbers_in_the_range_are_read_along():
    """Else each is read by itself, which gives the same and takes a hundred times as long."""
    for parser in PARSERS:
        values = np.array([0.1, 4.0, 5.5, 77.7])
        _, fits = parser.along(values)
        assert fits.all()


def refused(parse, cell):
    with pytest.raises(Unfit) as caught:
        parse(cell)
    return caught.value.expected


def test_a_class_is_the_place_of_its_codes():
    parse = outcome_parser(Label(column="x", positive=(1, "yes"), negative=(0,)))(PLAIN).parse
    assert [parse(cell) for cell in (1, "1.0", "yes", 0, "0")] == [1, 1, 1, 0, 0]
    assert refused(parse, "2") == "one of 1, 'yes' (yes) or one of 0 (no)"
    several = outcome_parser(Label(column="x", classes=(("a",), ("b",), ("c",))))(PLAIN).parse
    assert [several(cell) for cell in "abc"] == [0, 1, 2]
    assert refused(several, "d").startswith("one of 'a' (class 0); ")


def test_a_patient_is_called_as_the_cell_reads():
    parse = patient_parser(("", "-9", "none"))
    cells = ["p1", " p1 ", "a-7", "007", "7.0", 7, 7.0, "3.10", "٣"]
    assert [parse(cell) for cell in cells] == ["p1", "p1", "a-7", "007", "7", "7", "7", "3.10", "٣"]
    for cell in ("", "-9", "none", " none ", -9, "-9.0", None):
        assert refused(parse, cell).startswith("the patient's identifier"), cell
    for cell in (2.0**53, "\udcff"):
        assert refused(parse, cell).startswith("an identifier that is text"), cell


def test_a_category_is_the_place_of_its_code_or_the_last_one():
    feature = CategoryFeature(column="x", kind="category", values=("a", 7), optional=True, missing=("z",))
    parser = feature_parser(feature, SCHEMA)(PLAIN)
    assert parser.along is None
    assert [parser.parse(cell) for cell in ("a", 7, "7.0", "z", "", None)] == [0, 1, 1, 2, 2, 2]
    assert refused(parser.parse, "b") == "one of 'a', 7, or nothing"
    assert np.isnan(scaled_fill(feature))
