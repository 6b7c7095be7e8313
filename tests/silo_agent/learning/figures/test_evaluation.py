import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, softmax

from policies.plan import shapes
from silo_agent.data.records import record_weights
from silo_agent.learning.figures import evaluation
from silo_agent.learning.figures.evaluation import Estimate, Quality, auc, results_from_histograms, score_histograms
from silo_agent.learning.figures.intervals import share
from silo_agent.learning.outcomes.registry import family_of

M, BINS = 2, 10


def pair(p):
    return np.stack([1 - p, p], axis=1)


def cohort(seed, n, shift=1.5):
    r = np.random.default_rng(seed)
    y = (r.random(n) < 0.25).astype(np.int64)
    d = r.integers(0, M, n)
    return expit(r.normal(size=n) + shift * y - 2), y, d


def many(seed, n, classes=4, separation=1.5):
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    scores = r.normal(size=(n, classes))
    scores[np.arange(n), y] += separation
    return softmax(separation * scores, axis=1), y, r.integers(0, M, n)


def histograms(p, y, d, patients=None, bins=BINS):
    patients = np.arange(len(y)) if patients is None else patients
    p = p if p.ndim == 2 else pair(p)
    return score_histograms(p, y, d, record_weights(patients), family_of(p.shape[1]), count=M, bins=bins)


def quality(probabilities, labels, bins):
    return evaluation.quality(probabilities, labels, bins, family_of(probabilities.shape[1]))


def results(sums, noise_sd, *, classes=2, bins=BINS, seed=0):
    rng = np.random.default_rng(seed)
    return results_from_histograms(sums, noise_sd, family_of(classes), count=M, bins=bins, rng=rng)


# --- what leaves ------------------------------------------------------------------------------------------------------
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1), st.integers(0, M - 1)), min_size=1, max_size=12))
def test_one_patient_adds_at_most_one_in_l2_and_one_in_all(rows):
    p, y, d = (np.array(column) for column in zip(*rows, strict=True))
    sums = histograms(p, y, d, np.zeros(len(rows), np.int64))
    assert sums.shape == (M * 2 * BINS,)
    assert np.linalg.norm(sums) <= 1 + 1e-12
    assert sums.sum() == pytest.approx(1)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(3, 6))
def test_one_patient_adds_at_most_one_with_more_classes(seed, n, classes):
    p, y, d = many(seed, n, classes)
    sums = histograms(p, y, d, np.zeros(n, np.int64))
    assert sums.shape == (M * classes * 2 * BINS,)
    assert np.linalg.norm(sums) <= 1 + 1e-12
    assert sums.sum() == pytest.approx(1)


def test_removing_a_patient_removes_just_its_share():
    patients = np.unique(np.random.default_rng(1).integers(0, 20, 60), return_inverse=True)[1]
    gone = patients == 4
    rest = np.unique(patients[~gone], return_inverse=True)[1]
    for p, y, d in (cohort(0, 60), many(0, 60)):
        moved = histograms(p, y, d, patients) - histograms(p[~gone], y[~gone], d[~gone], rest)
        np.testing.assert_allclose(moved, histograms(p[gone], y[gone], d[gone], np.zeros(gone.sum(), np.int64)))


def test_odd_probabilities_and_nobody_at_all_have_their_place():
    sums = histograms(np.array([0.0, 1.0, np.nan, -3.0, 7.0]), np.zeros(5, np.int64), np.zeros(5, np.int64))
    cells = sums.reshape(M, 2, BINS)[0, 0]
    assert (cells[0], cells[-1], cells.sum()) == (2, 2, 5)
    assert histograms(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)).tolist() == [0] * 40
    odd = np.array([[np.nan] * 3, [1.0, 0.0, 0.0], [7.0, 0.0, 0.0], [1 / 3] * 3])
    cells = histograms(odd, np.zeros(4, np.int64), np.zeros(4, np.int64)).reshape(M, 3, 2, BINS)[0, 0]
    assert (cells[:, 0].sum(), cells[1, -1], cells.sum()) == (2, 2, 4)
    assert histograms(odd[:0], np.zeros(0, np.int64), np.zeros(0, np.int64)).shape == (M * 3 * 2 * BINS,)


def test_a_record_of_many_classes_lies_at_its_class_whether_it_was_right_and_its_confidence():
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.15, 0.75], [0.98, 0.01, 0.01]])
    y, d = np.array([0, 1, 0]), np.array([0, 1, 1])
    sums = score_histograms(p, y, d, np.ones(3), family_of(p.shape[1]), count=M, bins=4)
    # Edges at 1/3, 1/2, 2/3, 5/6, 1.
    expected = np.zeros((M, 3, 8))
    expected[0, 0, 4 + 1] = expected[1, 1, 2] = expected[1, 0, 4 + 3] = 1
    np.testing.assert_array_equal(sums.reshape(M, 3, 8), expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_cells_are_those_of_the_public_shape(make_study, classes):
    study = make_study(classes=classes)
    p, y, d = cohort(0, 9) if classes == 2 else many(0, 9, classes)
    sums = histograms(p, y, d, bins=study.evaluation.bins)
    assert sums.size == M * np.prod(shapes.metric_cells(study))


# --- exact ------------------------------------------------------------------------------------------------------------
def test_exact_auc_is_the_share_of_ordered_pairs():
    scores, labels = np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 1, 0, 1])
    assert auc(scores, labels) == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert auc(scores, np.zeros(4, np.int64)) is None
    assert auc(scores[:0], labels[:0]) is None


