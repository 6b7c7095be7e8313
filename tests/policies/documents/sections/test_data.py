"""Under every schema that is accepted, a cell becomes a finite input in [-1, 1] or makes its own record unfit."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies.documents import bounds
from policies.documents.sections.data import FINEST, LEAST, MOST, DataSchema, DomainColumn, Image, Label, NumericFeature
from silo_agent.data.images import Images, PixelScale
from silo_agent.data.reader import read_records

getcontext().prec = 60
EXACT = 2.0**-23
"""Largest difference of an input from the exact value."""
LABEL = {"column": "y", "positive": [1], "negative": [0]}
EDGES = [{"column": "band", "edges": [-MOST, 0.0, LEAST, MOST], "names": ["a", "b", "c", "d", "e"]}]
ENDS = (-MOST, -1.0, -LEAST, 0.0, LEAST, 2 * LEAST, 1.0, MOST)
ODD_CELLS = (
    "",
    "?",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1e400",
    "1e-400",
    "9" * 5000,
    "1,5",
    "0x1p3",
    "true",
    "-0.0",
    "1e308",
)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"column": "ward"}, "either values or edges"),
        ({"column": "ward", "values": ["a", "b"], "edges": [1.0]}, "either values or edges"),
        ({"column": "ward", "values": ["a"]}, "at least two values"),
        ({"column": "year", "edges": [2020, 2010]}, "edges must increase"),
        ({"column": "y", "values": [0, 1]}, "'y' must not be the label too"),
        ({"column": "x", "values": [0, 1]}, "'x' must not be a feature too"),
        ({"column": "band", "values": [0, 1]}, "'band' must not be a domain's factor too"),
        ({"column": "id", "values": [0, 1]}, "'id' must not be the patient too"),
    ],
)
def test_an_environment_is_a_column_of_its_own_with_two_values_or_more(changes, says):
    feature = {"column": "x", "kind": "number", "minimum": 0, "maximum": 1}
    schema = {"patient": "id", "label": LABEL, "domain": EDGES, "features": [feature], "environment": changes}
    with pytest.raises(ValidationError, match=says):
        DataSchema.model_validate(schema)


NUMBER = {"column": "x", "kind": "number", "minimum": 1, "maximum": 2}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"minimum": 2}, "minimum 2.0 must lie below maximum 2.0"),
        ({"minimum": 3}, "minimum 3.0 must lie below maximum 2.0"),
        ({"scale": "log", "minimum": 0}, "scale log needs a minimum above 0"),
        ({"scale": "log", "minimum": -1}, "scale log needs a minimum above 0"),
        ({"scale": "log1p", "minimum": -1e-9}, "scale log1p needs a minimum of at least 0"),
        ({"fill": 0.5}, r"fill 0.5 must lie in \[1.0, 2.0\]"),
        ({"fill": 2.5}, r"fill 2.5 must lie in \[1.0, 2.0\]"),
    ],
)
def test_a_number_without_a_range_on_its_scale_is_refused_and_a_stored_one_too(changes, says):
    for context in (None, bounds.STORED):
        with pytest.raises(ValidationError, match=says):
            NumericFeature.model_validate(NUMBER | changes, context=context)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"minimum": 2 - 1.9e-6}, "are closer than 2e-06, so rounding would blur"),
        ({"scale": "log", "minimum": LEAST / 2}, "minimum 5e-13 is below 1e-12, the least for scale log"),
    ],
)
def test_a_number_whose_range_float32_cannot_tell_apart_is_read_only_if_it_is_stored(changes, says):
    with pytest.raises(ValidationError, match=says):
        NumericFeature.model_validate(NUMBER | changes)
    stored = NumericFeature.model_validate(NUMBER | changes, context=bounds.STORED)
    assert stored.minimum == changes["minimum"]


@pytest.mark.parametrize(
    "changes",
    [
        {"minimum": 2 - 2.1e-6},
        {"minimum": 0},
        {"minimum": -2},
        {"scale": "log", "minimum": LEAST},
        {"scale": "log1p", "minimum": 0},
        {"scale": "log1p", "minimum": LEAST / 2},
        {"fill": 1},
        {"fill": 2},
    ],
)
def test_a_number_may_lie_at_the_ends_of_what_is_allowed(changes):
    feature = NumericFeature.model_validate(NUMBER | changes)
    assert feature.model_dump(include=set(changes)) == changes


def test_a_record_is_read_from_features_or_an_image_or_both():
    scan = {"column": "scan", "height": 8, "width": 8}
    whole = {"label": LABEL, "domain": EDGES}
    for parts, inputs in (
        ({"features": [NUMBER]}, 1),
        ({"image": scan}, 0),
        ({"features": [NUMBER], "image": scan}, 1),
    ):
        assert DataSchema.model_validate(whole | parts).inputs == inputs
    with pytest.raises(ValidationError, match="give features, an image, or both"):
        DataSchema.model_validate(whole)


def numbers():
    return st.one_of(st.sampled_from(ENDS), st.floats(-MOST, MOST, allow_nan=False), st.floats(LEAST, 1e-6))


@st.composite
def ranges(draw):
    """A range that a study may state: often as narrow as allowed, and often at the ends of what is allowed."""
    low = draw(numbers())
    least = max(LEAST, FINEST * abs(low))
    high = low + draw(st.one_of(st.sampled_from([least, 1.000001 * least, 2 * least]), st.floats(least, 2 * MOST)))
    return low, high


@st.composite
def features(draw):
    low, high = draw(ranges())
    scale, outside = draw(st.sampled_from(["linear", "log", "log1p"])), draw(st.sampled_from(["drop", "clip"]))
    fill = draw(st.sampled_from([None, low, high]))
    try:
        return NumericFeature(
            column="x",
            kind="number",
            minimum=low,
            maximum=high,
            scale=scale,
            outside=outside,
            missing=["?"],
            fill=fill,
        )
    except ValidationError:
        return None


def cells_of(low, high):
    inside = st.floats(low, high)
    near = st.sampled_from([low, high, math.nextafter(low, math.inf), math.nextafter(high, -math.inf)])
    beyond = st.sampled_from(
        [math.nextafter(low, -math.inf), math.nextafter(high, math.inf), -1.7e308, 1.7e308, 5e-324]
    )
    return st.one_of(st.one_of(inside, near, beyond).map(repr), st.sampled_from(ODD_CELLS))


def exact(feature, value):
    """The input that a value should become, computed with 60 digits."""
    if feature.outside == "clip":
        value = min(max(value, feature.minimum), feature.maximum)
    v, low, high = (Decimal(number) for number in (value, feature.minimum, feature.maximum))
    if feature.scale == "log":
        v, low, high = v.ln(), low.ln(), high.ln()
    if feature.scale == "log1p":
        v, low, high = ((1 + number).ln() for number in (v, low, high))
    return 2 * (v - low) / (high - low) - 1


def fits(feature, cell):
    try:
        if not cell.strip("-").isascii() or "x" in cell:
            return False
        value = float(cell)
        return math.isfinite(value) and (feature.outside == "clip" or feature.minimum <= value <= feature.maximum)
    except ValueError:
        return False


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_number_becomes_its_exact_place_in_the_range_or_makes_its_record_unfit(data, tmp_path_factory):
    feature = data.draw(features())
    if feature is None:
        return
    cells = data.draw(st.lists(cells_of(feature.minimum, feature.maximum), min_size=1, max_size=12))
    bands = data.draw(st.lists(cells_of(-1.0, 1.0), min_size=len(cells), max_size=len(cells)))
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    rows = [f'p{i},1,"{band}","{cell}"' for i, (cell, band) in enumerate(zip(cells, bands, strict=True))]
    path.write_text("\n".join(["p,y,band,x", *rows, f"last,1,0,{feature.minimum!r}"]) + "\n")
    schema = DataSchema(patient="p", label=LABEL, domain=EDGES, features=[feature.model_dump()])
    records = read_records(path, schema).records
    kept = dict(zip(records.identities, records.inputs, strict=True))
    assert kept.keys() <= {*(f"p{i}" for i in range(len(cells))), "last"}
    assert kept["last"][0] == -1.0
    for i, cell in enumerate(cells):
        band = bands[i]
        expected = fits(feature, cell)
        found = kept.get(f"p{i}")
        if found is None:
            assert not expected or not math.isfinite(_number(band))
        elif cell in ("", "?"):
            assert feature.fill is not None
            assert found.tolist() == [-1.0 if feature.fill == feature.minimum else 1.0, 1.0]
        else:
            assert expected
            assert -1.0 <= found[0] <= 1.0
            assert abs(Decimal(float(found[0])) - exact(feature, float(cell))) <= Decimal(EXACT)
    assert np.isfinite(records.inputs).all()


def _number(cell):
    try:
        return float(cell) if "x" not in cell else math.nan
    except ValueError:
        return math.nan


CODES = st.one_of(
    st.sampled_from(
        [2**53, -(2**53), float(2**53), 2**53 - 1, 0, -0.0, 1e-300, True, False, "true", " 1", "1.0", "x" * 200]
    ),
    st.integers(-(2**53), 2**53),
    st.floats(-1e15, 1e15),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=8),
)


@settings(deadline=None, max_examples=60)
@given(
    classes=st.lists(st.lists(CODES, min_size=1, max_size=4), min_size=2, max_size=2), cells=st.lists(CODES, max_size=8)
)
def test_a_code_is_found_or_its_record_is_unfit(classes, cells, tmp_path_factory):
    label = {"column": "y", "negative": classes[0], "positive": classes[1]}
    schema = DataSchema(
        label=label,
        domain=[{"column": "d", "values": classes[0], "names": [f"n{i}" for i in range(len(classes[0]))]}],
        features=[{"kind": "category", "column": "c", "values": [*classes[0], *classes[1]], "missing": classes[1]}],
    )
    path = tmp_path_factory.getbasetemp() / "codes.csv"
    quoted = ['"' + str(cell).replace('"', '""') + '"' for cell in cells]
    path.write_text("\n".join(["y,d,c", *(f"{q},{q},{q}" for q in quoted)]) + "\n", encoding="utf-8")
    records = read_records(path, schema, ["y"]).records
    assert len(records) <= len(cells)
    inputs = records.inputs[:]
    assert np.isin(inputs, (0.0, 1.0)).all()
    assert (inputs.sum(axis=1) == 1).all()


@settings(deadline=None, max_examples=50)
@given(span=ranges(), values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9))
def test_a_pixel_of_any_finite_value_becomes_its_place_in_the_range(span, values):
    low, high = span
    try:
        image = Image(column="scan", height=8, width=8, minimum=low, maximum=high)
    except ValidationError:
        return
    scale = PixelScale.of(image)
    pixels = np.array([low, high, *values], np.float64)
    levels = scale.levels(scale.fractions(pixels))
    found = Images(levels.reshape(-1, 1, 1, 1), scale.top).take(slice(None)).ravel()
    assert np.isfinite(found).all()
    assert found[:2].tolist() == [-1.0, 1.0]
    clipped = np.clip(pixels, low, high)
    wanted = [float(2 * (Decimal(v) - Decimal(low)) / (Decimal(high) - Decimal(low)) - 1) for v in clipped]
    assert np.abs(found - wanted).max() <= 1 / 65535 + 2.0**-22 if scale.top > 255 else 1 / scale.top


@pytest.mark.parametrize("make", [Label, DomainColumn, Image, NumericFeature])
def test_the_parts_of_a_schema_take_no_unknown_field(make):
    with pytest.raises(ValidationError, match="column"):
        make(unknown=1)


@pytest.mark.parametrize("end", ["minimum", "maximum"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_range_of_an_outcome_that_is_no_number_is_refused_and_a_stored_one_too(end, value):
    for context in (None, bounds.STORED):
        with pytest.raises(ValidationError, match="finite number"):
            Label.model_validate({"column": "y", "minimum": 0.0, "maximum": 1.0, end: value}, context=context)
