"""Runs as a table and as plain data."""

import math

import pytest

from deploy.local.simulate.summary import _plain as plain
from deploy.local.simulate.summary import spread


@pytest.mark.parametrize(
    ("values", "shown"),
    [([0.5], "0.500"), ([0.5, 0.7], "0.600 +- 0.141"), ([None, math.nan], "-"), ([0.5, None], "0.500")],
)
def test_a_spread_has_the_mean_and_the_deviation_of_what_is_known(values, shown):
    assert spread(values) == shown


def test_plain_data_hold_no_number_that_json_does_not_know():
    assert plain({"a": [1.0, math.inf, (math.nan, "x")]}) == {"a": [1.0, None, [None, "x"]]}
