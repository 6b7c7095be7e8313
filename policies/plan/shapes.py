"""How many values each sum of a study has: public, and implied by the study alone.

The coordinator checks sizes against it before it accepts a byte; the silo packs by it. What the values mean is the
silo's business (`silo_agent.learning`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from policies.documents.study import Study
from policies.plan import architectures, terms
from policies.plan.families import form_of


def encoder_values(study: Study) -> int:
    """Weights of the shared encoder; a stochastic one (FedSR) has two outputs per coordinate."""
    model, image = study.model, study.data.image
    outputs = model.representation * (2 if terms.is_stochastic(study.encoder) else 1)
    pixels = 0 if image is None else architectures.features(model, image)
    widths = (study.data.inputs + pixels, *model.hidden, outputs)
    layers = sum(a * b + b for a, b in pairwise(widths))
    return layers + (0 if image is None else architectures.weights(model, image))


def prior_values(study: Study) -> int:
    """Tables that a term trains with the encoder, where they are averaged: of FedSR's CMI those of r(z|y)."""
    return terms.averaged_values(study)


def head_width(study: Study) -> int:
    """W: weights of one head. K = k + 1 for two classes (one logit), C K for more (a softmax of C logits)."""
    return form_of(study.data.label.count).logits * (study.model.representation + 1)


def head_values(study: Study, round_number: int) -> int:
    """Upper triangles and gradients: W(W+1)/2 + W values a head; one head while pooled, then M."""
    width = head_width(study)
    blocks = 1 if is_pooled(study, round_number) else len(study.data.domains)
    return blocks * (width * (width + 1) // 2 + width)


def metric_cells(study: Study) -> tuple[int, int]:
    """Cells of one domain's metric sum: (C, bins of the score), for more than two classes (C, 2 x bins)."""
    form = form_of(study.data.label.count)
    return form.classes, form.cells_per_bin * study.evaluation.bins


def is_pooled(study: Study, round_number: int) -> bool:
    """Whether this round moves one pooled head (privacy.md, "Repair")."""
    return round_number <= study.heads.pooled_rounds


def values(study: Study, round_number: int, tensor: str) -> int:
    """Length of the summed vector of a tensor in a round."""
    domains = len(study.data.domains)
    match tensor:
        case "counts":
            return domains
        case "heads":
            return head_values(study, round_number)
        case "encoder":
            return encoder_values(study) + prior_values(study)
        case "metrics":
            classes, bins = metric_cells(study)
            return domains * classes * bins
    msg = f"no tensor is named {tensor!r}"
    raise ValueError(msg)


def ring(study: Study, tensor: str) -> Literal["ckks", "ring32", "ring64"]:
    """The ring in which a tensor is summed (sealed-sums.md): the encoder's as the study says, all else CKKS."""
    return study.encoder.sealing if tensor == "encoder" else "ckks"


def tensors(study: Study, round_number: int) -> tuple[str, ...]:
    """What is summed in a round, in order: counts first of all, then heads and encoder, metrics at the end."""
    if round_number == 0:
        return ("counts",)
    return ("heads", "metrics") if round_number == study.rounds else ("heads", "encoder")
