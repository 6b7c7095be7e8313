"""The ONNX graph of a network, built node by node from its list of layers, for any number of records.

Guarantees: the graph has only operations that every runtime of opset 18 has (GroupNorm is written out), and no weight
outside the file. Equal networks give equal bytes. The caller must `run` it to check that it computes what the network
does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from policies.documents.study import Image
from silo_agent.learning.encoder.layers import Layer, Network

OPSET = 18
_IR_VERSION = 8
_BATCH = "records"
_LAST = 2
_SIMPLE: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "cos": ("Cos", {}),
    "add": ("Add", {}),
    "flatten": ("Flatten", {"axis": 1}),
    "concatenate": ("Concat", {"axis": 1}),
    "softmax": ("Softmax", {"axis": -1}),
    "exp": ("Exp", {}),
}
"""Operations that are one node without weights."""


def build(network: Network, *, inputs: int, image: Image | None, classes: int, metadata: Mapping[str, object]) -> bytes:
    """Serialise the graph, checked by `onnx.checker`. Texts of `metadata` stay as they are; other values become JSON.

    Inputs: `inputs` float32 (n, d) if d = `inputs` > 0, `images` float32 (n, c, h, w) if there are any, `domain`
    int64 (n,). Output: `network.output` float64 (n, `classes`): probabilities, or the value of a number.
    """
    graph = _Graph(network)
    for layer in network.layers:
        graph.append(layer)
    entries = []
    if inputs:
        entries.append(helper.make_tensor_value_info("inputs", TensorProto.FLOAT, [_BATCH, inputs]))
    if image is not None:
        shape = [_BATCH, image.channels, image.height, image.width]
        entries.append(helper.make_tensor_value_info("images", TensorProto.FLOAT, shape))
    entries.append(helper.make_tensor_value_info("domain", TensorProto.INT64, [_BATCH]))
    given = helper.make_tensor_value_info(network.output, TensorProto.DOUBLE, [_BATCH, classes])
    whole = helper.make_model(
        helper.make_graph(graph.nodes, "fedward", entries, [given], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="fedward",
        ir_version=_IR_VERSION,
    )
    helper.set_model_props(whole, {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()})
    onnx.checker.check_model(whole, full_check=True)
    return bytes(whole.SerializeToString(deterministic=True))


def run(blob: bytes, values: Mapping[str, NDArray[np.generic]]) -> NDArray[np.float64]:
    """Return what the graph computes on the CPU for its inputs by name: float64, its one output."""
    session = onnxruntime.InferenceSession(blob, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(values))[0], np.float64)


class _Graph:
    """Nodes and constants, added layer by layer. A layer's output has the layer's name; steps before it have a `/`."""

    def __init__(self, network: Network) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._network = network

    def append(self, layer: Layer) -> None:
        """Add a layer's nodes."""
        special: dict[str, Callable[[Layer], None]] = {
            "conv2d": self._conv2d,
            "group_norm": self._group_norm,
            "max_pool2d": self._max_pool2d,
            "global_average": self._global_average,
            "linear": self._linear,
            "scale": self._scale,
            "linear_by_domain": self._linear_by_domain,
            "two_classes": self._two_classes,
            "choose_domain": self._choose_domain,
            "clipped": self._clipped,
            "in_unit": self._in_unit,
            "expm1": self._expm1,
        }
        if layer.operation in special:
            special[layer.operation](layer)
        else:
            operation, settings = _SIMPLE[layer.operation]
            self._node(operation, layer.inputs, layer.output, **settings)

    def _node(self, operation: str, inputs: tuple[str, ...], output: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(operation, list(inputs), [output], name=output, **settings))
        return output

    def _constant(self, name: str, array: NDArray[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _weight(self, layer: Layer, role: str) -> str:
        name = layer.tensors[role]
        return self._constant(name, self._network.tensors[name])

    def _linear(self, layer: Layer) -> None:
        names = (*layer.inputs, *(self._weight(layer, role) for role in layer.tensors))
        self._node("Gemm", names, layer.output, transB=1)

    def _conv2d(self, layer: Layer) -> None:
        names = (*layer.inputs, *(self._weight(layer, role) for role in layer.tensors))
        stride, padding = int(layer.settings["stride"]), int(layer.settings["padding"])
        self._node("Conv", names, layer.output, strides=[stride] * 2, pads=[padding] * 4)

    def _group_norm(self, layer: Layer) -> None:
        """Use InstanceNormalization with groups as channels, because GroupNormalization itself is newer."""
        groups, own = int(layer.settings["groups"]), layer.output
        plain = self._constant(f"{own}/ones", np.ones(groups, np.float32))
        zero = self._constant(f"{own}/zeros", np.zeros(groups, np.float32))
        split = self._constant(f"{own}/split", np.array([0, groups, -1], np.int64))
        grouped = self._node("Reshape", (*layer.inputs, split), f"{own}/grouped")
        epsilon = float(layer.settings["epsilon"])
        even = self._node("InstanceNormalization", (grouped, plain, zero), f"{own}/even", epsilon=epsilon)
        shape = self._node("Shape", layer.inputs, f"{own}/shape")
        level = self._node("Reshape", (even, shape), f"{own}/level")
        weight, bias = (
            self._constant(name, self._network.tensors[name].reshape(-1, 1, 1))
            for name in (layer.tensors["weight"], layer.tensors["bias"])
        )
        self._node("Add", (self._node("Mul", (level, weight), f"{own}/scaled"), bias), own)

    def _max_pool2d(self, layer: Layer) -> None:
        size, stride, padding = (int(layer.settings[key]) for key in ("size", "stride", "padding"))
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        self._node("MaxPool", layer.inputs, layer.output, **window)

    def _global_average(self, layer: Layer) -> None:
        averaged = self._node("GlobalAveragePool", layer.inputs, f"{layer.output}/map")
        self._node("Flatten", (averaged,), layer.output, axis=1)

    def _scale(self, layer: Layer) -> None:
        factor = self._constant(f"{layer.output}/factor", np.array(layer.settings["factor"], np.float32))
        self._node("Mul", (*layer.inputs, factor), layer.output)

    def _linear_by_domain(self, layer: Layer) -> None:
        """Compute all domains' rows as one matrix, in float64 as FedWard itself computes heads."""
        own, weight = layer.output, self._network.tensors[layer.tensors["weight"]]
        domains, rows, width = weight.shape
        exact = self._node("Cast", layer.inputs, f"{own}/exact", to=TensorProto.DOUBLE)
        matrix = self._constant(layer.tensors["weight"], weight.reshape(domains * rows, width).T)
        product = self._node("MatMul", (exact, matrix), f"{own}/product")
        shape = self._constant(f"{own}/by_domain", np.array([-1, domains, rows], np.int64))
        shaped = self._node("Reshape", (product, shape), f"{own}/shaped")
        self._node("Add", (shaped, self._weight(layer, "bias")), own)

    def _two_classes(self, layer: Layer) -> None:
        own = layer.output
        yes = self._node("Sigmoid", layer.inputs, f"{own}/yes")
        no = self._node("Sub", (self._constant(f"{own}/one", np.array(1.0)), yes), f"{own}/no")
        self._node("Concat", (no, yes), own, axis=_LAST)

    def _clipped(self, layer: Layer) -> None:
        ends = (self._constant(f"{layer.output}/{name}", np.array(end)) for name, end in (("low", -1.0), ("high", 1.0)))
        self._node("Clip", (*layer.inputs, *ends), layer.output)

    def _in_unit(self, layer: Layer) -> None:
        """Compute minimum + half of the range times (x + 1), as `silo_agent.data.outcome` does."""
        own, low, high = layer.output, layer.settings["minimum"], layer.settings["maximum"]
        one = self._constant(f"{own}/one", np.array(1.0))
        half = self._constant(f"{own}/half", np.array((high - low) / 2.0))
        start = self._constant(f"{own}/start", np.array(float(low)))
        moved = self._node("Add", (*layer.inputs, one), f"{own}/moved")
        self._node("Add", (self._node("Mul", (moved, half), f"{own}/wide"), start), own)

    def _expm1(self, layer: Layer) -> None:
        own = layer.output
        grown = self._node("Exp", layer.inputs, f"{own}/grown")
        self._node("Sub", (grown, self._constant(f"{own}/one", np.array(1.0))), own)

    def _choose_domain(self, layer: Layer) -> None:
        """Choose a record's row of weights. Index -1 is the last row, and every negative domain becomes -1."""
        by_domain, domain = layer.inputs
        own = layer.output
        unknown = self._constant(f"{own}/unknown", np.array(-1, np.int64))
        place = self._node("Max", (domain, unknown), f"{own}/place")
        shares = self._node("Gather", (self._weight(layer, "weight"), place), f"{own}/shares", axis=0)
        last = self._constant(f"{own}/last", np.array([_LAST], np.int64))
        column = self._node("Unsqueeze", (shares, last), f"{own}/column")
        weighed = self._node("Mul", (by_domain, column), f"{own}/weighed")
        axis = self._constant(f"{own}/domains", np.array([1], np.int64))
        self._node("ReduceSum", (weighed, axis), own, keepdims=0)
