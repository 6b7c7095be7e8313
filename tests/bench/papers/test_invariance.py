"""The construction of the bench, on made-up digits: what colours, marks and environments say of the outcome."""

import numpy as np
import pytest

from bench.papers.invariance import DISAGREE, EACH, MARK, SETTINGS, SILOS, TEST_DISAGREE, PlainDigits, cohorts, study


@pytest.fixture(scope="module")
def digits():
    """Images that are bright everywhere; labels as even as MNIST's."""
    rng = np.random.default_rng(0)
    return PlainDigits(np.ones((60_000, 28, 28), np.float32), rng.integers(0, 10, 60_000).astype(np.uint8))


def shares(records):
    """How often the first colour agrees with the outcome, by environment."""
    red = records.inputs[:, :196].sum(axis=1) > records.inputs[:, 196:392].sum(axis=1)
    agrees = red == (records.labels == 1)
    return [agrees[records.environments == e].mean() for e in np.unique(records.environments)]


def test_colours_agree_as_often_as_the_environment_says_and_seldom_in_the_test(digits):
    found = cohorts(digits, SETTINGS[0], 3, grey=False)
    assert list(found.silos) == list(SILOS)
    for silo in found.silos.values():
        assert len(silo.training) == EACH
        assert shares(silo.training) == pytest.approx([1 - e for e in DISAGREE], abs=0.03)
        assert shares(silo.held_out) == pytest.approx([1 - TEST_DISAGREE], abs=0.03)
        assert not silo.training.inputs[:, 392:].any()


def test_a_mark_agrees_at_half_of_the_silos_and_disagrees_at_the_others_everywhere(digits):
    found = cohorts(digits, SETTINGS[2], 3, grey=False)
    for place, silo in enumerate(found.silos.values()):
        for records in (silo.training, silo.held_out):
            agrees = np.mean((records.inputs[:, 392] > 0) == (records.labels == 1))
            assert agrees == pytest.approx(1 - MARK if place % 2 else MARK, abs=0.03)


def test_a_grey_digit_says_nothing_by_its_colour_and_the_study_fits_the_bounds(digits):
    records = cohorts(digits, SETTINGS[0], 3, grey=True).silos["east"].training
    np.testing.assert_array_equal(records.inputs[:, :196], records.inputs[:, 196:392])
    assert records.inputs.shape[1] == study(3).data.inputs
