from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from silo_agent.learning.dpsgd import clipping
from silo_agent.learning.dpsgd.clipping import StepGrid, add_integers, to_integers
from silo_agent.learning.dpsgd.outer_products import Factors

SHAPES = ((3, 2), (1,), (70, 65))


def made_up(rows, seed, scale=1.0):
    """Gradients (rows, ...) of three parameters, of very different norms."""
    rng = np.random.default_rng(seed)
    sizes = scale * 10.0 ** rng.uniform(-3, 3, rows)
    return [
        torch.from_numpy((rng.normal(size=(rows, *shape)) * sizes.reshape(-1, *[1] * len(shape))).astype(np.float32))
        for shape in SHAPES
    ]


def exact_squares(parts):
    """Sum of squares of every record's integers, as Python integers."""
    joined = np.concatenate([part.numpy().astype(np.int64) for part in parts], axis=1)
    return [sum(value * value for value in row) for row in joined.tolist()]


@settings(max_examples=30)
@given(
    clip=st.floats(1e-20, 1e20),
    noise=st.sampled_from([0.0, 1e-9, 0.3, 1.0, 127.9, 128.5, 1e4, 1e12]),
    seed=st.integers(0, 99),
)
def test_the_integers_of_every_record_have_at_most_the_norm_that_the_noise_is_scaled_to(clip, noise, seed):
    grid = StepGrid.of(clip, noise)
    parts = to_integers(made_up(5, seed, clip), grid)
    assert all(torch.equal(part, part.trunc()) for part in parts)
    assert all(squares <= grid.norm**2 for squares in exact_squares(parts))
    if noise:
        assert grid.sigma >= noise * grid.norm
        assert 1.0 <= grid.sigma <= 2.0**27
    assert grid.unit * grid.norm == pytest.approx(clip, rel=1e-12)


def test_a_record_keeps_its_gradient_below_the_clip_and_its_direction_above():
    grid, given_parts = StepGrid.of(2.0, 1.0), made_up(50, 1)
    flat = torch.cat([part.flatten(1) for part in given_parts], dim=1).double()
    norms = flat.norm(dim=1, keepdim=True)
    assert norms.min() < 2.0 < norms.max()
    found = torch.cat(to_integers(given_parts, grid), dim=1).double() * grid.unit
    wanted = flat * (2.0 / norms).clamp(max=1.0)
    assert (found - wanted).abs().max() < 2.0 * 2.0**-17 + grid.unit
    assert norms[(found == 0).all(dim=1)].numel() == 0, "no ordinary record counts as zero"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_not_finite_counts_as_zero_and_costs_the_others_nothing(bad):
    grid, parts = StepGrid.of(1.0, 1.0), made_up(4, 2)
    wanted = to_integers([part.clone() for part in parts], grid)
    parts[2][1, 7, 7] = bad
    for found, own in zip(to_integers(parts, grid), wanted, strict=True):
        assert not found[1].any()
        assert torch.equal(found[[0, 2, 3]], own[[0, 2, 3]])


def test_a_check_that_fails_makes_a_record_zero(monkeypatch):
    """Were the first norm wrong, the second would not be."""
    norms, asked = clipping._norms, []
    monkeypatch.setattr(
        clipping, "_norms", lambda *of: (asked.append(1) or norms(*of)) * (0.9 if len(asked) == 1 else 1.0)
    )
    found = to_integers(made_up(6, 3, 1e3), StepGrid.of(1.0, 1.0))
    assert not any(part.any() for part in found)


def test_sums_are_exact_in_any_order_and_of_the_first_records_alone():
    grid, rows = StepGrid.of(1.0, 1.0), 53
    parts = [
        torch.full((rows, 4), float(2**20)),
        torch.from_numpy(np.arange(-rows, rows * 2.0).reshape(rows, 3)).float(),
    ]
    for count in (0, 1, 16, 17, 50):
        totals = [torch.full((4,), 7, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)]
        add_integers(totals, parts, count, grid)
        assert totals[0].tolist() == [7 + count * 2**20] * 4
        assert totals[1].tolist() == parts[1][:count].numpy().astype(np.int64).sum(axis=0).tolist()
    shuffled = [part[torch.randperm(rows, generator=torch.Generator().manual_seed(1))] for part in parts]
    sums = [[torch.zeros(part.shape[1], dtype=torch.int64) for part in parts] for _ in range(2)]
    add_integers(sums[0], parts, rows, grid)
    add_integers(sums[1], shuffled, rows, grid)
    assert all(map(torch.equal, *sums))
    assert grid.norm == 2**20


