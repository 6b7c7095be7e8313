"""Widths that a study implies: of the encoder, its tables, a head, a domain's metrics. Public, from the study alone.

release.py makes the sizes of the releases of them. What the values mean is the silo's business
(`silo_agent.learning`).
"""

from __future__ import annotations

from itertools import pairwise

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


def metric_values(study: Study) -> int:
    """Length of one domain's metric sum."""
    classes, cells = metric_cells(study)
    return classes * cells


def is_pooled(study: Study, round_number: int) -> bool:
    """Whether this round moves one pooled head (docs/design/heads.md, "Pooled rounds first")."""
    return round_number <= study.heads.pooled_rounds
