import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from policies.plan.families import TARGET_STEPS, form_of
from silo_agent.data.outcome import targets
from silo_agent.learning.encoder.layers import OPERATIONS
from silo_agent.learning.heads.sums import pack, second_order_sums
from silo_agent.learning.outcomes.family import C, is_of_classes
from silo_agent.learning.outcomes.number import MOST_RESIDUAL, SHARE, Squared
from silo_agent.learning.outcomes.registry import FAMILIES, family_of

FAMILY = Squared()
TOP = TARGET_STEPS


def records(seed, n=60, k=3, slope=1.0, noise=0.1):
    """Features (n, k), places and the records' weights, of a linear law whose outcomes may lie beyond the range."""
    r = np.random.default_rng(seed)
    phi = r.uniform(-1, 1, (n, k)) / math.sqrt(k)
    t = np.clip(phi @ r.normal(size=k) * slope + 0.1 + noise * r.normal(size=n), -1, 1)
    return phi, np.round((t + 1) / 2 * TOP).astype(np.int64), np.ones(n)


def sums(phi, labels, weights, head, clip=1.0):
    nowhere = np.zeros(len(labels), np.int64)
    hessian, gradient = second_order_sums(
        torch.tensor(phi), labels, nowhere, weights, head[None], family=FAMILY, pooled=False, clip=clip
    )
    return hessian[0], gradient[0]


def loss(phi, labels, head):
    z = np.c_[phi, np.ones(len(phi))]
    return FAMILY.losses(torch.tensor(z @ head)[:, None], torch.tensor(labels)).sum().item()


def test_a_study_finds_it_where_its_label_has_no_classes():
    assert family_of(1) == FAMILY == FAMILIES["squared"](1)
    assert FAMILY.form == form_of(1)
    assert FAMILY.operation in OPERATIONS
    assert not is_of_classes(FAMILY)
    assert is_of_classes(family_of(2))


def test_predictions_are_the_mean_that_the_sums_use_and_never_leave_the_range():
    logits = np.array([[-7.0], [-1.0], [0.25], [math.inf]])
    assert FAMILY.probabilities(logits).tolist() == [[-1.0], [-1.0], [0.25], [1.0]]
    assert FAMILY.expected(torch.tensor(logits)).mean.tolist() == FAMILY.probabilities(logits).tolist()


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_residual_is_the_derivative_of_the_loss_also_beyond_the_range(kind):
    logits = torch.tensor([[-3.0], [-0.5], [0.7], [2.5]], dtype=kind, requires_grad=True)
    for place in (0, TOP // 3, TOP):
        labels = torch.full((4,), place)
        (gradient,) = torch.autograd.grad(FAMILY.losses(logits, labels).sum(), logits)
        torch.testing.assert_close(FAMILY.residual(FAMILY.expected(logits.detach()), labels), gradient)


def test_within_the_range_it_is_half_the_squared_error_and_beyond_it_a_straight_line():
    places = torch.tensor([TOP // 4] * 4)
    t = targets(places.numpy())[0]
    at = FAMILY.losses(torch.tensor([[0.3], [1.0], [2.0], [3.0]], dtype=torch.float64), places).numpy()
    assert at[:2].tolist() == [(0.3 - t) ** 2 / 2, (1 - t) ** 2 / 2]
    assert np.diff(at[1:]).tolist() == [1 - t, 1 - t]


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), slope=st.floats(0.1, 20.0), size=st.floats(0.0, 20.0))
def test_the_curvature_bounds_the_loss_from_above(seed, slope, size):
    """The parabola of the sums at a head lies above the loss everywhere: a step on it makes no loss larger."""
    phi, labels, weights = records(seed, slope=slope)
    r = np.random.default_rng(seed + 1)
    head, step = size * r.normal(size=4), r.normal(size=4) * r.choice([0.01, 1.0, 30.0])
    hessian, gradient = sums(phi, labels, weights, head)
    parabola = loss(phi, labels, head) + gradient @ step + step @ hessian @ step / 2
    assert loss(phi, labels, head + step) <= parabola + 1e-9 * (1 + abs(parabola))


def test_one_step_from_zero_is_least_squares():
    phi, labels, weights = records(3, slope=0.8)
    z = np.c_[phi, np.ones(len(phi))]
    wanted = np.linalg.lstsq(z, targets(labels), rcond=None)[0]
    hessian, gradient = sums(phi, labels, weights, np.zeros(4))
    np.testing.assert_allclose(-np.linalg.solve(hessian, gradient), wanted, atol=1e-10)
    assert np.abs(z @ wanted).max() < 1


def test_at_the_end_predictions_and_outcomes_have_the_same_mean_also_where_predictions_are_clipped():
    phi, labels, weights = records(5, n=400, slope=3.0)
    head = np.zeros(4)
    for _ in range(100):
        hessian, gradient = sums(phi, labels, weights, head)
        head -= np.linalg.solve(hessian, gradient)
    logits = np.c_[phi, np.ones(len(phi))] @ head
    assert (np.abs(logits) > 1).mean() > 0.05
    assert FAMILY.probabilities(logits).mean() == pytest.approx(targets(labels).mean(), abs=1e-5)


# --- sensitivity ------------------------------------------------------------------------------------------------------
@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.integers(0, TOP)), min_size=1, max_size=4),
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    st.sampled_from([1.0, 0.3, 0.05]),
)
def test_one_patient_moves_the_statistic_by_at_most_one(rows, head, clip):
    *phi, labels = (np.array(column) for column in zip(*rows, strict=True))
    hessian, gradient = sums(np.stack(phi, axis=1), labels, np.full(len(rows), 1 / len(rows)), np.array(head), clip)
    assert np.linalg.norm(pack(hessian[None], gradient[None], FAMILY)) <= 1 + 1e-12


