import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from policies.documents.study import NUMBER
from policies.plan.families import MOMENT_CELLS, TARGET_STEPS, form_of
from silo_agent.data.outcome import targets
from silo_agent.data.records import record_weights
from silo_agent.learning.figures.moments import moment_cells, number_quality, results_from_moments

M = 2


def places(outcomes):
    return np.round((np.asarray(outcomes) + 1) / 2 * TARGET_STEPS).astype(np.int64)


def cohort(seed, n, slope=0.5, noise=0.2):
    """Predictions (n, 1) and places of a law with heavier tails than a normal one's."""
    r = np.random.default_rng(seed)
    f = slope * r.normal(size=n) - 0.1
    return np.clip(f, -1, 1)[:, None], places(np.clip(f + r.laplace(size=n) * noise / math.sqrt(2), -1, 1))


def cells(predictions, labels, domains=None, patients=None, *, count=1, largest=1.0):
    domains = np.zeros(len(labels), np.int64) if domains is None else domains
    weights = np.ones(len(labels)) if patients is None else record_weights(patients)
    return moment_cells(predictions, labels, domains, weights, count=count, largest_error=largest)


def results(opened, noise_sd, half_range=1.0, *, count=1, largest=1.0, smallest=0):
    return results_from_moments(opened, noise_sd, half_range, count=count, largest_error=largest, smallest=smallest)


def test_the_public_size_is_that_of_the_cells():
    assert form_of(NUMBER).cells(10) == form_of(NUMBER).cells(99) == MOMENT_CELLS
    assert cells(*cohort(0, 5), count=M).shape == (M * MOMENT_CELLS,)


# --- what leaves ------------------------------------------------------------------------------------------------------
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(allow_nan=True), st.integers(0, TARGET_STEPS), st.integers(0, M - 1)),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([1.0, 0.5, 0.01]),
)
def test_one_patient_adds_at_most_one_in_l2(rows, largest):
    p, y, d = (np.array(column) for column in zip(*rows, strict=True))
    found = cells(p[:, None], y, d, np.zeros(len(rows), np.int64), count=M, largest=largest)
    assert np.linalg.norm(found) <= 1.0


def test_the_bound_is_reached_and_no_search_goes_beyond():
    def length(x):
        return float(np.linalg.norm(cells(np.array([[x[0]]]), places([np.tanh(x[1])]), largest=0.4)))

    r, best = np.random.default_rng(0), 0.0
    for _ in range(10):
        found = minimize(lambda x: -length(x), r.normal(size=2) * 2, method="Nelder-Mead")
        best = max(best, -found.fun)
    assert 1 - 1e-3 < best <= 1.0


def test_sums_are_the_same_bits_in_any_order():
    p, y = cohort(1, 500)
    patients = np.random.default_rng(0).integers(0, 200, 500)
    patients = np.unique(patients, return_inverse=True)[1]
    order = np.random.default_rng(1).permutation(500)
    assert np.array_equal(cells(p, y, patients=patients), cells(p[order], y[order], patients=patients[order]))


# --- what follows -----------------------------------------------------------------------------------------------------
def test_without_noise_figures_are_exact_and_in_the_labels_unit():
    p, y = cohort(2, 3000)
    exact = number_quality(p, y, 15.0)
    found = results(cells(p, y), 0.0, 15.0)[0]
    assert found.mae.value == pytest.approx(exact.mae, abs=1e-5)
    assert found.mean_error.value == pytest.approx(exact.mean_error, abs=1e-5)
    assert found.r2.value == pytest.approx(exact.r2, abs=1e-5)
    assert found.patients.value == pytest.approx(3000, abs=1e-3)
    for name in ("mae", "mean_error", "r2"):
        estimate = getattr(found, name)
        assert estimate.low < estimate.value < estimate.high


def test_errors_beyond_the_largest_count_as_the_largest():
    p, y = cohort(2, 3000)
    found = results(cells(p, y, largest=0.1), 0.0, largest=0.1)[0]
    cut = np.clip(p[:, 0] - targets(y), -0.2, 0.2)
    assert (np.abs(cut) == 0.2).mean() > 0.05
    assert found.mae.value == pytest.approx(np.abs(cut).mean(), abs=1e-6)
    assert found.mean_error.value == pytest.approx(cut.mean(), abs=1e-6)
    assert found.r2.value == pytest.approx(1 - (cut**2).sum() / (targets(y).var() * len(y)), abs=1e-6)


@pytest.mark.parametrize(
    ("n", "noise_sd", "noise", "largest"), [(400, 1.0, 0.2, 1.0), (3000, 5.0, 0.1, 0.5), (3000, 0.0, 0.4, 1.0)]
)
def test_intervals_hold_the_truth(n, noise_sd, noise, largest):
    truth = number_quality(*cohort(99, 400_000, noise=noise), 1.0)
    r, held = np.random.default_rng(3), {"mae": 0, "r2": 0, "mean_error": 0}
    for seed in range(100):
        opened = cells(*cohort(seed, n, noise=noise), largest=largest) + noise_sd * r.normal(size=MOMENT_CELLS)
        found = results(opened, noise_sd, largest=largest)[0]
        for name in held:
            estimate = getattr(found, name)
            held[name] += estimate.low <= getattr(truth, name) <= estimate.high
    assert min(held.values()) >= 88, held


def test_what_the_noise_hides_is_not_said():
    p, y = cohort(4, 30)
    found, empty = results(
        cells(p, y, np.zeros(30, np.int64), count=M) + np.random.default_rng(0).normal(size=M * MOMENT_CELLS),
        1.0,
        2.0,
        count=M,
        largest=0.5,
    )
    assert empty.mae.value is empty.r2.value is empty.mean_error.value is None
    assert (empty.mae.low, empty.mae.high) == (0.0, 2.0)
    assert (empty.mean_error.low, empty.r2.low, empty.r2.high) == (-2.0, -1.0, 1.0)
    assert found.mae.value is not None
    withheld = results(cells(p, y), 1.0, 2.0, smallest=100)[0]
    assert (withheld.mae.value, withheld.patients.value, withheld.patients.high) == (None, None, 100.0)


def test_where_an_interval_is_whole_there_is_no_estimate():
    r, whole = np.random.default_rng(0), 0
    for seed in range(40):
        found = results(cells(*cohort(seed, 60)) + 2.0 * r.normal(size=MOMENT_CELLS), 2.0)[0]
        whole += (found.r2.low, found.r2.high) == (-1.0, 1.0)
        for estimate, span in ((found.r2, 2.0), (found.mae, 2.0), (found.mean_error, 4.0)):
            assert estimate.value is not None or estimate.high - estimate.low == span
        assert found.r2.value is None or found.r2.high - found.r2.low < 2.0
    assert whole > 5


def test_outcomes_that_are_all_alike_have_no_variance_to_explain():
    p, y = np.full((50, 1), 0.5), places([0.5] * 50)
    assert number_quality(p, y, 1.0).r2 is None
    found = results(cells(p, y) + 1e-3, 0.5)[0]
    assert found.r2.value is None
    assert found.mae.value == pytest.approx(0, abs=0.01)


def test_nobody_has_no_quality():
    nobody = number_quality(np.zeros((0, 1)), np.zeros(0, np.int64), 1.0)
    assert (nobody.mae, nobody.r2, nobody.mean_error, nobody.records) == (None, None, None, 0)