LAYERS = ((7, 3, 1, True), (2, 5, 4, True), (6, 4, 3, False), (3, 2, 1, False))
"""Inputs, outputs, positions of some layers whose gradients are kept as factors, and whether they have a bias."""
OUTER = {1: Factors(7, True), 3: Factors(2, True), 5: Factors(6, False), 6: Factors(3, False)}
PLACES = (1, 3, 5, 6)


def factors(rows, seed, scale=1.0):
    """A whole gradient, and factors of the layers', of very different sizes; nothing stands at a bias."""
    rng = np.random.default_rng(seed)
    sizes = scale * 10.0 ** rng.uniform(-3, 3, rows)
    parts = [rng.normal(size=(rows, 4)) * sizes[:, None]]
    for inputs, outputs, positions, bias in LAYERS:
        own = rng.normal(size=(rows, positions, outputs)) * sizes[:, None, None]
        parts += [np.concatenate([rng.uniform(-1, 1, (rows, positions, inputs)), own], axis=2)]
        parts += [np.zeros((rows, 0))] if bias else []
    return [torch.from_numpy(part.astype(np.float32)) for part in parts]


def multiplied(parts, coarse, steps):
    """A record's gradient over everything, (rows, n), with a bias as one more input, which is 1 or `steps`."""
    joined = [parts[0].numpy().astype(object) * coarse]
    for place, (size, _, positions, bias) in zip(PLACES, LAYERS, strict=True):
        own = parts[place].numpy().astype(object)
        inputs, outputs = own[:, :, :size], own[:, :, size:]
        ones = np.full((len(own), positions, int(bias)), steps, dtype=object)
        inputs = np.concatenate([inputs, ones], axis=2)
        products = outputs[:, :, :, None] * inputs[:, :, None, :]
        joined.append(products.sum(axis=1).reshape(len(own), -1))
    return np.concatenate(joined, axis=1)


@settings(max_examples=40)
@given(
    clip=st.floats(1e-20, 1e20),
    noise=st.sampled_from([0.0, 1e-9, 0.3, 1.0, 1.9, 2.1, 30.0, 1e3, 1e6]),
    seed=st.integers(0, 99),
)
def test_products_of_every_record_have_at_most_the_norm_that_the_noise_is_scaled_to(clip, noise, seed):
    grid = StepGrid.fine(clip, noise)
    parts = to_integers(factors(9, seed, clip), grid, OUTER)
    assert all(torch.equal(part, part.trunc()) for part in parts)
    assert parts[0].abs().max() <= 2**20, "sixteen whole gradients are added in float32"
    integers = [[int(value) for value in row] for row in multiplied(parts, grid.coarse, grid.input_steps)]
    most = grid.norm**2 * (1.0 if noise else 1.0 + 2.0**-40)
    assert all(sum(value * value for value in row) <= most for row in integers)
    if noise:
        assert grid.sigma >= noise * grid.norm
        assert 1.0 <= grid.sigma <= 2.0**27
    assert grid.unit * grid.norm == pytest.approx(clip, rel=1e-12)


@pytest.mark.parametrize("noise", [0.0, 1.1, 20.0])
def test_products_are_the_gradients_but_for_half_a_step_of_each_factor(noise):
    grid, given_parts = StepGrid.fine(2.0, noise), factors(200, 5)
    wanted = multiplied(given_parts, 1, 1).astype(float)
    norms = np.linalg.norm(wanted, axis=1, keepdims=True)
    assert norms.min() < 2.0 < norms.max()
    parts = to_integers(given_parts, grid, OUTER)
    found = multiplied(parts, grid.coarse, grid.input_steps).astype(float) * grid.unit
    wanted *= np.minimum(1.0, 2.0 / norms)
    step = 0.5 / grid.input_steps
    allowed = np.abs(wanted).max(axis=1, keepdims=True) * 2.0 * step + 2.0 * grid.unit * grid.input_steps
    allowed = allowed + grid.coarse * grid.unit + np.abs(wanted) * 2.0**-10
    assert (np.abs(found - wanted) <= allowed).all()
    lost = (found == 0).all(axis=1)
    assert not lost[norms[:, 0] > 0.02].any(), "no ordinary record counts as zero"


