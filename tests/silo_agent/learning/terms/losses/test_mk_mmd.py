import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from silo_agent.learning.terms.losses.mk_mmd import (
    GAMMAS,
    compare,
    compare_as_given,
    kernel_weights,
    loss,
    power_problem,
)
from silo_agent.learning.terms.term import LayerPair, Seen


def pair(seed, n=20, k=5, shift=0.5):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, k, generator=g)
    return x, x + shift * torch.randn(n, k, generator=g) + shift


def test_there_are_nineteen_kernels_from_the_papers_range():
    assert len(GAMMAS) == 19
    assert (GAMMAS[0], GAMMAS[-1]) == (2**-3.5, 2**1)


def test_pair_statistics_are_those_of_the_definition():
    x, y = pair(0, n=4)
    statistics = compare(x, y).statistics()
    a, b = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    for i, gamma in enumerate(GAMMAS):
        for s in range(4):
            for t in range(4):
                k = [((p - q) ** 2).sum().div(-gamma).exp() for p, q in
                     ((a[s], a[t]), (b[s], b[t]), (a[s], b[t]), (a[t], b[s]))]  # fmt: skip
                assert statistics[i, s, t].item() == pytest.approx((k[0] + k[1] - k[2] - k[3]).item(), abs=1e-5)


@given(st.integers(0, 1000), st.floats(0, 3))
@settings(max_examples=30)
def test_weights_lie_on_the_simplex_and_the_statistic_is_never_negative(seed, shift):
    compared = compare(*pair(seed, shift=shift))
    weights = kernel_weights(compared.statistics())
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    assert compared.mmd(weights).item() >= -1e-6


@given(st.integers(0, 1000), st.floats(0.1, 3))
@settings(max_examples=40)
def test_weights_satisfy_the_conditions_of_the_quadratic_programmes_optimum(seed, shift):
    """min b'Ab with m'b = 1, b >= 0: Ab - nu m >= 0, with equality where b > 0."""
    statistics = compare(*pair(seed, shift=shift)).statistics().double()
    mean, a = power_problem(statistics)
    b = kernel_weights(statistics)
    b = b / (mean @ b)
    nu = b @ a @ b
    slack = a @ b - nu * mean
    scale = np.abs(a @ b).max()
    assert slack.min() > -1e-7 * scale
    assert np.abs(slack[b > 1e-9 * b.max()]).max() < 1e-7 * scale


def test_weights_are_the_optimum_that_a_general_solver_finds():
    statistics = compare(*pair(3, n=40)).statistics().double()
    mean, a = power_problem(statistics)
    found = minimize(
        lambda b: b @ a @ b / (mean @ b) ** 2, np.full(19, 1 / 19), bounds=[(0, 1)] * 19, options={"maxiter": 5000}
    )
    ours = kernel_weights(statistics)
    assert ours @ a @ ours / (mean @ ours) ** 2 <= found.fun * (1 + 1e-9)


def test_equal_features_give_zero_and_still_a_weight():
    x, _ = pair(1)
    compared = compare(x, x.clone())
    weights = kernel_weights(compared.statistics())
    assert weights.sum() == 1
    assert compared.mmd(weights).item() == pytest.approx(0, abs=1e-6)


