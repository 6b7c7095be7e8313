import numpy as np
import pytest

from policies.documents.study import Label
from policies.plan.families import TARGET_STEPS
from silo_agent.data.errors import Unfit
from silo_agent.data.outcome import ends, half_range, in_unit, place_parser, scaled_back, targets

DAYS = Label(column="days", minimum=1, maximum=100)
DOSE = Label(column="dose", minimum=1, maximum=100, scale="log")
VISITS = Label(column="visits", minimum=0, maximum=99, scale="log1p")
EVERY = pytest.mark.parametrize("label", [DAYS, DOSE, VISITS])


@EVERY
def test_a_number_has_the_nearest_place_on_its_scale_and_comes_back_in_its_unit(label):
    place = place_parser(label).parse
    assert [place(label.minimum), place(str(label.maximum))] == [0, TARGET_STEPS]
    values = np.random.default_rng(0).uniform(label.minimum, label.maximum, 200)
    found = targets(np.array([place(value) for value in values.tolist()]))
    assert np.array_equal(found, found.astype(np.float32)), "float32 holds every place"
    again = in_unit(label, found)
    assert np.abs(scaled_back(label, values) - found).max() <= 1.001 / TARGET_STEPS
    np.testing.assert_allclose(again, values, rtol=1e-4)
    assert again.min() >= label.minimum
    assert in_unit(label, np.array([1.0])) == label.maximum


@EVERY
@pytest.mark.parametrize("cell", ["", None, "-0.5", "100.01", "yes", "nan", True])
def test_other_cells_are_unfit(label, cell):
    with pytest.raises(Unfit) as caught:
        place_parser(label).parse(cell)
    assert f"a number in [{label.minimum:g}, {label.maximum:g}]" in caught.value.expected


def test_the_middle_is_that_of_the_scale():
    middle = np.zeros(1)
    assert [in_unit(label, middle).item() for label in (DAYS, DOSE, VISITS)] == pytest.approx([50.5, 10, 9])
    assert (half_range(DAYS), half_range(DOSE)) == pytest.approx((49.5, np.log(10)))
    assert ends(VISITS) == pytest.approx((0, np.log(100)))


def test_classes_have_no_range():
    with pytest.raises(ValueError, match="classes"):
        half_range(Label(column="ill", positive=[1], negative=[0]))
