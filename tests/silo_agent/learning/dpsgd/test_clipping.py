import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from silo_agent.learning.dpsgd import clipping
from silo_agent.learning.dpsgd.clipping import StepGrid, add_integers, to_integers

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
        clipping, "_norms", lambda flat: (asked.append(1) or norms(flat)) * (0.9 if len(asked) == 1 else 1.0)
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
        add_integers(totals, parts, count)
        assert totals[0].tolist() == [7 + count * 2**20] * 4
        assert totals[1].tolist() == parts[1][:count].numpy().astype(np.int64).sum(axis=0).tolist()
    shuffled = [part[torch.randperm(rows, generator=torch.Generator().manual_seed(1))] for part in parts]
    sums = [[torch.zeros(part.shape[1], dtype=torch.int64) for part in parts] for _ in range(2)]
    add_integers(sums[0], parts, rows)
    add_integers(sums[1], shuffled, rows)
    assert all(map(torch.equal, *sums))
    assert grid.norm == 2**20