def test_sums_of_products_are_exact_in_any_order_and_of_the_first_records_alone():
    grid, rows = StepGrid.fine(1.0, 1.1), 1000
    parts = to_integers(factors(rows, 3, 1e3), grid, OUTER)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    sizes = [4]
    for inputs, outputs, _, bias in LAYERS:
        sizes += [inputs * outputs, *([outputs] if bias else [])]
    sums = []
    for own in (parts, [torch.cat([part[:700][order], part[700:]]) for part in parts]):
        totals = [torch.full((size,), 5, dtype=torch.int64) for size in sizes]
        add_integers(totals, own, 700, grid, OUTER)
        sums.append(totals)
    assert all(map(torch.equal, *sums))
    exact = multiplied([part[:700] for part in parts], grid.coarse, grid.input_steps).sum(axis=0)
    at, expected = 4, [exact[:4]]
    for inputs, outputs, _, bias in LAYERS:
        own = exact[at : at + outputs * (inputs + bias)].reshape(outputs, inputs + bias)
        expected += [own[:, :inputs].ravel(), *([own[:, inputs]] if bias else [])]
        at += outputs * (inputs + bias)
    for total, own in zip(sums[0], expected, strict=True):
        assert [value - 5 for value in total.tolist()] == [int(value) for value in own]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize(("place", "at"), [(0, (0,)), (1, (0, 0)), (1, (0, 8)), (3, (2, 1)), (3, (2, 5)), (5, (1, 0))])
def test_a_factor_that_is_not_finite_makes_its_record_zero_and_costs_the_others_nothing(place, at, bad):
    grid, parts = StepGrid.fine(1.0, 1.0), factors(4, 2)
    wanted = to_integers([part.clone() for part in parts], grid, OUTER)
    parts[place][(1, *at)] = bad
    found = to_integers(parts, grid, OUTER)
    product = multiplied([part[1:2] for part in found], grid.coarse, grid.input_steps)
    assert sum(int(value) ** 2 for value in product[0]) <= grid.norm**2
    if not abs(bad) < np.inf:
        assert not product.any()
    for own, others in zip(found, wanted, strict=True):
        assert torch.equal(own[[0, 2, 3]], others[[0, 2, 3]])


def test_products_that_are_too_long_make_a_record_zero(monkeypatch):
    """Were the squares wrong that the scale follows from, those of the check would not be."""
    squares, asked = clipping._Pair.squares, []
    monkeypatch.setattr(
        clipping._Pair,
        "squares",
        lambda *of: (asked.append(1) or squares(*of)) * (0.8 if len(asked) <= len(OUTER) else 1.0),
    )
    parts = [part * 0 if place == 0 else part for place, part in enumerate(factors(6, 3, 1e4))]
    found = to_integers(parts, StepGrid.fine(1.0, 1.0), OUTER)
    assert not any(part.any() for part in found)


def test_products_that_cancel_are_bounded_by_their_sum_and_too_many_have_no_bound():
    """Two positions whose products are each other's opposite: nothing is left of them, however large they are."""
    grid, outer = StepGrid.fine(1.0, 1.0), {0: Factors(1, False)}
    for size, kept in ((2.0**10, True), (2.0**19, False)):
        # Inputs become 256 times as large, and outputs stay as they are where the scale is 1.
        pair = torch.tensor([[[size, size * 64], [-size, size * 64]], [[0.5, 1.0], [0.5, 1.0]]])
        found = to_integers([pair], replace(grid, clip=2.0**60, norm=2.0**60 * grid.input_steps), outer)
        total = torch.zeros(1, dtype=torch.int64)
        add_integers([total], found, 1, grid, outer)
        assert total.tolist() == [0]
        assert bool(found[0][0].any()) is kept


def test_the_bound_of_many_positions_lies_above_the_square_by_the_slack():
    rng, grid = np.random.default_rng(1), StepGrid.fine(1.0, 1.0)
    own = torch.from_numpy(rng.integers(-(2**15), 2**15, (5, 16, 9)).astype(np.float32))
    pair = clipping._Pair(own[:, :, :6], own[:, :, 6:], bias=False)
    bound = clipping._bound([], [pair], own, grid)
    products = own.numpy().astype(object)
    products = (products[:, :, 6:, None] * products[:, :, None, :6]).sum(axis=1).reshape(5, -1)
    for found, most, row in zip(bound.tolist(), pair.most(grid).tolist(), products, strict=True):
        exact = sum(int(value) ** 2 for value in row)
        assert 2.0**-35 * most < found - exact < 2.0**-33 * most
