import numpy as np
import pytest
import torch

from silo_agent.learning.terms.losses.deep_kernel import DeepKernel, Trained, discrepancy, power


def pair(seed, n=40, k=3, shift=0.0):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=drawn), torch.randn(n, k, generator=drawn) + shift


def by_definition(kernel, x, y):
    """Statistics from the formula, one pair of records at a time, in numpy."""
    weights = [(np.float64(w.weight.detach()), np.float64(w.bias.detach())) for w in kernel.layers]
    mix, deep, plain = np.float64(kernel.raw.detach())
    share = 1 / (1 + np.exp(-mix))

    def phi(v):
        for at, (w, b) in enumerate(weights):
            v = w @ v + b
            v = np.log1p(np.exp(v)) if at < len(weights) - 1 else v
        return v

    def k(a, b):
        near = np.exp(-((phi(a) - phi(b)) ** 2).sum() / (deep**2 + 1e-6))
        return ((1 - share) * near + share) * np.exp(-((a - b) ** 2).sum() / (plain**2 + 1e-6))

    n = len(x)
    return np.array(
        [[k(x[s], x[t]) + k(y[s], y[t]) - k(x[s], y[t]) - k(x[t], y[s]) for t in range(n)] for s in range(n)]
    )


def test_statistics_estimate_and_power_are_those_of_the_definition():
    x, y = (part.double() for part in pair(1, n=6, shift=0.5))
    kernel = DeepKernel(3).double()
    with torch.no_grad():
        kernel.raw.copy_(torch.tensor([-1.0, 0.4, 1.7]))
    found = kernel.statistics(x, y)
    wanted = by_definition(kernel, x.numpy(), y.numpy())
    np.testing.assert_allclose(found.detach().numpy(), wanted, atol=1e-9)
    off = wanted[~np.eye(6, dtype=bool)].mean()
    assert discrepancy(found).item() == pytest.approx(off, abs=1e-9)
    variance = 4 / 6**3 * (wanted.sum(axis=1) ** 2).sum() - 4 / 6**4 * wanted.sum() ** 2
    assert power(found).item() == pytest.approx(off / np.sqrt(variance + 1e-8), abs=1e-6)


def test_the_estimate_is_unbiased_where_both_sets_are_of_one_law():
    kernel = DeepKernel(3)
    with torch.no_grad():
        kernel.raw[1] = 1.0
        found = [discrepancy(kernel.statistics(*pair(seed))).item() for seed in range(200)]
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(200)
    assert min(found) < 0


def test_training_finds_what_tells_the_sets_apart():
    (x, y), fresh = pair(2, n=150), pair(3, n=150)
    for _, wider in ((x, y), fresh):
        wider[:, 1] *= 2.5
    trained, start = Trained(3), DeepKernel(3)
    trained.improve(x, y, 400, np.random.default_rng(1))
    with torch.no_grad():
        reached, before = (power(kernel.statistics(*fresh)).item() for kernel in (trained.kernel, start))
    assert reached > 1.1 * before > 0.1
    assert all(parameter.grad is None for parameter in trained.kernel.parameters())


def test_it_goes_on_where_it_was_left():
    x, y = pair(4, shift=0.3)
    whole, first = Trained(3), Trained(3)
    for trained, steps in ((whole, 6), (first, 3)):
        trained.improve(x, y, steps, np.random.default_rng(5))
    shuffle = np.random.default_rng(5)
    for _ in range(3):
        shuffle.permutation(len(y))
    again = Trained.from_array(3, first.to_array())
    again.improve(x, y, 3, shuffle)
    np.testing.assert_array_equal(again.to_array(), whole.to_array())
    assert not np.array_equal(first.to_array(), whole.to_array())


@pytest.mark.parametrize(
    "broken", [lambda a: a[:-1], lambda a: np.append(a, 0), lambda a: a * np.nan, lambda a: -np.abs(a) - 1]
)
def test_a_state_that_no_training_gives_is_refused(broken):
    with pytest.raises(ValueError, match="deep kernel"):
        Trained.from_array(3, broken(Trained(3).to_array()).astype(np.float32))


def test_equal_records_and_widths_that_pass_zero_give_numbers():
    kernel = DeepKernel(2)
    with torch.no_grad():
        kernel.raw[1:] = 0.0
    x = torch.ones(4, 2, requires_grad=True)
    value = discrepancy(kernel.statistics(x, torch.ones(4, 2)))
    (gradient,) = torch.autograd.grad(value, x)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()
