import numpy as np
import pytest
import torch
from torch import nn

from policies.plan import shapes
from silo_agent.learning.encoder.layers import OPERATIONS, describe
from silo_agent.learning.personal.unknown_domain import network_of
from support.models import STUDIES, random_model, study_of


def network(study):
    model = random_model(study)
    encoder, heads = network_of(model)
    shares = np.full(len(heads), 1 / len(heads))
    data = study.data
    return model, describe(encoder, heads, shares, model.family, inputs=data.inputs, label=data.label)


@pytest.mark.parametrize("kind", STUDIES)
def test_every_layer_stands_on_earlier_values_and_named_tensors(kind):
    study = study_of(kind)
    _, found = network(study)
    known = {"domain"} | ({"inputs"} if study.data.inputs else set()) | ({"images"} if study.data.image else set())
    used = set()
    for layer in found.layers:
        assert set(layer.inputs) <= known
        assert layer.output not in known
        assert layer.operation in OPERATIONS
        known.add(layer.output)
        used |= set(layer.tensors.values())
    assert found.output == found.layers[-1].output == ("value" if study.data.label.number else "probabilities")
    assert used == set(found.tensors)


@pytest.mark.parametrize("kind", STUDIES)
def test_every_weight_is_there_once(kind):
    study = study_of(kind)
    model, found = network(study)
    encoder = [array for name, array in found.tensors.items() if not name.startswith(("heads.", "domains.", "beside."))]
    unused = 0
    if study.encoder.cmi > 0:  # the deviations' rows of the last layer
        width = study.model.hidden[-1] if study.model.hidden else study.data.inputs
        unused = study.model.representation * (width + 1)
    assert sum(array.size for array in encoder) == shapes.encoder_values(study) - unused
    assert all(array.dtype == np.float32 for array in encoder)
    heads = found.tensors["heads.weight"].size + study.model.bias * found.tensors["heads.bias"].size
    assert heads == model.heads.size
    assert study.model.bias == found.tensors["heads.bias"].any()


def test_the_rows_of_a_head_are_its_classes_with_the_bias_last():
    model, found = network(study_of("stochastic mlp of three classes"))
    weight, bias = found.tensors["heads.weight"], found.tensors["heads.bias"]
    assert weight.shape == (2, 3, 2)
    np.testing.assert_array_equal(weight[1, 2], model.heads[1, 6:8])
    assert bias[1, 2] == model.heads[1, 8]


def test_settings_are_those_of_the_modules():
    model, found = network(study_of("resnet18"))
    norm = model.build_encoder().image_network[1]
    layers = {layer.output: layer for layer in found.layers}
    assert layers["image_network.0"].settings == {"stride": 2, "padding": 3}
    assert layers["image_network.3"].settings == {"size": 3, "stride": 2, "padding": 1}
    assert layers["image_network.6.shortcut.0"].settings == {"stride": 2, "padding": 0}
    assert layers["image_network.1"].settings == {"groups": norm.num_groups, "epsilon": norm.eps}


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (nn.Sigmoid(), r"layers\.1 is a Sigmoid"),
        (nn.Conv2d(1, 1, 3, stride=(1, 2)), "differs between height and width"),
        (nn.MaxPool2d((2, 3)), "differs between height and width"),
        (nn.AdaptiveAvgPool2d(2), "is a AdaptiveAvgPool2d"),
    ],
)
def test_a_module_without_a_word_for_it_is_an_error(module, why):
    model = random_model(study_of("linear mlp"))
    encoder, heads = network_of(model)
    encoder.layers.append(module)
    with pytest.raises(TypeError, match=why):
        describe(encoder, heads, np.array([0.5, 0.5]), model.family, inputs=2, label=study_of("linear mlp").data.label)


def test_tensors_are_copies():
    model = random_model(study_of("linear mlp"))
    encoder, heads = network_of(model)
    found = describe(
        encoder, heads, np.array([0.5, 0.5]), model.family, inputs=2, label=study_of("linear mlp").data.label
    )
    before = {name: array.copy() for name, array in found.tensors.items()}
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.fill_(7.0)
    for name, array in found.tensors.items():
        np.testing.assert_array_equal(array, before[name])
