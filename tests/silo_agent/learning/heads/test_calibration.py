import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit, softmax

from policies.documents.study import NUMBER
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import record_weights
from silo_agent.learning.heads.calibration import blocks, intercept_sums, shifts
from silo_agent.learning.outcomes.expected import ExpectedOutcomes
from silo_agent.learning.outcomes.registry import family_of

BINARY = family_of(2)
K, M = 3, 4
NOT_SMALL = np.zeros(M, bool)


def sums(phi, y, d, p, heads, *, classes=2, **more):
    phi, whose = torch.tensor(np.asarray(phi, np.float64)), np.asarray(p, np.int64)
    y, d = np.asarray(y, np.int64), np.asarray(d, np.int64)
    return intercept_sums(phi, y, d, record_weights(whose), heads, family=family_of(classes), **more)


def one_patient():
    """Any records of one patient, several domains, any heads; outcomes as parts of the range."""
    n = st.shared(st.integers(1, 6), key="n")
    return st.tuples(
        n.flatmap(lambda n: arrays(np.float64, (n, K), elements=st.floats(-3, 3))),
        n.flatmap(lambda n: arrays(np.float64, n, elements=st.floats(0, 1))),
        n.flatmap(lambda n: arrays(np.int64, n, elements=st.integers(0, M - 1))),
        arrays(np.float64, (M, 3, K + 1), elements=st.floats(-20, 20)),
    )


def heads_of(classes, heads):
    return heads.reshape(M, -1) if classes == 3 else heads[:, 0]


@settings(max_examples=40)
@given(one_patient(), st.booleans(), st.sampled_from([2, 3, NUMBER]), st.sampled_from([1.0, 5.0]))
def test_one_patient_moves_the_release_by_at_most_one(patient, pooled, classes, bound):
    phi, y, d, heads = patient
    labels, heads = np.round(y * (family_of(classes).form.labels - 1)), heads_of(classes, heads)
    released = blocks(sums(phi, labels, d, np.zeros(len(y)), heads, classes=classes, norm_bound=bound), pooled=pooled)
    assert np.linalg.norm(released) <= 1 + 1e-12


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
@pytest.mark.parametrize("pooled", [True, False])
def test_removing_patients_at_random_moves_the_release_by_their_terms_alone(pooled, classes):
    r = np.random.default_rng(3)
    n = 60
    phi, d, p = r.normal(size=(n, K)), r.integers(0, M, n), np.unique(r.integers(0, 25, n), return_inverse=True)[1]
    y = r.integers(0, family_of(classes).form.labels, n)
    heads = heads_of(classes, r.normal(size=(M, 3, K + 1)) * 9)
    whole = blocks(sums(phi, y, d, p, heads, classes=classes), pooled=pooled)
    for patient in range(p.max() + 1):
        gone = p == patient
        rest = np.unique(p[~gone], return_inverse=True)[1]
        without = blocks(sums(phi[~gone], y[~gone], d[~gone], rest, heads, classes=classes), pooled=pooled)
        assert 0 < np.linalg.norm(whole - without) <= 1 + 1e-9


def test_no_prediction_that_is_searched_for_breaks_the_bound():
    def length(p, y):
        mean = torch.tensor([[p]], dtype=torch.float64)
        return float(torch.linalg.vector_norm(BINARY.intercept_terms(ExpectedOutcomes(mean, 1.0 - mean), mean - y)))

    for y in (0, 1):
        assert max(length(p, y) for p in np.linspace(0, 1, 2001)) <= 1
        found = minimize_scalar(lambda p, y=y: -length(p, y), bounds=(0, 1), method="bounded")
        assert -found.fun <= 1


@pytest.mark.parametrize("classes", [3, 5])
def test_no_probabilities_of_several_classes_that_are_searched_for_break_the_bound(classes):
    family, r = family_of(classes), np.random.default_rng(4)
    longest = 0.0

    def length(logits):
        expected = family.expected(torch.tensor(logits)[None, :])
        error = family.residual(expected, torch.tensor([0]))
        return float(torch.linalg.vector_norm(family.intercept_terms(expected, error)))

    for scale in (0.3, 2.0, 8.0):
        for _ in range(8):
            found = minimize(lambda logits: -length(logits), scale * r.normal(size=classes), method="Nelder-Mead")
            longest = max(longest, -found.fun, length(100.0 * found.x))
    assert 0.99 < longest <= 1 + 1e-12