def test_no_record_and_head_that_are_searched_for_break_the_bound():
    """The worst lies where the prediction is at the far end of the range; the search must come near, and not beyond."""

    def length(x):
        place = round(TOP / (1 + math.exp(-x[4]))) if abs(x[4]) < 700 else TOP * (x[4] > 0)
        hessian, gradient = sums(x[None, :2], np.array([place]), np.ones(1), np.array([x[2], x[3], x[5]]))
        return float(np.linalg.norm(pack(hessian[None], gradient[None], FAMILY)))

    r, best = np.random.default_rng(0), 0.0
    for _ in range(3):
        found = minimize(lambda x: -length(x), r.normal(size=6) * 3, method="Nelder-Mead", options={"maxfev": 300})
        best = max(best, -found.fun)
    assert 1 - 1e-3 < best <= 1 + 1e-12


def test_the_bound_is_reached_and_the_share_divides_it():
    hessian, gradient = sums(np.array([[1.0]]), np.array([0]), np.ones(1), np.array([5.0, 5.0]))
    vector = pack(hessian[None], gradient[None], FAMILY)
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.norm(vector[:3]) ** 2 == pytest.approx(SHARE)
    assert FAMILY.gradient_divisor == pytest.approx(MOST_RESIDUAL * C / math.sqrt(1 - SHARE))


def test_sums_of_a_head_that_overflows_are_finite():
    hessian, gradient = sums(*records(0), np.full(4, 1e308))
    assert np.isfinite(hessian).all()
    assert np.isfinite(gradient).all()
    assert FAMILY.centred(hessian[None], gradient[None])[0][0] is not None


def test_the_largest_residual_reaches_the_bound_of_what_calibrates_so_no_more_would_be_free():
    largest = torch.tensor([[MOST_RESIDUAL], [-MOST_RESIDUAL]], dtype=torch.float64)
    expected = FAMILY.expected(torch.zeros(2, 1, dtype=torch.float64))
    norms = torch.linalg.vector_norm(FAMILY.intercept_terms(expected, largest), dim=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-12)


def test_the_outcome_that_is_furthest_is_the_end_of_the_range():
    expected = FAMILY.expected(torch.tensor([[-5.0], [-0.5], [0.0], [0.5], [5.0]], dtype=torch.float64))
    far = FAMILY.farthest(expected)
    assert FAMILY.residual(expected, far)[:, 0].tolist() == [-2.0, -1.5, -1.0, 1.5, 2.0]
    assert set(far.tolist()) == {0, TARGET_STEPS}