def test_where_no_kernel_sees_a_difference_the_strongest_one_is_taken():
    statistics = -torch.rand(19, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    mean, a = power_problem(statistics)
    assert kernel_weights(statistics).tolist() == [float(i == np.argmax(mean / np.diag(a))) for i in range(19)]


def test_its_gradient_reaches_the_own_features_and_pulls_them_to_the_reference():
    x, y = pair(2)
    x.requires_grad_()
    before = None
    for _ in range(50):
        compared = compare(x, y)
        value = compared.mmd(kernel_weights(compared.statistics()))
        before = value.item() if before is None else before
        (gradient,) = torch.autograd.grad(value, x)
        x = (x - 2.0 * gradient).detach().requires_grad_()
    assert value.item() < before / 2


@pytest.mark.parametrize("n", [2, 9])
def test_its_gradient_is_that_of_the_definition(n):
    x, y = (part.double().requires_grad_() for part in pair(4, n=n))
    compared = compare(x, y)
    weights = np.random.default_rng(1).dirichlet(np.ones(19))
    (found,) = torch.autograd.grad(compared.mmd(weights), x)
    a, b = x / x.norm(dim=1, keepdim=True), y.detach() / y.detach().norm(dim=1, keepdim=True)

    def kernel(p, q):
        distances = ((p[:, None] - q[None]) ** 2).sum(dim=2)
        return sum(float(w) * torch.exp(-distances / gamma) for w, gamma in zip(weights, GAMMAS, strict=True)).mean()

    value = kernel(a, a) + kernel(b, b) - 2 * kernel(a, b)
    assert compared.mmd(weights).item() == pytest.approx(value.item(), abs=1e-12)
    torch.testing.assert_close(found, torch.autograd.grad(value, x)[0], rtol=1e-9, atol=1e-12)


def test_batches_beside_each_other_give_what_each_gives_alone():
    pairs = [[pair(seed + 3 * other, n=7, shift=0.4) for seed in range(3)] for other in range(2)]
    x, y = (torch.stack([torch.stack([one[part] for one in row]) for row in pairs]).double() for part in (0, 1))
    x.requires_grad_()
    whole = compare(x, y[:, :1])
    weights = kernel_weights(whole.statistics())
    assert weights.shape == (2, 3, 19)
    (gradients,) = torch.autograd.grad(whole.mmd(weights).sum(), x)
    for at in np.ndindex(2, 3):
        alone = compare(x[at], y[at[0], 0])
        np.testing.assert_allclose(weights[at], kernel_weights(alone.statistics()), atol=1e-9)
        torch.testing.assert_close(whole.mmd(weights)[at], alone.mmd(weights[at]))
        torch.testing.assert_close(gradients[at], torch.autograd.grad(alone.mmd(weights[at]), x)[0][at])


def test_features_as_they_are_keep_their_length():
    x, y = (part.double() for part in pair(5, n=4))
    found = compare_as_given(3.0 * x, y).cross
    for i, gamma in enumerate(GAMMAS):
        distances = ((3.0 * x[:, None] - y[None]) ** 2).sum(dim=2)
        torch.testing.assert_close(found[i], torch.exp(-distances / gamma))


def seen_of(*layers, mixtures=None):
    (x, y), *deeper = layers
    below = tuple(LayerPair(own, constant) for own, constant in deeper)
    return Seen(None, x, reference=y, deeper=below, mixtures=mixtures)


def test_the_loss_is_the_sum_over_layers_each_with_its_own_weights():
    layers = [pair(seed, n=12, shift=0.5 + seed) for seed in range(3)]
    each = [compare(*layer) for layer in layers]
    chosen = [kernel_weights(one.statistics()) for one in each]
    wanted = sum(one.mmd(own) for one, own in zip(each, chosen, strict=True))
    torch.testing.assert_close(loss(seen_of(*layers), None, None), wanted)
    given_weights = np.random.default_rng(0).dirichlet(np.ones(19), 3)
    wanted = sum(one.mmd(own) for one, own in zip(each, given_weights, strict=True))
    torch.testing.assert_close(loss(seen_of(*layers, mixtures=given_weights), None, None), wanted)


@pytest.mark.parametrize(("n", "is_zero"), [(0, True), (1, True), (2, False)])
def test_fewer_than_two_records_have_no_discrepancy(n, is_zero):
    x, y = pair(1, n=n)
    assert (loss(seen_of((x, y)), None, None).item() == 0.0) == is_zero


def test_the_problem_is_the_mean_and_twice_the_covariance_with_its_ridge():
    statistics = compare(*pair(2, n=6)).statistics().double()
    rows = statistics.reshape(19, -1).numpy()
    mean, a = power_problem(statistics)
    np.testing.assert_allclose(mean, rows.mean(axis=1))
    np.testing.assert_allclose(a, 2 * np.cov(rows) + 1e-5 * np.eye(19), rtol=1e-9, atol=1e-15)


def test_nothing_is_learned_by_the_constant_model():
    x, y = (part.requires_grad_() for part in pair(3))
    loss(seen_of((x, y)), None, None).backward()
    assert x.grad.abs().max() > 0
    assert y.grad is None
