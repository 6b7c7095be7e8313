"""Factors of linear layers' gradients: multiplied they are what autograd gives a record that is alone."""

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd.examination import require_apart
from silo_agent.learning.dpsgd.outer_products import OuterProducts, is_outer, outer_weights, whole_gradients

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


class Mixed(nn.Module):
    """Linear layers with a bias and without, a table, and a layer that stands still."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.first, self.bare, self.last = nn.Linear(4, 6), nn.Linear(6, 5, bias=False), nn.Linear(5, 2)
        self.still = nn.Linear(2, 2).requires_grad_(requires_grad=False)
        self.partly = nn.Linear(2, 1)
        self.partly.bias.requires_grad = False
        self.moved = nn.Linear(1, 1)
        self.moved.weight.requires_grad = False

    def forward(self, x):
        return self.moved(
            self.partly(self.still(self.last(torch.tanh(self.bare(torch.tanh(self.first(self.table(x))))))))
        )


def test_the_weights_of_linear_layers_whose_bias_is_trained_too_have_factors():
    network = Mixed()
    names = [name for name, one in network.named_parameters() if one.requires_grad]
    outer = outer_weights(network)
    assert {names[place] for place in outer} == {"first.weight", "last.weight"}
    assert {names[place + 1] for place in outer} == {"first.bias", "last.bias"}
    assert [name for name, layer in network.named_modules() if is_outer(layer)] == ["first", "last"]


@pytest.mark.parametrize("kind", [OuterProducts, GradSampleModule])
def test_gradients_by_record_are_those_of_a_record_alone(kind):
    torch.manual_seed(1)
    network = Mixed().double()
    x = torch.tensor([0, 2, 1, 1, 0])
    expected = []
    for record in range(5):
        network.zero_grad()
        network(x[record : record + 1]).square().sum().backward()
        expected.append([one.grad.clone() for one in network.parameters() if one.requires_grad])
    network.zero_grad()
    hooked = kind(network, loss_reduction="sum")
    hooked(x).square().sum().backward()
    found = dict(whole_gradients(hooked))
    assert list(found) == [name for name, one in hooked.named_parameters() if one.requires_grad]
    for samples, own in zip(found.values(), zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(samples, torch.stack(own))
    kept = [one.grad_sample.shape for one in network.first.parameters()]
    assert kept == ([(5, 4), (5, 6)] if kind is OuterProducts else [(5, 6, 4), (5, 6)])


def test_what_the_loss_does_not_read_has_no_gradient():
    network = Mixed()
    hooked = OuterProducts(network, loss_reduction="sum")
    network.bare(torch.tanh(network.first(network.table(torch.tensor([0, 1]))))).sum().backward()
    found = dict(whole_gradients(hooked))
    assert found["_module.last.weight"] is None
    assert found["_module.first.weight"].shape == (2, 6, 4)


class Twice(nn.Module):
    """One layer that is called twice, so that its gradient is no outer product."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x)))


def test_a_layer_that_is_called_twice_is_refused():
    torch.manual_seed(1)
    network, x = Twice().double(), torch.randn(4, 3, dtype=torch.float64)
    hooked, optimizer = OuterProducts(network, loss_reduction="sum"), torch.optim.SGD(network.parameters(), lr=1.0)
    with pytest.raises(Refused) as caught:
        require_apart(hooked, optimizer, lambda part: hooked(x[part]).square().sum(dim=1), 4)
    assert caught.value.reason is Reason.NO_PER_SAMPLE_GRADIENT
    assert caught.value.text.startswith("layer.weight has another gradient by record than the record has alone")
