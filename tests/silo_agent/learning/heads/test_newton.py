import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, softmax

from policies.documents.study import HeadPlan
from silo_agent.learning.heads.newton import shortening, solve
from silo_agent.learning.heads.sums import second_order_sums
from silo_agent.learning.outcomes.registry import family_of

PLAN = HeadPlan(pooled_noise=1.0, domain_noise=1.0, max_step=1e6)


def silo(seed, n, k=3, domains=2):
    r = np.random.default_rng(seed)
    phi = r.normal(size=(n, k))
    phi /= np.maximum(1, np.linalg.norm(phi, axis=1, keepdims=True))
    d = r.integers(0, domains, n)
    w = np.random.default_rng(99).normal(size=(domains, k + 1)) * 2
    y = (r.random(n) < expit((np.c_[phi, np.ones(n)] * w[d]).sum(1))).astype(np.int64)
    return phi, y, d


def sums(data, heads, pooled=False):
    phi, y, d = data
    family = family_of(max(heads.shape[1] // (phi.shape[1] + 1), 2))
    return second_order_sums(torch.tensor(phi), y, d, np.ones(len(y)), heads, family=family, pooled=pooled)


def total(silos, heads, pooled=False):
    parts = [sums(data, heads, pooled) for data in silos]
    return sum(h for h, _ in parts), sum(g for _, g in parts)


def logistic(phi, y):
    z = np.c_[phi, np.ones(len(y))]

    def loss(w):
        t = z @ w
        return np.logaddexp(0, t).sum() - y @ t, z.T @ (expit(t) - y)

    return minimize(loss, np.zeros(z.shape[1]), jac=True, options={"gtol": 1e-9}).x


def test_without_noise_the_rounds_reach_the_pooled_logistic_regression_and_then_each_domains():
    silos = [silo(i, 150) for i in range(4)]
    phi, y, d = (np.concatenate(parts) for parts in zip(*silos, strict=True))
    heads = np.zeros((2, 4))
    for _ in range(8):
        heads = solve(heads, *total(silos, heads, pooled=True), 0.0, PLAN, pooled=True)
    np.testing.assert_array_equal(heads[0], heads[1])
    np.testing.assert_allclose(heads[0], logistic(phi, y), atol=1e-5)
    for _ in range(8):
        heads = solve(heads, *total(silos, heads), 0.0, PLAN, pooled=False)
    for m in range(2):
        np.testing.assert_allclose(heads[m], logistic(phi[d == m], y[d == m]), atol=1e-5)


@pytest.mark.slow
@given(st.integers(0, 200), st.floats(0.0, 12.0))
def test_shortened_rounds_come_to_the_logistic_regression_from_any_heads(seed, length):
    """Newton's own steps run away from most of those that are longer than 5."""
    phi, y, _ = data = silo(seed, 80, domains=1)
    start = np.random.default_rng(seed).normal(size=(1, 4))
    heads = start * length / np.linalg.norm(start)
    for _ in range(60):
        hessian, gradient = sums(data, heads)
        moves = solve(heads, hessian, gradient, 0.0, PLAN, pooled=True) - heads
        heads = heads + shortening(moves, hessian, heads)[:, None] * moves
    if np.abs(logistic(phi, y)).max() < 100:  # else the records are separable
        np.testing.assert_allclose(heads[0], logistic(phi, y), atol=1e-3)


def test_the_first_step_is_whole_and_a_short_one_nearly():
    moves, hessian = np.array([[30.0, 0.0], [1e-3, 0.0]]), np.eye(2)[None] * [[[2.0]], [[5.0]]]
    assert shortening(moves, hessian, np.zeros((2, 2))).tolist() == [1.0, 1.0]
    far = shortening(moves, hessian, np.full((2, 2), 9.0))
    assert 0.1 < far[0] < 0.2
    assert 0.999 < far[1] < 1.0


@given(st.integers(0, 200), st.integers(1, 40))
def test_it_is_feddars_equation_8_after_one_local_newton_step_singular_hessians_included(seed, n):
    # With n of 1 to 3 records a silo's H_i (4 x 4) is singular; local steps then use the pseudo-inverse.
    silos = [silo(seed * 7 + i, n, domains=1) for i in range(5)]
    heads = np.random.default_rng(seed).normal(size=(1, 4))
    weighted, hessians = np.zeros(4), np.zeros((4, 4))
    for data in silos:
        h, g = sums(data, heads)
        local = heads[0] - np.linalg.pinv(h[0], rcond=1e-12, hermitian=True) @ g[0]
        weighted += h[0] @ local
        hessians += h[0]
    if np.linalg.cond(hessians) > 1e7:
        return
    equation_8 = np.linalg.solve(hessians, weighted)
    got = solve(heads, *total(silos, heads), 0.0, PLAN, pooled=False)
    np.testing.assert_allclose(got[0], equation_8, atol=1e-6 * max(1, np.abs(equation_8).max()))


def test_a_singular_sum_moves_only_where_there_is_data_and_an_absent_domain_keeps_its_head():
    heads = np.arange(8.0).reshape(2, 4) / 10
    phi, y, _ = silo(1, 2)
    hessian, gradient = sums((phi, y, np.zeros(2, np.int64)), heads)
    got = solve(heads, hessian, gradient, 0.0, PLAN, pooled=False)
    np.testing.assert_array_equal(got[1], heads[1])
    step = got[0] - heads[0]
    z = np.c_[phi, np.ones(2)]
    outside = np.eye(4) - np.linalg.pinv(z) @ z
    assert np.linalg.norm(outside @ step) < 1e-5 * np.linalg.norm(step)
    np.testing.assert_allclose(hessian[0] @ step, -gradient[0], atol=1e-7)


def test_eigenvalues_are_lifted_by_size_and_not_cut():
    hessian = np.diag([10.0, -5.0, 0.5])[None]
    gradient = np.array([[10.0, 5.0, 2.0]])
    sd = 2.0 / np.sqrt(6)  # lam = 1 * sd * sqrt(2 * 3) = 2
    got = solve(np.zeros((1, 3)), hessian, gradient, sd, PLAN, pooled=False)
    np.testing.assert_allclose(got[0], [-1.0, -1.0, -1.0])
    doubled = solve(np.zeros((1, 3)), hessian, gradient, sd, PLAN.model_copy(update={"repair": 2.0}), pooled=False)
    np.testing.assert_allclose(doubled[0], [-1.0, -1.0, -0.5])


def test_an_unsymmetric_sum_is_symmetrised():
    hessian = np.array([[[4.0, 2.0], [0.0, 3.0]]])
    got = solve(np.zeros((1, 2)), hessian, np.array([[1.0, 1.0]]), 0.0, PLAN, pooled=False)
    np.testing.assert_allclose(got[0], -np.linalg.solve([[4.0, 1.0], [1.0, 3.0]], [1.0, 1.0]))


@given(st.integers(0, 1000))
def test_no_head_moves_further_than_the_trust_region(seed):
    r = np.random.default_rng(seed)
    plan = PLAN.model_copy(update={"max_step": 0.7})
    heads = r.normal(size=(3, 4))
    hessian, gradient = r.normal(size=(3, 4, 4)) * 1e-3, r.normal(size=(3, 4)) * 1e3
    moved = np.linalg.norm(solve(heads, hessian, gradient, 1e-3, plan, pooled=False) - heads, axis=1)
    np.testing.assert_allclose(moved, 0.7)


# --- softmax heads ----------------------------------------------------------------------------------------------------
CLASSES, WIDTH = 3, 12


def silo_of_many(seed, n, domains=2):
    phi, _, d = silo(seed, n, domains=domains)
    w = np.random.default_rng(98).normal(size=(domains, CLASSES, 4))
    p = softmax(np.einsum("nk,nck->nc", np.c_[phi, np.ones(n)], w[d]), axis=1)
    y = (p.cumsum(axis=1) < np.random.default_rng(1000 + seed).random((n, 1))).sum(axis=1).clip(max=CLASSES - 1)
    return phi, y, d


def multinomial(phi, y):
    """Heads of mean zero over the classes, by another optimiser."""
    z, wanted = np.c_[phi, np.ones(len(y))], np.eye(CLASSES)[y]

    def loss(w):
        logits = z @ w.reshape(CLASSES, -1).T
        p = softmax(logits, axis=1)
        return -np.log(p[np.arange(len(y)), y]).sum(), ((p - wanted).T @ z).ravel()

    found = minimize(loss, np.zeros(WIDTH), jac=True, options={"gtol": 1e-9}).x.reshape(CLASSES, -1)
    return (found - found.mean(axis=0)).ravel()


def test_without_noise_softmax_heads_reach_the_multinomial_regression_of_all_and_of_each_domain():
    silos = [silo_of_many(i, 200) for i in range(4)]
    phi, y, d = (np.concatenate(parts) for parts in zip(*silos, strict=True))
    heads = np.zeros((2, WIDTH))
    for pooled, rounds in ((True, 8), (False, 8)):
        for _ in range(rounds):
            heads = solve(heads, *total(silos, heads, pooled=pooled), 0.0, PLAN, pooled=pooled)
        for m in range(2):
            mine = np.ones(len(y), bool) if pooled else d == m
            np.testing.assert_allclose(heads[m], multinomial(phi[mine], y[mine]), atol=1e-4)


@pytest.mark.parametrize("pooled", [True, False])
def test_noise_never_moves_a_softmax_head_where_no_prediction_changes(pooled):
    heads = np.zeros((2, WIDTH))
    r = np.random.default_rng(0)
    for _ in range(5):
        hessian, gradient = total([silo_of_many(1, 300)], heads, pooled=pooled)
        noise = r.normal(0, 3.0, hessian.shape)
        sums = hessian + noise + noise.transpose(0, 2, 1), gradient + r.normal(0, 3.0, gradient.shape)
        heads = solve(heads, *family_of(CLASSES).centred(*sums), 5.0, PLAN, pooled=pooled)
    assert np.abs(heads).max() > 0.1
    np.testing.assert_allclose(heads.reshape(2, CLASSES, 4).mean(axis=1), 0, atol=1e-12)


def test_softmax_heads_of_an_absent_domain_or_class_stay_finite():
    phi, y, d = silo_of_many(1, 60)
    heads = np.zeros((2, WIDTH))
    for labels, domains in ((y, np.zeros_like(d)), (np.ones_like(y), d)):
        got = heads
        for _ in range(6):
            got = solve(
                got, *sums((phi, labels, domains), got), 0.0, HeadPlan(pooled_noise=1, domain_noise=1), pooled=False
            )
        assert np.isfinite(got).all()
        assert (domains != 0).any() or np.array_equal(got[1], heads[1])
        assert np.linalg.norm(got, axis=1).max() <= 6 * 8 + 1e-9


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="blocks of width"):
        solve(np.zeros((3, 4)), np.zeros((3, 4, 4)), np.zeros((3, 4)), 0.0, PLAN, pooled=True)
