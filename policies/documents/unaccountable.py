"""Refuses by name what a study must not ask for, because nobody can account for its privacy.

A study's fields are a closed list, so none of these requests can be granted anyway. Instead of "unknown field" the
author gets a reason, an explanation, and what to write instead. Only fields that the schema has refused are examined. A
study that fits the schema is never refused here, whatever its columns are called. `personal` may ask for any of this,
since the personal model never leaves. `silo_agent.learning.dpsgd.examination` shows that the code itself does nothing
of the kind.
A term that FedWard has is refused by its entry in `terms`, which says that it is not per record; the words below are
for what has no entry.

Source: docs/design/noise.md, "What may feed an upload".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from policies.documents.sections.encoder import EncoderPlan
from policies.documents.terms import TERMS
from policies.refusals import Reason, Refused


@dataclass(frozen=True)
class Wish:
    """Words that a study's author would write, why they are refused, and what to write instead."""

    reason: Reason
    words: frozenset[str]
    why: str
    instead: str


def _wish(reason: Reason, words: str, why: str, instead: str) -> Wish:
    return Wish(reason, frozenset(word.replace("_", "") for word in words.split()), why, instead)


_BATCH_TERMS: Final = " ".join(word for term in TERMS if term.reads == "batch" for word in sorted(term.words))
"""Terms that the personal model may have and that, by their own entry, feed no upload."""
_OTHER_BATCH_LOSSES: Final = (
    "coral deep_coral hsic moment_matching batch_statistics batch_statistic v_rex rex dro contrastive"
    " sup_con sim_clr info_nce nt_xent triplet mixup cutmix hard_mining ohem"
)
"""Names of the literature for losses that couple records; nobody has written a term for one."""

WISHES: Final = (
    _wish(
        Reason.BATCH_STATISTICS,
        f"{_BATCH_TERMS} {_OTHER_BATCH_LOSSES}",
        "such a loss couples the records of a batch, so one patient changes everybody's gradient, and clipping a"
        " patient's own gradient does not bound what that patient adds to an upload",
        "use it on the model that never leaves, as personal.mmd does, or leave it out (irm and group_dro may act on"
        " data declared public too: privacy.mode none)",
    ),
    _wish(
        Reason.BATCH_NORM,
        "batch_norm batch_normalization batch_normalisation sync_batch_norm bn sync_bn batch_renorm running_statistics"
        " running_stats running_mean track_running_stats",
        "it normalises a record by the other records of its batch, and keeps means of the records without any noise",
        "leave it out: the image networks of model.encoder normalise every record by itself (GroupNorm)",
    ),
    _wish(
        Reason.NO_PER_SAMPLE_GRADIENT,
        "attention multihead_attention transformer vit swin lstm gru rnn spectral_norm weight_norm tied_weights"
        " weight_tying custom_module custom_modules custom_layer custom_layers",
        "each patient's gradient must be clipped by itself, but such a layer gives no gradient for each patient",
        "name a model.encoder that the silos build themselves: mlp, cnn or resnet18",
    ),
    _wish(
        Reason.UNNOISED_PART,
        "local_encoder local_layer local_layers local_head local_heads local_model"
        " local_part local_parts local_steps local_epochs personal_encoder personal_layer personal_layers personal_head"
        " personal_heads private_encoder private_layer private_layers private_head private_heads adversary adversaries"
        " adversarial dann discriminator domain_classifier gradient_reversal local_teacher unnoised noise_free"
        " without_noise",
        "a part that is trained on the records without noise and read by the loss of an upload brings every patient"
        " into everybody's gradient",
        "name a recipe that keeps a part at the silo and trains it in the noised step (fedper, fedrep, lg-fedavg), or"
        " keep it in personal, which uploads nothing",
    ),
    _wish(
        Reason.LOCAL_MODELS,
        "ensemble ensembles ensembling bagging stacking mixture_of_experts majority_vote model_average"
        " average_predictions",
        "an ensemble of the silos' own models needs them in one place, and what a silo keeps was trained to stay there:"
        " nobody has charged for its release, and no message of a federation carries it",
        "leave it out, also with data that every policy declares public: anybody who has those may run fedward simulate"
        " --ensemble on them",
    ),
    _wish(
        Reason.PRIVATE_CHOICE,
        "early_stopping early_stop stop_early patience model_selection select_model select_best choose_best keep_best"
        " choose_model best_model best_round best_epoch best_checkpoint restore_best monitor stop_when plateau"
        " validation_metric accept_if accept_when grid_search hyperparameter_search cross_validation",
        "the choice of a step or model reveals something about the patients that it was judged by, and no noise covers"
        " that",
        "plan a public number of rounds (heads) and steps (encoder); the noised sums of evaluation, charged once, say"
        " how good the last round's model is",
    ),
)
"""The wishes, in the order in which they are looked for."""
_NOT_UNDERSTOOD: Final = frozenset({"extra_forbidden", "literal_error"})
"""Pydantic's error types for a field, and for a value, that the schema does not have."""
_PUBLIC: Final = frozenset(("encoder", str(term.field)) for term in TERMS if term.public)
_NO_NUMBER: Final = frozenset({"float_type", "float_parsing"})
"""Coefficients of terms for public data alone, and the error types of one that is no number."""
_OFF: Final = frozenset({"", "none", "off", "no", "false", "null"})
_FREE: Final = frozenset({"data", "personal"})
"""Parts of a study that are not examined: columns may have any name, and `personal` never leaves."""
_LONGEST_PATH: Final = 120
_LONGEST_WORD: Final = 64
"""Longer texts are not examined: they are no words, and looking through their parts would take long."""


