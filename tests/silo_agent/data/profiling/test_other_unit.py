"""Numbers in another unit than the study's are told by quantiles, with the factor that would mend them."""

import numpy as np
import pytest

from policies.documents.study import NumericFeature
from silo_agent.data.profiling.other_unit import looks_like_another

RANGES = {
    "creatinine, mg/dl": (0.2, 15.0, "linear"),
    "glucose, mg/dl": (40.0, 600.0, "log"),
    "weight, kg": (30.0, 250.0, "linear"),
    "height, cm": (120.0, 220.0, "linear"),
    "temperature, C": (33.0, 43.0, "linear"),
    "age, years": (18.0, 110.0, "linear"),
    "share": (0.0, 1.0, "linear"),
}


def feature(name):
    low, high, scale = RANGES[name]
    return NumericFeature(column="x", kind="number", minimum=low, maximum=high, scale=scale)


def drawn(low, high):
    """Numbers as a hospital has them: most in the middle."""
    return np.random.default_rng(7).triangular(low, (low + high) / 2, high, 400)


@pytest.mark.parametrize(
    ("name", "low", "high", "told"),
    [
        ("creatinine, mg/dl", 50, 400, "factor 1/88.42, the reverse"),
        ("glucose, mg/dl", 3.5, 20, "factor 18.016, as of mmol/l"),
        ("height, cm", 1.4, 2.0, "factor 100, as of a share"),
        ("height, cm", 55, 80, "factor 2.54, as of inches"),
        ("temperature, C", 95, 104, "factor 0.5556, offset -17.78, as of Fahrenheit for Celsius"),
        ("age, years", 10_000, 32_000, "factor 1/365.25"),
        ("share", 5, 95, "factor 1/100"),
    ],
)
def test_another_unit_is_told_with_what_makes_the_studys_of_it(name, low, high, told):
    said = looks_like_another(drawn(low, high), feature(name))
    assert "this looks like another unit" in said
    assert told in said
    assert "spelling.units" in said


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("creatinine, mg/dl", 0.4, 4.0),
        ("glucose, mg/dl", 60, 300),
        ("weight, kg", 40, 140),
        ("height, cm", 140, 200),
        ("temperature, C", 35, 41),
        ("age, years", 18, 95),
        ("share", 0, 0.4),
    ],
)
def test_numbers_in_the_studys_unit_are_not_suspected(name, low, high):
    assert looks_like_another(drawn(low, high), feature(name)) == ""


def test_few_numbers_and_none_say_nothing():
    assert looks_like_another(np.full(19, 1e9), feature("share")) == ""
    assert looks_like_another(np.full(400, np.nan), feature("share")) == ""
    assert looks_like_another(np.full(20, 1e9), feature("share")).endswith("this looks like another unit")


def test_numbers_that_crowd_at_an_end_of_the_range_are_suspected():
    wide = NumericFeature(column="x", kind="number", minimum=0.0, maximum=1000.0)
    assert looks_like_another(drawn(200, 900), wide) == ""
    said = looks_like_another(drawn(0.3, 0.9), wide)
    assert said.startswith("100% of the numbers lie in the study's range 0 to 1000, half of them between 0.5")
    assert "factor 1000, as of g for mg" in said
    assert "factor 10," not in said
