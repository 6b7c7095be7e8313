import numpy as np
import pytest

from silo_agent.data.profiling import leaks

PATIENTS = np.arange(400)


def labels_of(rng):
    return rng.integers(0, 2, len(PATIENTS))


def test_a_column_that_repeats_the_label_gives_it_away():
    labels = labels_of(np.random.default_rng(1))
    assert leaks.gives_away(labels, labels, PATIENTS) == 1.0
    assert leaks.gives_away(1 - labels, labels, PATIENTS) == 1.0


def test_a_column_that_is_recorded_of_the_ill_only_gives_the_label_away():
    rng = np.random.default_rng(2)
    labels = labels_of(rng)
    parts = leaks.parted(np.where(labels == 1, rng.normal(size=400), np.nan))
    assert leaks.gives_away(parts, labels, PATIENTS) >= leaks.LIMIT


@pytest.mark.parametrize("seed", range(20))
def test_a_column_of_chance_gives_nothing_away_however_many_codes_it_has(seed):
    rng = np.random.default_rng(seed)
    labels = labels_of(rng)
    for codes in (2, 60, 400):
        assert leaks.gives_away(rng.integers(0, codes, 400), labels, PATIENTS) < 0.6
    assert leaks.gives_away(leaks.parted(rng.normal(size=400)), labels, PATIENTS) < 0.6


def test_an_identifier_gives_nothing_away_because_no_record_scores_itself():
    labels = labels_of(np.random.default_rng(3))
    assert leaks.gives_away(PATIENTS, labels, PATIENTS) <= 0.5


def test_an_honest_strong_column_stays_below_the_limit():
    rng = np.random.default_rng(4)
    labels = labels_of(rng)
    assert 0.7 < leaks.gives_away(leaks.parted(rng.normal(size=400) + 1.5 * labels), labels, PATIENTS) < leaks.LIMIT


def test_the_lower_end_is_hanley_and_mcneils():
    patients = np.arange(100)  # the half is the last bit, the label the one before
    labels = patients // 2 % 2
    parts = np.where(patients // 4 % 5 == 0, 1 - labels, labels)
    area, n = 0.8, 50
    variance = (area * (1 - area) + (n - 1) * (area / (2 - area) - area**2 + 2 * area**2 / (1 + area) - area**2)) / n**2
    assert leaks.gives_away(parts, labels, patients) == pytest.approx(area - 2.326 * variance**0.5)


def test_too_few_patients_of_a_class_are_not_looked_at():
    labels = np.zeros(400, np.int64)
    labels[:18] = 1
    assert leaks.gives_away(labels, labels, np.arange(400)) == 1.0
    assert leaks.gives_away(labels, labels, np.arange(400) // 2) is None
    assert leaks.gives_away(labels[:0], labels[:0], PATIENTS[:0]) is None


def test_any_class_may_be_the_one_that_is_given_away():
    labels = np.random.default_rng(5).integers(0, 3, 400)
    assert leaks.gives_away((labels == 2).astype(np.int64), labels, PATIENTS) == 1.0


def test_few_numbers_stand_for_themselves_and_many_are_cut_at_quantiles():
    assert leaks.parted(np.array([7.0, np.nan, 3.0, 7.0])).tolist() == [1, -1, 0, 1]
    parts = leaks.parted(np.arange(3200.0))
    assert np.bincount(parts).tolist() == [100] * leaks.PARTS


def test_a_number_becomes_two_classes():
    assert leaks.above_median(np.array([1, 5, 9, 2])).tolist() == [0, 1, 1, 0]
    assert len(leaks.above_median(np.zeros(0, np.int64))) == 0
