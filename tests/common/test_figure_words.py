"""A figure in words: a value, a bound where an error's estimate is 0, or how few patients there were."""

import pytest

from common.figure_words import told


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("auc", 0.81249, "0.812"),
        ("auc", 0.0, "0.000"),
        ("calibration", 0.0, "below 0.041"),
        ("calibration", 0.0004, "below 0.041"),
        ("calibration", 0.0006, "0.001"),
        ("mae", 0.0, "below 0.041"),
        ("mean_error", 0.0, "0.000"),
        ("calibration", None, "too few"),
    ],
)
def test_an_error_is_never_said_to_be_nothing(metric, value, said):
    assert told(metric, value, 0.0412) == said


def test_how_many_were_too_few_is_said_where_it_is_known():
    assert told("auc", None, 1.0, patients=17.4) == "too few (about 17 patients)"
    assert told("auc", None, 1.0, patients=-3.0) == "too few (about 0 patients)"
    assert told("auc", 0.5, 1.0, patients=17.4) == "0.500"


def test_digits_are_the_pages():
    assert told("mae", 12.3456, 20.0, form=".4g") == "12.35"
    assert told("mae", 0.0, 20.0, form=".4g") == "below 20"
    assert told("mae", 0.00012, 20.0, form=".4g") == "0.00012"
