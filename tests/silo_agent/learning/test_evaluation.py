import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from silo_agent.learning.evaluation import auc, auc_from_histograms, score_histograms

M, BINS = 2, 10


def cohort(seed, n, shift=1.5):
    r = np.random.default_rng(seed)
    y = (r.random(n) < 0.25).astype(np.float32)
    d = r.integers(0, M, n)
    return expit(r.normal(size=n) + shift * y - 2), y, d


def histograms(p, y, d, patients=None):
    patients = np.arange(len(y)) if patients is None else patients
    return score_histograms(p, y, d, patients, count=M, bins=BINS)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1), st.integers(0, M - 1)), min_size=1, max_size=12))
def test_one_patient_adds_at_most_one_in_l2_and_one_in_all(rows):
    p, y, d = (np.array(column) for column in zip(*rows, strict=True))
    sums = histograms(p, y.astype(np.float32), d, np.zeros(len(rows), np.int64))
    assert sums.shape == (M * 2 * BINS,)
    assert np.linalg.norm(sums) <= 1 + 1e-12
    assert sums.sum() == pytest.approx(1)


def test_removing_a_patient_removes_just_its_share():
    p, y, d = cohort(0, 60)
    patients = np.unique(np.random.default_rng(1).integers(0, 20, 60), return_inverse=True)[1]
    gone = patients == 4
    rest = np.unique(patients[~gone], return_inverse=True)[1]
    moved = histograms(p, y, d, patients) - histograms(p[~gone], y[~gone], d[~gone], rest)
    np.testing.assert_allclose(moved, histograms(p[gone], y[gone], d[gone], np.zeros(gone.sum(), np.int64)))


def test_odd_probabilities_and_nobody_at_all_have_their_place():
    sums = histograms(np.array([0.0, 1.0, np.nan, -3.0, 7.0]), np.zeros(5, np.float32), np.zeros(5, np.int64))
    cells = sums.reshape(M, 2, BINS)[0, 0]
    assert (cells[0], cells[-1], cells.sum()) == (2, 2, 5)
    assert histograms(np.zeros(0), np.zeros(0, np.float32), np.zeros(0, np.int64)).tolist() == [0] * 40


def test_exact_auc_is_the_share_of_ordered_pairs():
    scores, labels = np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 1, 0, 1], np.float32)
    assert auc(scores, labels) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert auc(scores, np.zeros(4, np.float32)) is None
    assert auc(scores[:0], labels[:0]) is None


def test_without_noise_the_binned_auc_is_near_the_exact_one_and_inside_its_interval():
    p, y, d = cohort(2, 20_000)
    results = auc_from_histograms(histograms(p, y, d), 0.0, count=M, bins=BINS, rng=np.random.default_rng(0))
    for m, result in enumerate(results):
        exact = auc(p[d == m], y[d == m])
        assert result.auc == pytest.approx(exact, abs=0.01)
        assert result.low < result.auc < result.high
        assert result.high - result.low < 0.04


def test_the_interval_covers_the_truth_under_noise_and_sampling():
    truth = auc(*cohort(0, 400_000)[:2])
    covered = total = 0
    for seed in range(150):
        r = np.random.default_rng(1000 + seed)
        p, y, d = cohort(5000 + seed, 1200)
        noised = histograms(p, y, d) + r.normal(0, 4.0, M * 2 * BINS)
        for result in auc_from_histograms(noised, 4.0, count=M, bins=BINS, rng=r):
            covered += result.low <= truth <= result.high
            total += 1
            assert result.low <= result.auc <= result.high
    assert covered / total > 0.9


def test_an_absent_domain_or_class_gives_no_number_instead_of_noise():
    p, y, d = cohort(3, 4000)
    only = d == 0
    cells = histograms(p[only], y[only], d[only]) + np.random.default_rng(0).normal(0, 3, 40)
    present, absent = auc_from_histograms(cells, 3.0, count=M, bins=BINS, rng=np.random.default_rng(0))
    assert present.auc is not None
    assert (absent.auc, absent.low, absent.high) == (None, 0.0, 1.0)
    negative = histograms(p, np.zeros(4000, np.float32), d)
    results = auc_from_histograms(negative, 0.0, count=M, bins=BINS, rng=np.random.default_rng(0))
    assert [result.auc for result in results] == [None, None]
