import numpy as np
import pytest

from policies.documents.study import Label
from policies.plan.families import TARGET_STEPS
from silo_agent.data.outcome import half_range, in_unit, on_scale, place_of, targets

DAYS = Label(column="days", minimum=1, maximum=100)
DOSE = Label(column="dose", minimum=1, maximum=100, scale="log")


def test_places_are_exact_at_the_ends_and_in_the_middle_and_nearest_between():
    places = np.array([place_of(value) for value in (-1.0, 0.0, 1.0, -1.0 - 1e-9, 1.0 + 1e-9)])
    assert places.tolist() == [0, TARGET_STEPS // 2, TARGET_STEPS, 0, TARGET_STEPS]
    assert targets(places)[:3].tolist() == [-1.0, 0.0, 1.0]
    values = np.random.default_rng(0).uniform(-1, 1, 200)
    found = targets(np.array([place_of(value) for value in values]))
    assert np.abs(found - values).max() <= 1 / TARGET_STEPS
    assert np.array_equal(found, found.astype(np.float32)), "float32 holds every place"


def test_values_come_back_in_the_columns_unit():
    scaled = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(in_unit(DAYS, scaled), [1, 50.5, 100])
    np.testing.assert_allclose(in_unit(DOSE, scaled), [1, 10, 100])
    np.testing.assert_allclose(on_scale(DOSE, scaled), np.log([1, 10, 100]), atol=1e-12)
    assert in_unit(DOSE, scaled).max() <= 100
    assert (half_range(DAYS), half_range(DOSE)) == pytest.approx((49.5, np.log(10)))


def test_classes_have_no_range():
    with pytest.raises(ValueError, match="classes"):
        half_range(Label(column="ill", positive=[1], negative=[0]))
