"""A model card as Markdown. It says what the JSON says and nothing else. Programs read the JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from common.figure_words import told

Card = dict[str, Any]


def to_markdown(card: Card) -> str:
    """Render a card of `model_card.model_card`."""
    parts = [_head(card), _use(card), _data(card), _domains(card), _architecture(card), _privacy(card), _quality(card)]
    return "\n\n".join([*parts, _limits(card)]) + "\n"


def _head(card: Card) -> str:
    study, model = card["study"], card["model"]
    title = f"# {study['name']}: {'personal model, PRIVATE' if 'warning' in card else 'shared model'}"
    lines = [title, ""]
    if "warning" in card:
        lines += [f"> **{card['warning']}**", ""]
    lines += [study["purpose"], ""]
    hospitals = study["hospitals"]
    rows = [
        ("kind", card["kind"]),
        ("study (SHA-256)", f"`{study['digest']}`"),
        *((("continues the model (SHA-256)", f"`{study['continues']}`"),) if "continues" in study else ()),
        ("model (SHA-256)", f"`{model['sha256']}`"),
        ("round", f"{model['round']} of {model['rounds']}"),
        ("hospitals", f"{hospitals['listed']} invited, at least {hospitals['at_least']} in every sum"),
        ("made by", f"FedWard {card['fedward']}"),
        *((kind, f"`{name}`") for kind, name in card["files"].items()),
    ]
    return "\n".join([*lines, _table(("", ""), rows)])


def _use(card: Card) -> str:
    network = card["architecture"]
    shapes = [f"`{name}` {value['type']} {_shape(value['shape'])}" for name, value in network["inputs"].items()]
    (output, made), *_ = network["output"].items()
    meaning = (
        f"in the range of column {card['label']} below"
        if "number" in card
        else "one column per class in the order below"
    )
    lines = ["## Use", "", f"Inputs: {', '.join(shapes)}."]
    lines += [f"Output: `{output}` float64 {_shape(made['shape'])}, {meaning}."]
    lines += ["`domain` is the index of the record's domain below, -1 where it is unknown."]
    if "onnx" in card["files"]:
        feed = ", ".join(f'"{name}": {name}' for name in network["inputs"])
        lines += [
            "",
            "```python",
            "import onnxruntime",
            f'session = onnxruntime.InferenceSession("{card["files"]["onnx"]}")',
            f'{output} = session.run(["{output}"], {{{feed}}})[0]',
            "```",
        ]
    return "\n".join(lines)


def _data(card: Card) -> str:
    data = card["data"]
    lines = ["## Data", "", data["reading"]]
    missing = ", ".join(repr(token) for token in data["missing"]) or "nothing"
    lines += ["", f"Absent is: {missing}."]
    if data["inputs"]:
        rows = [(entry["index"], entry["column"], entry["formula"], _range(entry)) for entry in data["inputs"]]
        lines += ["", "`inputs`, coordinate by coordinate, x the cell of the column:", ""]
        lines += [_table(("index", "column", "value", "range, own missing codes"), rows)]
    if data["image"]:
        image = data["image"]
        size = f"{image['channels']} x {image['height']} x {image['width']}"
        lines += ["", f"`images`, {size} ({image['order']}), from column `{image['column']}`:", ""]
        numbers = {key: image[key] for key in ("minimum", "maximum", "levels")}
        lines += [f"{number}. {step}" for number, step in enumerate(image["steps"], 1)]
        lines += ["", ", ".join(f"{key} = {value:g}" for key, value in numbers.items()) + "."]
    return "\n".join(lines)


def _range(entry: Card) -> str:
    parts = [f"[{entry['minimum']:g}, {entry['maximum']:g}]"] if "minimum" in entry else []
    parts += [f"missing: {', '.join(map(repr, entry['missing']))}"] if entry["missing"] else []
    return "; ".join(parts)


def _domains(card: Card) -> str:
    domains, unknown = card["domains"], card["unknown_domain"]
    lines = [f"## Domains and {'outcome' if 'number' in card else 'classes'}", ""]
    rows = [
        (number, name, f"{weight:.4f}")
        for number, (name, weight) in enumerate(zip(domains["names"], unknown["weights"], strict=True))
    ]
    lines += [_table(("domain", "name", "weight where unknown"), rows), ""]
    lines += [f"Where a record's domain is unknown (-1): {unknown['how']}, from {unknown['from']}.", ""]
    for factor in domains["factors"]:
        lines += [f"- column `{factor['column']}`: " + "; ".join(_place(place) for place in factor["places"])]
    lines += ["", f"Index of the domain: {domains['index']}.", ""]
    if "number" in card:
        number = card["number"]
        lines += [f"Outcome: column {card['label']}, a number in [{number['minimum']:g}, {number['maximum']:g}]."]
        return "\n".join([*lines, f"Scale: {number['scale']}; errors are {number['errors']}."])
    classes = [(entry["index"], ", ".join(map(str, entry["codes"]))) for entry in card["classes"]]
    lines += [_table(("class", f"codes in column {card['label']}"), classes)]
    return "\n".join(lines)


def _place(place: Card) -> str:
    if "code" in place:
        return f"{place['name']} = {place['code']!r}"
    low = "" if place["from"] is None else f"{place['from']:g} <= "
    high = "" if place["below"] is None else f" < {place['below']:g}"
    return f"{place['name']}: {low}x{high}"


def _architecture(card: Card) -> str:
    network = card["architecture"]
    rows = [
        (
            f"`{layer['output']}`",
            layer["operation"],
            ", ".join(f"`{name}`" for name in layer["inputs"]),
            ", ".join(f"`{name}` {_shape(network['tensors'][name]['shape'])}" for name in layer["tensors"].values()),
            ", ".join(f"{key} {value:.9g}" for key, value in layer["settings"].items()),
        )
        for layer in network["layers"]
    ]
    operations = [f"- {name}: {meaning}" for name, meaning in network["operations"].items()]
    table = _table(("value", "operation", "of", "tensors", "settings"), rows)
    return "\n".join(["## Architecture", "", f"Encoder: {network['encoder']}.", "", table, "", *operations])


def _privacy(card: Card) -> str:
    privacy = card["privacy"]
    lines = ["## Privacy", ""]
    if "delta" in privacy:
        charged = privacy["epsilon_charged_here"]
        rows = [
            ("epsilon", _number(privacy["epsilon"])),
            ("epsilon of the plan", _number(privacy["epsilon_of_the_plan"])),
            ("epsilon charged at the exporting hospital", "not known" if charged is None else _number(charged)),
            *(
                (f"epsilon of the plan, for a {privacy['unit']} of {many} of its hospitals", _number(bound))
                for many, bound in privacy["epsilon_at_several_hospitals"].items()
            ),
            ("delta", f"{privacy['delta']:g}"),
            ("unit", privacy["unit"]),
            ("neighbours", privacy["relation"]),
            ("noise", f"{privacy['noise']}. {privacy['noise_means']}"),
        ]
        plan = [
            (
                entry["tensor"],
                entry["cohort"],
                f"{entry['first_round']} to {entry['last_round']}",
                entry["count"],
                f"{entry['sampling_rate']:g}",
                f"{entry['noise']:g}",
            )
            for entry in privacy["plan"]
        ]
        head = ("released", "cohort", "rounds", "times a round", "sampling rate", "noise multiplier")
        lines += [_table(("", ""), rows), "", _table(head, plan), ""]
    lines += [f"- Protects: {line}" for line in privacy["protects"]]
    lines += [f"- Does not protect: {line}" for line in privacy["does_not_protect"]]
    return "\n".join(lines)


def _quality(card: Card) -> str:
    lines = ["## Quality", ""]
    if card["quality"] is None:
        return "\n".join([*lines, "Not measured. Evaluate on labelled records of your own before any use."])
    lines += ["On patients held out at all hospitals, from noised sums; 95 % intervals of noise and sampling.", ""]
    metrics = list(dict.fromkeys(name for entry in card["quality"] for name in entry["metrics"]))
    rows = [
        (entry["domain"], *(_estimate(metric, entry["metrics"]) for metric in metrics)) for entry in card["quality"]
    ]
    return "\n".join([*lines, _table(("domain", *(metric.replace("_", " ") for metric in metrics)), rows)])


def _estimate(metric: str, metrics: Card) -> str:
    estimate = metrics.get(metric)
    if estimate is None:
        return "-"
    patients = (metrics.get("patients") or {}).get("value")
    value = told(metric, estimate["value"], estimate["high"], patients=patients)
    return f"{value} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def _limits(card: Card) -> str:
    use = card["use"]
    limits = [f"- {line}" for line in use["limits"]]
    return "\n".join(["## Intended use and limits", "", f"Intended: {use['intended']}", "", *limits])


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(value: object) -> str:
    """Return a cell's text in a form that ends neither the cell nor the line."""
    return str(value).replace("|", "\\|").replace("\n", " ")


def _shape(shape: Sequence[object]) -> str:
    return f"({', '.join(map(str, shape))})"


def _number(epsilon: float | str) -> str:
    return epsilon if isinstance(epsilon, str) else f"{epsilon:.4f}"