def refusal_of(error: ValidationError) -> Refused | None:
    """Return the named refusal of a study that did not fit its schema, or None if it asks for nothing of this kind."""
    for fault in error.errors(include_url=False):
        path = tuple(str(part) for part in fault["loc"])
        odd = fault["type"] in _NOT_UNDERSTOOD or (path in _PUBLIC and fault["type"] in _NO_NUMBER)
        if not odd or path[0] in _FREE:
            continue
        for field, words in _asked(path, fault["input"]):
            wish = next((wish for wish in WISHES if words & wish.words), None)
            if wish is not None:
                return Refused(wish.reason, f"study.{_shown(field)}: {wish.why}; {wish.instead}")
    return None


def require_noisable(plan: EncoderPlan, mode: str) -> None:
    """Raise `Refused` if the encoder's loss has a term that only public data may have, and the mode is not `none`."""
    for term in TERMS:
        if term.public and mode != "none" and getattr(plan, str(term.field)) > 0:
            wish = next(wish for wish in WISHES if wish.reason is Reason.BATCH_STATISTICS)
            raise Refused(wish.reason, f"study.encoder.{term.field}: {wish.why}; {wish.instead}")


def _asked(path: tuple[str, ...], content: object) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield every field below a path that is not switched off, with the words that its name and value can mean.

    `norm: batch` asks for batch_norm, and `local: true` in heads for local_heads. There is no recursion, because the
    sender decides how deeply a study is nested.
    """
    rest = [(path, content)]
    while rest:
        at, value = rest.pop()
        if not value or (isinstance(value, str) and value.strip().lower() in _OFF):
            continue
        key = at[-1]
        words = _words(key) | (_words(f"{key} {at[-2]}") if len(at) > 1 else set())
        if isinstance(value, Mapping):
            rest += [((*at, str(name)), part) for name, part in value.items()]
        elif isinstance(value, list | tuple):
            rest += [(at, part) for part in value]
        elif isinstance(value, str):
            words |= _words(value) | _words(f"{value} {key}")
        yield at, words


def _words(text: str) -> set[str]:
    """Return the runs of neighbouring words of a text, joined: mmd_weight gives mmd, weight and mmdweight."""
    parts = re.findall(r"[a-z]+", text.lower()) if len(text) <= _LONGEST_WORD else []
    return {"".join(parts[first:last]) for first in range(len(parts)) for last in range(first + 1, len(parts) + 1)}


def _shown(path: tuple[str, ...]) -> str:
    """Return a field's name in a form that is safe for a log and a terminal, because the sender chose the name."""
    return re.sub(r"[^\w.-]", "?", ".".join(path), flags=re.ASCII)[:_LONGEST_PATH]
