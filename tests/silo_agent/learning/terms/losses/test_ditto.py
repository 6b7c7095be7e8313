import pytest
import torch
from torch import nn

from silo_agent.learning.terms.losses.ditto import loss


def test_it_is_half_the_squared_distance_of_all_weights_and_pulls_to_the_shared_ones():
    own, anchor = nn.Linear(3, 2), nn.Linear(3, 2).requires_grad_(requires_grad=False)
    found = loss(None, own, anchor)
    distance = sum(((a - b) ** 2).sum() for a, b in zip(own.parameters(), anchor.parameters(), strict=True))
    assert found.item() == pytest.approx(distance.item() / 2)
    (gradient,) = torch.autograd.grad(found, [own.bias])
    torch.testing.assert_close(gradient, (own.bias - anchor.bias).detach())


def test_networks_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        loss(None, nn.Linear(3, 2), nn.Linear(3, 2, bias=False))
