"""What is judged of the groups at each hospital."""

import numpy as np
import pytest

from bench.accuracy.choice import ChoiceGain, groups_figure

SPLITS = 10


def gains(shift, spread=0.01, *, groups=4, seed=1):
    """A hospital with several domains, of which the last one's AUC is moved."""
    rng = np.random.default_rng(seed)
    found = []
    for split in range(SPLITS):
        by = {f"d{m}": (float(spread * rng.normal()), 0.0) for m in range(groups - 1)}
        by["last"] = (shift + float(spread * rng.normal()), 0.0)
        found.append(ChoiceGain(split, "north", "mixed", 0.0, {}, {}, by))
    return found


@pytest.mark.parametrize(("shift", "met"), [(0.0, True), (-0.004, True), (-0.1, False), (0.1, True)])
def test_a_group_that_is_worse_beyond_noise_is_named(shift, met):
    found = groups_figure("law", gains(shift), 1.0)
    assert found.met is met
    assert ("north, last" in found.measured) is not met
    assert "of 4 groups" in found.name


def test_intervals_are_widened_for_overlapping_splits_and_for_the_number_of_groups():
    measured = gains(-0.012)
    assert not groups_figure("law", measured, 1.0).met
    assert groups_figure("law", measured, 3.0).met
    assert groups_figure("law", gains(-0.012, groups=4000), 1.0).met


def test_a_higher_loss_is_worse_and_a_domain_without_both_classes_is_judged_by_it():
    measured = [
        ChoiceGain(split, "north", "mixed", 0.0, {}, {}, {"a": (None, 0.05 + 0.001 * split)}) for split in range(SPLITS)
    ]
    assert not groups_figure("law", measured, 1.0).met
    better = [ChoiceGain(split, "north", "mixed", 0.0, {}, {}, {"a": (None, -0.05)}) for split in range(SPLITS)]
    assert groups_figure("law", better, 1.0).met


def test_a_group_of_one_split_has_no_interval():
    measured = [ChoiceGain(0, "north", "mixed", 0.0, {}, {}, {"a": (-0.5, 0.5)}), *gains(0.0)]
    assert groups_figure("law", measured, 1.0).met
