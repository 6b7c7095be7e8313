"""Somebody who has an exported folder and no FedWard: prepares records by the card and predicts them.

Run as a program of its own: `stranger.py onnx|tensors FOLDER RECORDS.csv OUT.npy`. It reads nothing but the folder's
files and the records, and it cannot import FedWard. With `tensors` numpy alone computes the layers that the card lists;
convolutions and maxima take torch's functions.
"""
# ruff: noqa: PLC0415  # each way of predicting needs what it needs and no more

import csv
import json
import math
import sys
from pathlib import Path

for _name in ("silo_agent", "policies", "crypto", "protos", "common", "coordinator"):
    sys.modules[_name] = None

import numpy as np  # noqa: E402


# --- records, by the card -------------------------------------------------------------------------------------------
def same(cell, code):
    if isinstance(code, str):
        return cell == code.strip()
    try:
        return float(cell) == float(code)
    except ValueError:
        return False


def prepare(card, rows, folder):
    data = card["data"]
    feeds = {"domain": np.array([domain_of(card, row) for row in rows], np.int64)}
    if data["inputs"]:
        coordinates = [[coordinate(data, entry, row) for entry in data["inputs"]] for row in rows]
        feeds["inputs"] = np.array(coordinates, np.float32)
    if data["image"]:
        feeds["images"] = np.stack([pixels(data["image"], folder / row[data["image"]["column"]]) for row in rows])
    return feeds


def coordinate(data, entry, row):
    cell = row[entry["column"]].strip()
    absent = cell in data["missing"] or any(same(cell, code) for code in entry["missing"])
    if entry["value"] == "absent":
        return float(absent)
    if entry["value"] == "equals":
        return float(same(cell, entry["code"]))
    value = entry["fill"] if absent else float(cell)
    low, high = entry["minimum"], entry["maximum"]
    if entry["outside"] == "clip":
        value = min(max(value, low), high)
    along = {"linear": float, "log": math.log, "log1p": math.log1p}[entry["scale"]]
    value, low, high = along(value), along(low), along(high)
    return 2 * (value - low) / (high - low) - 1


def domain_of(card, row):
    index = 0
    for factor in card["domains"]["factors"]:
        cell, places = row[factor["column"]].strip(), factor["places"]
        if "code" in places[0]:
            found = [i for i, place in enumerate(places) if same(cell, place["code"])]
        else:
            below = [math.inf if place["below"] is None else place["below"] for place in places]
            found = [next(i for i, edge in enumerate(below) if float(cell) < edge)]
        if not found:
            return card["architecture"]["inputs"]["domain"]["unknown"]
        index = index * len(places) + found[0]
    return index


def pixels(image, path):
    from PIL import Image

    raw = np.asarray(Image.open(path)).astype(np.float64)
    channels = []
    for values in [raw] if raw.ndim == 2 else np.moveaxis(raw, -1, 0):
        share = np.clip((values - image["minimum"]) / (image["maximum"] - image["minimum"]), 0, 1).astype(np.float32)
        size = (image["width"], image["height"])
        share = np.asarray(Image.fromarray(share).resize(size, Image.Resampling.BILINEAR))
        level = np.rint(np.clip(share, 0, 1) * image["levels"])
        channels.append((2 * level - image["levels"]) / image["levels"])
    return np.stack(channels).astype(np.float32)


# --- predictions ----------------------------------------------------------------------------------------------------
def by_onnx(card, folder, feeds):
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / card["files"]["onnx"])
    (output,) = card["architecture"]["output"]
    return session.run([output], feeds)[0]


def by_tensors(card, folder, feeds):
    tensors, values = read_safetensors(folder / card["files"]["safetensors"]), dict(feeds)
    for layer in card["architecture"]["layers"]:
        weights = {role: tensors[name] for role, name in layer["tensors"].items()}
        compute = globals()["op_" + layer["operation"]]
        values[layer["output"]] = compute(*(values[name] for name in layer["inputs"]), **weights, **layer["settings"])
    (output,) = card["architecture"]["output"]
    return values[output]


def read_safetensors(path):
    blob = path.read_bytes()
    start = 8 + int.from_bytes(blob[:8], "little")
    kinds = {"F32": np.float32, "F64": np.float64}
    found = {}
    for name, entry in json.loads(blob[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            raw = np.frombuffer(blob[start + first : start + last], kinds[entry["dtype"]])
            found[name] = raw.reshape(entry["shape"])
    return found


def op_linear(x, weight, bias=0.0):
    return x @ weight.T + bias


def op_tanh(x):
    return np.tanh(x)


def op_relu(x):
    return np.maximum(x, 0)


def op_add(a, b):
    return a + b


def op_scale(x, factor):
    return x * factor


def op_concatenate(*parts):
    return np.concatenate(parts, axis=1)


def op_cos(x):
    return np.cos(x)


def op_flatten(x):
    return x.reshape(len(x), -1)


def op_global_average(x):
    return x.mean(axis=(2, 3))


def op_conv2d(x, weight, stride, padding, bias=None):
    return by_torch("conv2d", x, weight, bias, stride=stride, padding=padding)


def op_max_pool2d(x, size, stride, padding):
    return by_torch("max_pool2d", x, kernel_size=size, stride=stride, padding=padding)


def op_group_norm(x, weight, bias, groups, epsilon):
    grouped = x.reshape(len(x), groups, -1)
    centred = grouped - grouped.mean(axis=2, keepdims=True)
    even = (centred / np.sqrt((centred**2).mean(axis=2, keepdims=True) + epsilon)).reshape(x.shape)
    return even * weight[:, None, None] + bias[:, None, None]


def by_torch(name, *arrays, **settings):
    import torch

    given = [None if array is None else torch.tensor(array) for array in arrays]
    return getattr(torch.nn.functional, name)(*given, **settings).numpy()


def op_linear_by_domain(x, weight, bias):
    return np.einsum("nk,mrk->nmr", x.astype(np.float64), weight) + bias


def op_two_classes(x):
    p = 1 / (1 + np.exp(-x))
    return np.concatenate([1 - p, p], axis=2)


def op_softmax(x):
    e = np.exp(x - x.max(axis=2, keepdims=True))
    return e / e.sum(axis=2, keepdims=True)


def op_choose_domain(x, domain, weight):
    return (weight[np.where(domain < 0, -1, domain)][:, :, None] * x).sum(axis=1)


def op_clipped(x):
    return np.minimum(np.maximum(x, -1), 1)


def op_in_unit(x, minimum, maximum):
    return minimum + (maximum - minimum) * (x + 1) / 2


def op_exp(x):
    return np.exp(x)


def op_expm1(x):
    return np.expm1(x)


def main():
    how, folder, records, out = sys.argv[1], *map(Path, sys.argv[2:])
    card = json.loads(next(folder.glob("*model-card.json")).read_bytes())
    with records.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=card["data"]["delimiter"]))
    feeds = prepare(card, rows, records.parent)
    np.save(out, {"onnx": by_onnx, "tensors": by_tensors}[how](card, folder, feeds))


if __name__ == "__main__":
    main()
