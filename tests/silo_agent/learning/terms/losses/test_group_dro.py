from dataclasses import replace

import numpy as np
import pytest
import torch

from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses import cross_entropy
from silo_agent.learning.terms.losses.group_dro import loss, moved, risks
from silo_agent.learning.terms.term import Batch, Seen

WHERE = torch.tensor([0, 0, 2, 2, 2, 0])


def seen(groups=(0.2, 0.3, 0.5)):
    drawn = torch.Generator().manual_seed(1)
    phi = torch.randn(6, 2, generator=drawn, dtype=torch.float64)
    heads = torch.randn(1, 3, generator=drawn, dtype=torch.float64)
    y, none = torch.tensor([0, 1, 1, 0, 1, 0]), torch.zeros(6, dtype=torch.int64)
    batch = Batch(phi, None, y, none, None, heads, family_of(2), WHERE)
    return Seen(batch, phi, groups=torch.tensor(groups, dtype=torch.float64))


def test_with_the_mean_loss_it_is_the_weighted_sum_of_the_environments_risks():
    own = seen()
    each = cross_entropy.losses(own).numpy()
    first, last = each[WHERE == 0].mean(), each[WHERE == 2].mean()
    assert loss(own, None, None).item() + each.mean() == pytest.approx(0.2 * first + 0.5 * last)
    np.testing.assert_allclose(risks(own, 3), [first, 0.0, last], rtol=1e-12)


def test_weights_move_by_exponentiated_gradient():
    before, found = np.array([0.2, 0.3, 0.5]), np.array([0.7, 0.0, 2.0])
    wanted = before * np.exp(0.1 * found)
    np.testing.assert_allclose(moved(before, found, 0.1), wanted / wanted.sum(), rtol=1e-12)
    np.testing.assert_array_equal(moved(before, np.array([0.0, 0.0, 1e6]), 10.0), [0.0, 0.0, 1.0])


def test_without_weights_it_says_so():
    with pytest.raises(ValueError, match="weights of the environments"):
        loss(replace(seen(), groups=None), None, None)
