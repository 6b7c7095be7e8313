import json

import numpy as np
import onnx
import pytest

from silo_agent.data.outcome import scaled_back
from silo_agent.learning.encoder.layers import describe
from silo_agent.learning.personal.unknown_domain import network_of
from silo_agent.models.onnx_graph import OPSET, build, run
from support.models import DAYS, DOSE, STUDIES, VISITS, random_model, study_of
from support.studies import tiny_study


def graph_of(study, **metadata):
    model = random_model(study)
    encoder, heads = network_of(model)
    data, shares = study.data, np.full(len(heads), 1 / len(heads))
    network = describe(encoder, heads, shares, model.family, inputs=data.inputs, label=data.label)
    return build(network, inputs=data.inputs, image=data.image, classes=data.label.count, metadata=metadata)


@pytest.mark.parametrize("kind", STUDIES)
def test_inputs_and_output_are_named_typed_and_of_any_length(kind):
    study = study_of(kind)
    graph = onnx.load_from_string(graph_of(study)).graph

    def form(value):
        kind = value.type.tensor_type
        return kind.elem_type, [size.dim_param or size.dim_value for size in kind.shape.dim]

    found = {value.name: form(value) for value in graph.input}
    wanted = {"domain": (onnx.TensorProto.INT64, ["records"])}
    if study.data.inputs:
        wanted["inputs"] = (onnx.TensorProto.FLOAT, ["records", study.data.inputs])
    if study.data.image:
        image = study.data.image
        wanted["images"] = (onnx.TensorProto.FLOAT, ["records", image.channels, image.height, image.width])
    assert found == wanted
    output = (onnx.TensorProto.DOUBLE, ["records", study.data.label.count])
    name = "probabilities" if study.data.label.number is None else "value"
    assert {value.name: form(value) for value in graph.output} == {name: output}


def test_an_old_runtime_can_read_it():
    model = onnx.load_from_string(graph_of(study_of("resnet18")))
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    assert model.ir_version == 8
    assert all(node.domain == "" for node in model.graph.node)


def test_metadata_are_texts_or_json():
    model = onnx.load_from_string(graph_of(study_of("linear mlp"), a="text", b=["x", 1], c=None))
    found = {entry.key: entry.value for entry in model.metadata_props}
    assert (found["a"], json.loads(found["b"]), json.loads(found["c"])) == ("text", ["x", 1], None)


def test_equal_networks_give_equal_bytes():
    study = study_of("cnn")
    assert graph_of(study, note=1) == graph_of(study, note=1)


def test_one_record_is_predicted_as_among_many():
    study = study_of("stochastic mlp of three classes")
    blob, rng = graph_of(study), np.random.default_rng(1)
    inputs, domain = rng.uniform(-1, 1, (6, 2)).astype(np.float32), np.array([0, 1, -1, 1, 0, -1])
    together = run(blob, {"inputs": inputs, "domain": domain})
    np.testing.assert_allclose(together.sum(axis=1), 1.0, atol=1e-9)
    for i in range(6):
        alone = run(blob, {"inputs": inputs[i : i + 1], "domain": domain[i : i + 1]})
        np.testing.assert_allclose(alone[0], together[i], atol=1e-6)


@pytest.mark.parametrize("label", [DAYS, DOSE, VISITS], ids=["linear", "log", "log1p"])
def test_a_number_gets_its_unit_as_the_model_gives_it(label):
    study = tiny_study(data={"label": label}, evaluation={"bins": 10})
    model, rng = random_model(study), np.random.default_rng(1)
    inputs, domain = rng.uniform(-1, 1, (50, 2)).astype(np.float32), rng.integers(0, 2, 50)
    values = run(graph_of(study), {"inputs": inputs, "domain": domain})
    np.testing.assert_allclose(scaled_back(study.data.label, values), model.predict(inputs, domain), atol=1e-5)
    assert np.ptp(values) > 0.1