def worst(logits, shift, y, d, groups):
    """The largest |log(mean prediction / observed rate)| of a class in any of the groups."""
    probabilities, happened = softmax(logits + shift[d], axis=1), np.eye(4)[y]
    return max(np.abs(np.log(probabilities[own].mean(axis=0) / happened[own].mean(axis=0))).max() for own in groups)


@pytest.mark.parametrize("pooled", [True, False])
def test_classes_come_to_their_rates_in_one_step_also_those_that_were_half_as_likely(pooled):
    family, r, n = family_of(4), np.random.default_rng(11), 20_000
    d, logits = np.arange(n) % M, r.normal(size=(n, 4)) * 1.2 + np.array([1.5, 0.5, -0.5, -1.5])
    y = (softmax(logits, axis=1).cumsum(axis=1) < r.random((n, 1))).sum(axis=1)
    logits = logits + np.array([0.6, 0.2, -0.3, -0.9]) + (not pooled) * r.normal(size=(M, 4))[d] * 0.3
    expected = family.expected(torch.tensor(logits))
    terms = family.intercept_terms(expected, family.residual(expected, torch.tensor(y))).numpy()
    flat = blocks(np.stack([np.bincount(d, column, minlength=M) for column in terms.T], axis=1), pooled=pooled)
    found = shifts(flat + r.normal(0, 3.0, len(flat)), 3.0, family, NOT_SMALL, pooled=pooled)
    groups = [np.ones(n, bool)] if pooled else [d == m for m in range(M)]
    assert worst(logits, np.zeros((M, 4)), y, d, groups) > 0.65
    assert worst(logits, found, y, d, groups) < 0.12


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("margin", [8.0, 15.0])
def test_confident_predictions_do_not_all_end_in_one_class(pooled, margin):
    """One label in fifty is wrong. There is hardly any curvature, and a Newton step from there would be many logits."""
    family, r, n = family_of(4), np.random.default_rng(3), 20_000
    d, true = np.arange(n) % M, r.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    logits = margin * np.eye(4)[true] + r.normal(size=(n, 4)) * 0.3
    y = np.where(r.random(n) < 0.02, 3, true)
    expected = family.expected(torch.tensor(logits))
    terms = family.intercept_terms(expected, family.residual(expected, torch.tensor(y))).numpy()
    flat = blocks(np.stack([np.bincount(d, column, minlength=M) for column in terms.T], axis=1), pooled=pooled)
    found = shifts(flat + r.normal(0, 1.0, len(flat)), 1.0, family, NOT_SMALL, pooled=pooled)
    whole = [np.ones(n, bool)]
    assert worst(logits, found, y, d, whole) <= worst(logits, np.zeros((M, 4)), y, d, whole) + 0.1
    assert ((logits + found[d]).argmax(axis=1) == y).mean() > 0.96


@pytest.mark.parametrize("pooled", [True, False])
def test_confident_predictions_of_two_classes_do_not_all_end_in_one(pooled):
    """Half of them lie at either end, so that their curvature is next to none and would not grow with a shift."""
    r, n = np.random.default_rng(4), 20_000
    d, true = np.arange(n) % M, r.random(n) < 0.5
    logits = np.where(true, 12.0, -12.0) + r.normal(size=n) * 2.5
    y = np.where(true & (r.random(n) < 0.02), 0, true).astype(np.int64)
    found = shifts(opened(expit(logits), y, d, pooled=pooled, noise=1.0, r=r), 1.0, BINARY, NOT_SMALL, pooled=pooled)
    assert (((logits + found[d, 0]) > 0) == y).mean() > 0.96
    assert (found < 0.0).all()


def cohort(r, sizes, offset, errors, spread=1.5):
    """Outcomes drawn from logits; the model's logits are too low by `errors` (M,)."""
    d = np.repeat(np.arange(M), sizes)
    eta = r.normal(offset, spread, len(d))
    y = (r.random(len(d)) < expit(eta)).astype(np.int64)
    return expit(eta - np.asarray(errors)[d]), y, d


def opened(p, y, d, *, pooled, noise, r):
    expected = ExpectedOutcomes(torch.tensor(p[:, None]), torch.tensor(1.0 - p[:, None]))
    terms = BINARY.intercept_terms(expected, BINARY.residual(expected, torch.tensor(y))).numpy()
    flat = blocks(np.stack([np.bincount(d, column, minlength=M) for column in terms.T], axis=1), pooled=pooled)
    return flat + r.normal(0, noise, len(flat))


