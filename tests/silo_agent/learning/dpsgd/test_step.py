"""The step that trains: exact sums and the whole noise, parameter by parameter, and nothing beyond what was charged."""

import numpy as np
import pytest
import torch
from torch import nn

from silo_agent.learning.dpsgd import step as steps
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.noise_ahead import Ahead
from silo_agent.learning.dpsgd.step import PrivateStep

GRID = StepGrid.of(2.0, 0.0)
RATES = (0.5, 0.25)


def parameters():
    return [nn.Parameter(torch.full(shape, 1.0)) for shape in ((3, 4), (5,))]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_each_parameter_moves_by_its_own_sum_and_noise(monkeypatch, momentum):
    monkeypatch.setattr(steps, "PIECE", 5)
    rng = np.random.default_rng(1)
    noises, sums = rng.integers(-(2**30), 2**30, (2, 17)), rng.integers(-(2**30), 2**30, (2, 17))
    moved, weights, going = parameters(), np.ones(17), np.zeros(17)
    optimizer = torch.optim.SGD(moved, lr=9.0, momentum=momentum)
    drawn = iter(noises.ravel())
    with Ahead(lambda count: np.array([next(drawn) for _ in range(count)]), 17, 2) as noise:
        step = PrivateStep(optimizer, GRID, 10, noise, RATES)
        for number, rate in enumerate(RATES):
            for total, own in zip(step.totals, np.split(sums[number], [12]), strict=True):
                total.add_(torch.from_numpy(own))
            step.take()
            gradient = (sums[number] + noises[number]) * (GRID.unit / 10)
            going = gradient if number == 0 else momentum * going + gradient
            weights = weights - rate * going
            found = np.concatenate([one.detach().numpy().ravel() for one in moved])
            np.testing.assert_allclose(found, weights, rtol=1e-5, atol=1e-4)
            assert not any(total.any() for total in step.totals), "the next sum begins at zero"


def test_without_noise_left_nothing_moves():
    moved = parameters()
    with Ahead(lambda count: np.zeros(count, np.int64), 17, 1) as noise:
        step = PrivateStep(torch.optim.SGD(moved, lr=1.0), GRID, 10, noise, (1.0, 1.0))
        step.take()
        for total in step.totals:
            total.add_(1 << 40)
        with pytest.raises(LookupError, match="no more steps than were charged"):
            step.take()
    assert all(torch.equal(one, torch.ones_like(one)) for one in moved)


def test_a_term_that_reads_weights_moves_those_that_are_drawn_from_where_they_began(monkeypatch):
    monkeypatch.setattr(steps, "step_gradient", lambda terms, weight, start: len(terms) * (weight - start + 1.0))
    moved, optimizer = parameters(), torch.optim.SGD
    step = PrivateStep(optimizer(moved, lr=9.0), GRID, 10, None, (0.5, 0.25), terms=("one",), drawn=moved[1:])
    step.take()
    assert torch.equal(moved[1], torch.full((5,), 0.5))
    step.take()
    assert torch.equal(moved[1], torch.full((5,), 0.5 - 0.25 * 0.5))
    assert torch.equal(moved[0], torch.ones(3, 4))
