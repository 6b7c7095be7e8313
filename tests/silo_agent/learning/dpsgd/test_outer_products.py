"""Factors of linear layers' gradients: multiplied they are what autograd gives a record that is alone."""

import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd.examination import require_apart
from silo_agent.learning.dpsgd.outer_products import (
    Factors,
    OuterProducts,
    mark_positions,
    outer_weights,
    positions,
    whole_gradients,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


class Mixed(nn.Module):
    """Linear layers with a bias and without, a table, and layers of which something stands still."""

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
        x = self.last(torch.tanh(self.bare(torch.tanh(self.first(self.table(x))))))
        return self.moved(self.partly(self.still(x)))


class Convolved(nn.Module):
    """Convolutions whose factors are smaller than the whole, by few positions, and such whose are not."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(2, 3, 3, padding=1)
        self.deep = nn.Conv2d(3, 40, 3, stride=4, padding=1)
        self.bare = nn.Conv2d(40, 30, (2, 1), bias=False, dilation=(1, 2))
        self.groups = nn.Conv2d(30, 30, 1, groups=2)

    def forward(self, x):
        return self.groups(torch.tanh(self.bare(torch.tanh(self.deep(torch.tanh(self.wide(x))))))).flatten(1)


class Spread(nn.Module):
    """Convolutions with more positions than outputs, whose gradients are whole, and such that no kernel is used for."""

    def __init__(self):
        super().__init__()
        self.deep = nn.Conv2d(2, 6, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(1, 3))
        self.bare = nn.Conv2d(6, 4, 3, padding=1, bias=False)
        self.groups = nn.Conv2d(4, 6, 3, padding=1, groups=2)
        self.same = nn.Conv2d(6, 3, (1, 3), padding="same")
        self.partly, self.moved = nn.Conv2d(3, 4, 2), nn.Conv2d(4, 4, 2)
        self.partly.bias.requires_grad = False
        self.moved.weight.requires_grad = False

    def forward(self, x):
        for layer in self.children():
            x = torch.tanh(layer(x))
        return x.flatten(1)


IMAGES = {Convolved: (2, 7, 7), Spread: (2, 9, 16)}


def test_layers_that_are_trained_whole_have_factors():
    network = Mixed()
    names = [name for name, one in network.named_parameters() if one.requires_grad]
    found = {names[place]: own for place, own in outer_weights(network).items()}
    assert found == {
        "first.weight": Factors(4, True),
        "bare.weight": Factors(6, False),
        "last.weight": Factors(5, True),
    }


def test_convolutions_have_factors_where_these_are_smaller():
    network = Convolved()
    assert outer_weights(network) == {}, "nobody knows how many positions they have"
    mark_positions(network, (2, 7, 7))
    counts = {name: positions(layer) for name, layer in network.named_children()}
    assert counts == {"wide": 49, "deep": 4, "bare": 2, "groups": 2}
    names = [name for name, _ in network.named_parameters()]
    found = {names[place]: own for place, own in outer_weights(network).items()}
    assert found == {"deep.weight": Factors(27, True), "bare.weight": Factors(80, False)}


@pytest.mark.parametrize("kind", [OuterProducts, GradSampleModule])
@pytest.mark.parametrize("made", [Mixed, Convolved, Spread])
def test_gradients_by_record_are_those_of_a_record_alone(kind, made):
    torch.manual_seed(1)
    network = made().double()
    x = torch.tensor([0, 2, 1, 1, 0])
    if made in IMAGES:
        x = torch.randn(5, *IMAGES[made], dtype=torch.float64)
        mark_positions(network, IMAGES[made])
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
    layer, kept, whole = {
        Mixed: ("first", (5, 1, 10), (5, 6, 4)),
        Convolved: ("deep", (5, 4, 67), (5, 40, 3, 3, 3)),
        Spread: ("deep", (5, 6, 2, 3, 2), (5, 6, 2, 3, 2)),
    }[made]
    assert getattr(network, layer).weight.grad_sample.shape == (kept if kind is OuterProducts else whole)


def test_convolutions_with_many_positions_are_not_unfolded(monkeypatch):
    network, seen = Spread(), []
    mark_positions(network, IMAGES[Spread])
    names = {layer: name for name, layer in network.named_children()}
    unfolded = GradSampleModule.GRAD_SAMPLERS[nn.Conv2d]

    def watched(layer, activations, outputs):
        seen.append(names[layer])
        return unfolded(layer, activations, outputs)

    monkeypatch.setitem(GradSampleModule.GRAD_SAMPLERS, nn.Conv2d, watched)
    hooked = OuterProducts(network, loss_reduction="sum")
    hooked(torch.randn(2, *IMAGES[Spread])).square().sum().backward()
    assert sorted(seen) == ["groups", "same"]


def test_what_the_loss_does_not_read_has_no_gradient():
    network = Mixed()
    hooked = OuterProducts(network, loss_reduction="sum")
    network.bare(torch.tanh(network.first(network.table(torch.tensor([0, 1]))))).sum().backward()
    found = dict(whole_gradients(hooked))
    assert found["_module.last.weight"] is None
    assert found["_module.last.bias"] is None
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
