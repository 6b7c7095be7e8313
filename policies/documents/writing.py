"""A study as YAML with a comment for each field, for people who read it before they approve.

Guarantees: what is written is read as the same study, with the same digest. All fields of all sections are written,
those with a default included, so that a reader needs no other page; in lists what is left out has its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import yaml

from policies.documents.document import MAX_BYTES, DocumentError, parse_document
from policies.documents.study import Study

WIDTH: Final = 110
_OF_FIELDS: Final[Mapping[str, str]] = {
    "silos": "who is invited",
    "min_silos": "least number in any sum; the others may be missing",
    "publish": "figures that the silos sign and the coordinator shows; every policy must list them",
    "continues": "digest of the earlier model that the study starts from",
    "pace": "padded hides how long a computation took",
    "pace_seconds": "padded: answers leave at multiples of it",
    "max_attempts": "of one round, before the study ends",
    "model.encoder": "from a record to the representation; raw: nothing, the heads read the inputs",
    "model.channels": "of the cnn's convolutions",
    "model.hidden": "widths of layers before the representation",
    "model.representation": "what a head sees; of raw, the number of inputs",
    "model.skip": "the inputs stand beside the encoder's output",
    "model.random_features": "public random features of the inputs, beside them",
    "model.bias": "false: heads without an intercept",
    "model.first_biases": "of hidden layers: how far their first biases spread",
    "model.gain": "scale of the last layer's first weights",
    "model.seed": "of the public first weights",
    "model.samples": "with encoder.cmi: draws over which a prediction is averaged",
    "heads.solver": "hierarchical: from all releases of all domains; newton: from each round's own",
    "heads.pooled_share": "hierarchical: least share of a domain round for the sum of all domains",
    "heads.pooled_rounds": "on one head for all patients",
    "heads.domain_rounds": "on a head for each domain",
    "heads.pooled_noise": "deviation, at sensitivity 1",
    "heads.domain_noise": "deviation, at sensitivity 1",
    "heads.clip": "a record's term is cut to this norm, and noise shrinks with it",
    "heads.repair": "curvature below this multiple of its noise counts as noise",
    "heads.max_step": "farthest a head moves in a round",
    "heads.learning_rate": "of those steps",
    "heads.steps": "local steps of the recipes feddar-sa and feddar-wa",
    "heads.ridge": "of those steps: keeps heads from growing without bounds",
    "heads.calibration": "a last round that brings predicted risks to the observed rates",
    "heads.calibration_noise": "deviation, at sensitivity 1",
    "encoder.rounds": "0: none is trained, and the rest of this section does nothing; null: all but the last",
    "encoder.together": "feddar-sa: heads are trained in the encoder's steps, too",
    "encoder.every": "trained in every so many rounds",
    "encoder.warm_up": "first rounds that train encoder and heads together",
    "encoder.steps": "DP-SGD steps a round",
    "encoder.sampling_rate": "chance of a patient to take part in a step",
    "encoder.batch_size": "public divisor of the gradient",
    "encoder.head_steps": "fedrep: steps of the heads alone, before the encoder's",
    "encoder.proximal": "fedprox: draws a hospital's weights to where the round began",
    "encoder.momentum": "of the steps",
    "encoder.schedule": "of the learning rate, over all steps of the study",
    "encoder.sealed_steps": "true: every step is a round, and its noise is shared",
    "encoder.clip": "of a patient's gradient",
    "encoder.noise": "of each step, as a multiple of clip",
    "encoder.l2r": "FedSR: keeps representations short",
    "encoder.cmi": "FedSR: representations of a class alike at all silos",
    "encoder.irm": "of public data: what holds in all environments",
    "encoder.irm_after": "steps before irm has its weight",
    "encoder.group_dro": "of public data: badly predicted environments count more",
    "encoder.group_rate": "of these weights",
    "encoder.l2r_norm": "of l2r: the squared length, or the plain one",
    "encoder.prior": "of cmi's tables",
    "encoder.cmi_scale": "cmi compares after a factor that is trained, as in FedSR's published code",
    "encoder.weight_clip": "most by which a small domain counts more",
    "encoder.max_update": "each weight's update is clamped to it",
    "encoder.sealing": "how updates are added unread",
    "evaluation.bins": "of the score, in the noised histograms",
    "evaluation.auc": "fitted: from a risk that is fitted to the noised bins",
    "evaluation.together": "figures of all patients together as well",
    "evaluation.noise": "deviation; paid from the held-out patients' own budget",
    "evaluation.largest_error": "of a number: share of its range beyond which errors count alike",
    "privacy.delta": "at which epsilon is stated",
    "privacy.mode": "who carries the noise: each silo all of it, or all together",
    "privacy.colluders": "silos that may pool what they know with the coordinator",
    "privacy.count_noise": "deviation of the patients by domain",
    "privacy.max_patients": "public bound on one silo's patients",
    "privacy.smallest_domain": "a domain with fewer, by noised sums, gets no head and no figure of its own",
    "expected.patients": "of each silo, fit for training",
    "expected.shares": "of the patients in each domain; []: all alike",
    "expected.prevalence": "of the outcome; null: one half",
    "expected.effect": "AUC, or R^2 of a number, without noise; null: a common range",
}
"""What is said beside a field. A field without an entry is written without a comment."""
_OF_SECTIONS: Final[Mapping[str, str]] = {
    "data": "the columns; a record with a cell outside of this is left out",
    "model": "from a record to what the heads read",
    "heads": "one head for each domain, from noised sums of curvature and gradient",
    "encoder": "DP-SGD with the heads frozen",
    "evaluation": "once, over held-out patients, after the last round",
    "personal": "a model of each silo's own that never leaves it",
    "privacy": "what the study costs",
    "deadlines": "seconds of each phase",
    "expected": "guesses of the author, for forecasts and for rules; nothing computed from records reads them",
}


def write_study(study: Study, *, head: Iterable[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """The study as commented YAML.

    Args:
        study: what is written.
        head: comment lines above everything.
        notes: a short text by column, beside the feature that reads it. Texts are plain, of one line.

    Raises `DocumentError` if the text would be larger than a document may be.
    """
    document = study.model_dump(mode="json")
    lines = [f"# {line}".rstrip() for line in head]
    for field, value in document.items():
        if field not in _OF_SECTIONS and not isinstance(value, dict):
            lines += _text(field, value) if isinstance(value, str) else [_line(field, value, 0)]
    for field, value in document.items():
        if isinstance(value, dict):
            lines += ["", *_section(field)]
            lines += _data(study, notes or {}) if field == "data" else _fields(field, value)
    text = "\n".join(lines) + "\n"
    size = len(text.encode())
    if size > MAX_BYTES:
        fault = f"its text would have {size} bytes, and at most {MAX_BYTES} are read; list fewer columns or codes"
        raise DocumentError(_UNWRITTEN, [fault])
    if parse_document(text, Study, _UNWRITTEN).digest != study.digest:
        msg = "a study must be read as it was written"
        raise AssertionError(msg)
    return text


def _section(name: str) -> list[str]:
    return [f"{name}:{' ' * 2}# {_OF_SECTIONS[name]}" if name in _OF_SECTIONS else f"{name}:"]


def _fields(section: str, fields: Mapping[str, object]) -> Iterator[str]:
    return (_line(f"{section}.{name}", value, 2) for name, value in fields.items())


def _data(study: Study, notes: Mapping[str, str]) -> Iterator[str]:
    data = study.data.model_dump(mode="json", exclude_defaults=True)
    label = data.pop("label")
    domain, features = data.pop("domain"), data.pop("features", [])
    for name, value in data.items():
        yield f"  {name}: {_flow(value)}"
    yield f"  label: {_flow(label)}"
    yield "  domain:  # each combination gets a head of its own"
    yield from (f"    - {_flow(factor)}" for factor in domain)
    yield f"  features:{'' if features else ' []'}"
    for feature in features:
        shown = {"kind": feature.pop("kind"), "column": feature.pop("column"), **feature}
        note = notes.get(shown["column"])
        yield f"    - {_flow(shown)}" + (f"  # {note}" if note else "")


def _line(path: str, value: object, indent: int) -> str:
    text = f"{' ' * indent}{path.rpartition('.')[2]}: {_flow(value)}"
    comment = _OF_FIELDS.get(path)
    return f"{text}  # {comment}" if comment else text


def _text(field: str, value: str) -> list[str]:
    dumped: str = yaml.safe_dump({field: value}, width=WIDTH, allow_unicode=True)
    return dumped.rstrip("\n").split("\n")


def _flow(value: object) -> str:
    """A value on one line, numbers without a needless fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _PLAIN:
        return str(int(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(one)}" for name, one in value.items()) + "}"
    dumped: str = yaml.safe_dump([value], default_flow_style=True, width=_ENDLESS, allow_unicode=True)
    return dumped.strip()[1:-1]


_UNWRITTEN: Final = "the study as it would be written"
_PLAIN: Final = 1e6
_ENDLESS: Final = 1 << 30