def ratios(p, y, d, shift):
    q = expit(logit(p) + shift[d, 0])
    return np.array([q[d == m].sum() / y[d == m].sum() for m in range(M)])


@pytest.mark.parametrize("offset", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("error", [-0.8, 0.9])
def test_one_step_brings_predictions_and_outcomes_together_where_they_were_far_apart(offset, error):
    r = np.random.default_rng(5)
    p, y, d = cohort(r, [9000, 7000, 5000, 3000], offset, [error] * M)
    q = expit(
        logit(p) + shifts(opened(p, y, d, pooled=True, noise=3.0, r=r), 3.0, BINARY, NOT_SMALL, pooled=True)[d, 0]
    )
    assert abs(p.sum() / y.sum() - 1) > 0.04
    assert q.sum() / y.sum() == pytest.approx(1, abs=0.02)


def test_each_domain_is_shifted_as_far_as_its_patients_and_the_noise_allow():
    r = np.random.default_rng(6)
    errors = [1.2, 1.2, 0.2, 1.2]
    p, y, d = cohort(r, [6000, 6000, 6000, 40], -2.5, errors)
    values = opened(p, y, d, pooled=False, noise=5.0, r=r)
    own = shifts(values, 5.0, BINARY, NOT_SMALL, pooled=False)
    common = shifts(values, 5.0, BINARY, ~NOT_SMALL, pooled=False)
    assert np.ptp(common) == 0
    np.testing.assert_allclose(ratios(p, y, d, own)[:3], 1, atol=0.06)
    assert ratios(p, y, d, common)[2] > 1.3
    assert own[3] == pytest.approx(common[3], abs=0.5), "40 patients say little"
    some = shifts(values, 5.0, BINARY, np.arange(M) == 2, pooled=False)
    assert (some[2] == common[2]).all()
    assert (some[0] == own[0]).all()


def test_without_a_difference_nothing_moves_by_more_than_the_noise_would():
    r = np.random.default_rng(7)
    moved = {}
    for noise in (0.01, 40.0):
        found = []
        for _ in range(40):
            p, y, d = cohort(r, [800, 500, 300, 100], -2, [0.0] * M)
            found.append(
                shifts(opened(p, y, d, pooled=False, noise=noise, r=r), noise, BINARY, NOT_SMALL, pooled=False)
            )
        moved[noise] = np.sqrt((np.array(found) ** 2).mean())
    assert moved[0.01] < 0.12
    assert moved[40.0] < 0.35


def test_sums_that_are_noise_alone_give_small_steps():
    r = np.random.default_rng(8)
    for _ in range(200):
        for pooled in (True, False):
            values = r.normal(0, 5.0, 3 if pooled else 3 * (M + 1))
            found = shifts(values, 5.0, BINARY, NOT_SMALL, pooled=pooled)
            assert np.isfinite(found).all()
            assert np.abs(found).max() < 6


def test_a_number_is_moved_by_its_mean_error():
    family, r = family_of(NUMBER), np.random.default_rng(9)
    n, d = 4000, np.arange(4000) % M
    y = r.integers(0, TARGET_STEPS // 2, n)
    found = sums(np.zeros((n, K)), y, d, np.arange(n), np.zeros((M, K + 1)), classes=NUMBER)
    target = y / (TARGET_STEPS / 2) - 1
    flat = blocks(found, pooled=True) + r.normal(0, 4.0, 2)
    np.testing.assert_allclose(shifts(flat, 4.0, family, NOT_SMALL, pooled=True), target.mean(), atol=0.02)
    own = shifts(blocks(found, pooled=False) + r.normal(0, 4.0, 2 * (M + 1)), 4.0, family, NOT_SMALL, pooled=False)
    np.testing.assert_allclose(own, target.mean(), atol=0.05)


def test_a_record_whose_logits_overflow_counts_as_zero():
    heads = np.zeros((M, K + 1))
    heads[1] = np.finfo(float).max * np.array([1, -1, 1, -1])
    found = sums(np.ones((3, K)), [0, 1, 1], [0, 1, 1], [0, 1, 2], heads, norm_bound=9.0)
    assert not found[1:].any()
    assert found[0].any()


def test_heads_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not fit 3 features"):
        sums(np.ones((1, K)), [0], [0], [0], np.zeros((M, K)))
