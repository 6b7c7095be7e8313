"""The gradient that is written out is the one of autograd."""

import numpy as np
import pytest
import torch
from torch import nn

from bench.papers.local_global import network
from bench.papers.local_global.network import Digits, VisitTraining

SIZES = (12, 8, 7, 6, 5, 3)


def some(count=23):
    drawn = torch.Generator().manual_seed(1)
    return Digits(
        torch.randint(256, (count, SIZES[0]), dtype=torch.uint8, generator=drawn),
        torch.randint(SIZES[-1], (count,), generator=drawn),
    )


def as_module(weights):
    layers = [nn.Linear(values.shape[1], values.shape[0]) for values in weights[::2]]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, weights[::2], weights[1::2], strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))[:-1]


@pytest.mark.parametrize("frozen", [0, 3])
def test_a_visit_is_what_torchs_sgd_does(frozen):
    digits, begin, training = some(), network.start(4, SIZES), VisitTraining()
    module = as_module(begin)
    moving = list(module.parameters())[: len(begin) - 2 * frozen]
    optimizer = torch.optim.SGD(moving, lr=training.rate, momentum=training.momentum)
    rng = np.random.default_rng(7)
    for _ in range(2):
        for rows in torch.split(torch.from_numpy(rng.permutation(len(digits.labels))), training.batch):
            optimizer.zero_grad()
            torch.autograd.backward(
                nn.functional.cross_entropy(module(digits.inputs()[rows]), digits.labels[rows]), inputs=moving
            )
            optimizer.step()
    found = network.train(begin, digits, np.random.default_rng(7), training, epochs=2, frozen=frozen)
    for mine, theirs in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.detach(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(network.logits(found, digits.inputs()), module(digits.inputs()).detach())


def test_frozen_layers_stay_the_same_bits_and_the_given_weights_too():
    begin = network.start(4, SIZES)
    before = [values.clone() for values in begin]
    found = network.train(begin, some(), np.random.default_rng(7), VisitTraining(), frozen=3)
    assert all(torch.equal(one, other) for one, other in zip(begin, before, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(network.upper(found), network.upper(begin), strict=True))
    assert not any(
        torch.equal(one, other) for one, other in zip(network.lower(found), network.lower(begin), strict=True)
    )


def test_the_shared_part_has_the_papers_size():
    weights = network.start(1)
    assert network.count(weights) == 633_226
    assert network.count(network.upper(weights)) == 99_978


def test_the_mean_counts_records():
    models = [[torch.tensor([0.0, 4.0])], [torch.tensor([4.0, 0.0])]]
    assert network.mean(models, [3, 1])[0].tolist() == [1.0, 3.0]