def test_exact_quality_of_two_classes():
    p, y = np.array([0.1, 0.2, 0.2, 0.5, 0.9]), np.array([0, 0, 1, 1, 0])
    found = quality(pair(p), y, 10)
    # Logits -2.2, -1.4, -1.4, 0, 2.2: bins of width 1, the two records of .2 together.
    assert found.auc == auc(p, y)
    assert (found.accuracy, found.balanced_accuracy, found.records) == (0.6, pytest.approx((2 / 3 + 1 / 2) / 2), 5)
    assert found.calibration == pytest.approx((0.1 + abs(1 - 0.4) + 0.5 + 0.9) / 5)


def test_exact_quality_of_many_classes():
    p = np.array([[0.5, 0.3, 0.2], [0.48, 0.42, 0.1], [0.1, 0.15, 0.75], [0.98, 0.01, 0.01]])
    found = quality(p, np.array([0, 1, 2, 0]), 4)
    assert found.auc is None
    assert (found.accuracy, found.balanced_accuracy, found.records) == (0.75, pytest.approx(2 / 3), 4)
    assert found.calibration == pytest.approx((0.5 + 0.48 + 0.25 + 0.02) / 4)


def test_nobody_and_an_absent_class_have_no_number():
    assert quality(np.zeros((0, 3)), np.zeros(0, np.int64), 10) == Quality(None, None, None, None, None, 0)
    one = quality(pair(np.array([0.2, 0.7])), np.array([1, 1]), 10)
    assert (one.auc, one.accuracy, one.balanced_accuracy) == (None, 0.5, None)
    assert one.calibration == pytest.approx((0.8 + 0.3) / 2)
    assert one.expected_observed == pytest.approx((0.2 + 0.7) / 2)
    assert quality(pair(np.array([0.2, 0.7])), np.array([0, 0]), 10).expected_observed is None


# --- from opened sums -------------------------------------------------------------------------------------------------
def test_without_noise_the_binned_auc_is_near_the_exact_one_and_inside_its_interval():
    p, y, d = cohort(2, 20_000)
    for m, result in enumerate(results(histograms(p, y, d), 0.0)):
        exact = auc(p[d == m], y[d == m])
        assert result.auc.value == pytest.approx(exact, abs=0.01)
        assert result.auc.low < result.auc.value < result.auc.high
        assert result.auc.high - result.auc.low < 0.04


@pytest.mark.parametrize("bins", [2, 3, 9, 10, 154])
@pytest.mark.parametrize("classes", [2, 4])
def test_without_noise_shares_and_numbers_are_exact_whatever_the_bins(classes, bins):
    p, y, d = cohort(2, 3000) if classes == 2 else many(2, 3000, classes)
    p = pair(p) if classes == 2 else p
    p[:40] = 1 / classes
    for m, result in enumerate(results(histograms(p, y, d, bins=bins), 0.0, classes=classes, bins=bins)):
        exact = quality(p[d == m], y[d == m], bins)
        assert result.accuracy.value == pytest.approx(exact.accuracy, abs=1e-12)
        assert result.balanced_accuracy.value == pytest.approx(exact.balanced_accuracy, abs=1e-12)
        assert result.patients == Estimate(exact.records, exact.records, exact.records)
        assert (result.auc is None) == (result.false_negatives is None) == (classes > 2)
        if classes == 2:
            ill = (d == m) & (y == 1)
            missed = float((p[ill, 1] < 0.5).mean())
            assert result.false_negatives.value == pytest.approx(missed, abs=1e-12)


def test_the_interval_covers_the_truth_under_noise_and_sampling():
    truth = auc(*cohort(0, 400_000)[:2])
    covered = total = 0
    for seed in range(100):
        r = np.random.default_rng(1000 + seed)
        p, y, d = cohort(5000 + seed, 1200)
        noised = histograms(p, y, d) + r.normal(0, 4.0, M * 2 * BINS)
        for result in results(noised, 4.0, seed=seed):
            covered += result.auc.low <= truth <= result.auc.high
            total += 1
            assert result.auc.low <= result.auc.value <= result.auc.high
    assert covered / total > 0.9


@pytest.mark.parametrize("noise_sd", [0.0, 0.2])
def test_the_interval_leans_to_where_the_truth_may_lie(noise_sd):
    """Of few well told patients the AUC is found far too low more often than far too high: so the truth lies above."""
    cells = np.zeros((M, 2, BINS))
    cells[0] = [[300, 200, 100, 50, 30, 20, 10, 5, 0, 0], [0, 1, 1, 1, 1, 0, 0, 1, 6, 3]]
    cells[1] = cells[0, ::-1]
    r = np.random.default_rng(9)
    drawn = r.poisson(cells[:1], (20_000, 2, BINS)) + r.normal(0, noise_sd, (20_000, 2, BINS))
    truth = evaluation._areas(cells[:1])[0]
    too_low, too_high = np.percentile(evaluation._areas(drawn) - truth, [2.5, 97.5])
    assert too_high < -too_low - 0.012
    well, badly = (result.auc for result in results(cells.ravel(), noise_sd))
    assert (well.value, badly.value) == pytest.approx((truth, 1 - truth))
    assert (well.value - well.low, badly.high - badly.value) == pytest.approx((too_high, too_high), abs=0.006)
    assert (well.high, badly.low) == (1.0, 0.0)


@pytest.mark.parametrize("classes", [2, 4])
def test_accuracies_and_numbers_are_covered_under_noise_and_sampling(classes):
    make = cohort if classes == 2 else many
    p, y, _ = make(0, 400_000)
    exact = quality(pair(p) if classes == 2 else p, y, BINS)
    missed = float((p[y == 1] < 0.5).mean()) if classes == 2 else None
    found = []
    for seed in range(60):
        p, y, d = make(5000 + seed, 1600)
        sums = histograms(p, y, d)
        noised = sums + np.random.default_rng(seed).normal(0, 3.0, sums.size)
        for m, result in enumerate(results(noised, 3.0, classes=classes)):
            pairs = (
                (result.accuracy, exact.accuracy),
                (result.balanced_accuracy, exact.balanced_accuracy),
                (result.patients, np.count_nonzero(d == m)),
                *([(result.false_negatives, missed)] if classes == 2 else []),
            )
            found.append([(e.low <= truth <= e.high, e.value - truth) for e, truth in pairs])
    covered, errors = np.array(found).mean(axis=0).T
    assert covered.min() >= 0.9
    assert np.abs(errors[:2]).max() < 0.01
    assert abs(errors[2]) < 10


@pytest.mark.parametrize("fitted", [False, True])
def test_what_is_said_of_a_share_lies_between_none_and_all(fitted):
    """Noise leads the intervals of a model that is always right, or never, beyond that."""
    cells = np.zeros((M, 2, BINS))
    cells[0, 0, 0] = cells[0, 1, -1] = cells[1, 0, -1] = cells[1, 1, 0] = 60.0
    family, rng = family_of(2), np.random.default_rng(0)
    right = family.right_cells(BINS).ravel()
    beyond = [share(own.ravel(), right, 4.0) for own in cells]
    assert beyond[0][2] > 1.0
    assert beyond[1][1] < 0.0
    ends = []
    for result in results_from_histograms(cells.ravel(), 4.0, family, count=M, bins=BINS, rng=rng, fitted=fitted):
        for found in (result.accuracy, result.balanced_accuracy, result.false_negatives, result.auc):
            assert 0.0 <= found.low <= found.value <= found.high <= 1.0
        ends.append((result.accuracy.low, result.accuracy.high, result.balanced_accuracy.high))
    assert ends[0][1:] == (1.0, 1.0)
    assert ends[1][0] == 0.0


def test_an_absent_domain_or_class_gives_no_number_instead_of_noise():
    p, y, d = cohort(3, 4000)
    only = d == 0
    cells = histograms(p[only], y[only], d[only]) + np.random.default_rng(0).normal(0, 3, 40)
    present, absent = results(cells, 3.0)
    unknown = Estimate(None, 0.0, 1.0)
    assert present.auc.value is not None
    assert (absent.auc, absent.accuracy, absent.balanced_accuracy, absent.calibration) == (unknown,) * 4
    assert absent.patients.low <= 0 <= absent.patients.high < 40
    negative = histograms(p, np.zeros(4000, np.int64), d)
    for result in results(negative, 0.0):
        assert (result.auc, result.balanced_accuracy, result.false_negatives) == (unknown,) * 3
        assert None not in (result.accuracy.value, result.calibration.value)


# --- small domains ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("classes", [2, 3])
def test_of_a_domain_below_the_smallest_nothing_is_said_but_that(classes):
    p, y, _ = cohort(1, 400) if classes == 2 else many(1, 400, classes)
    d = (np.arange(400) >= 370).astype(np.int64)
    sums = histograms(p, y, d)

    def said(smallest):
        rng = np.random.default_rng(0)
        return results_from_histograms(sums, 0.0, family_of(classes), count=M, bins=BINS, rng=rng, smallest=smallest)

    large, small = said(31)
    assert large == said(0)[0]
    assert (small.auc is None) == (small.false_negatives is None) == (classes != 2)
    assert {small.auc or small.accuracy, small.accuracy, small.balanced_accuracy, small.calibration} == {
        Estimate(None, 0.0, 1.0)
    }
    assert small.patients == Estimate(None, 0.0, 31.0)
    assert said(30) == said(0)
    assert said(30)[1].patients.value == 30
    rng = np.random.default_rng(0)
    fewer = results_from_histograms(-sums, 0.0, family_of(classes), count=M, bins=BINS, rng=rng)
    assert {each.patients for each in fewer} == {Estimate(None, 0.0, 0.0)}, "noise may take more than there is"
