"""Widths that follow from a study alone and are public: of the encoder, its tables, a head, a domain's metrics.

release.py computes the sizes of the releases from them. `silo_agent.learning` says what the values mean.
"""

from __future__ import annotations

from itertools import pairwise

from policies.documents.sections import AVERAGED
from policies.documents.study import Study
from policies.plan import architectures, terms
from policies.plan.families import form_of


def encoder_values(study: Study) -> int:
    """Number of weights of the shared encoder. A stochastic encoder (FedSR) has two outputs per coordinate."""
    image = study.data.image
    layers = sum(a * b + b for a, b in pairwise(layer_widths(study)))
    return layers + (0 if image is None else architectures.weights(study.model, image))


def layer_widths(study: Study) -> tuple[int, ...]:
    """Widths of the encoder's layers: inputs and image features, the hidden layers, the outputs. Raw inputs alone."""
    model, image = study.model, study.data.image
    if model.encoder == "raw":
        return (study.data.inputs,)
    outputs = model.representation * (2 if terms.is_stochastic(study.encoder) else 1)
    pixels = 0 if image is None else architectures.features(model, image)
    return (study.data.inputs + pixels, *model.hidden, outputs)


def prior_values(study: Study) -> int:
    """Length of the tables that a term trains with the encoder, if they are averaged: FedSR's r(z|y)."""
    return terms.averaged_values(study)


def head_width(study: Study) -> int:
    """W: weights of one head. K = k + 1 for two classes or a number (one row), C K for more (a softmax of C logits)."""
    return form_of(study.data.label.count).logits * (study.model.representation + 1)


def head_values(study: Study, round_number: int) -> int:
    """Length of the heads' sum: for each head an upper triangle and a gradient, W(W+1)/2 + W values.

    A pooled round has one head, a later round M, one for each domain. With the hierarchical solver the sum of all
    domains stands beside these. An average of heads (FedDAR-WA) has no triangle, and one value for the number of
    patients. 0 if the round trains the heads together with the encoder (`joint_heads`).
    """
    if joint_heads(study, round_number):
        return 0
    width = head_width(study)
    one = width + 1 if study.recipe == "feddar-wa" else width * (width + 1) // 2 + width
    return head_blocks(study, round_number) * one


def head_blocks(study: Study, round_number: int) -> int:
    """Blocks of the heads' sum in a round: see `head_values`."""
    if is_pooled(study, round_number):
        return 1
    return len(study.data.domains) + (study.heads.solver == "hierarchical")


def evidence_values(study: Study) -> int:
    """Length of what the hierarchical solver keeps from round to round (`silo_agent.learning.heads.evidence`).

    The frame's triangle and the share; then, once for the domains' blocks and once for the pooled one, a weight,
    triangles, gradients, and the heads at which they were released. 0 for the other solver.
    """
    if study.heads.solver != "hierarchical":
        return 0
    width, features, domains = head_width(study), study.model.representation + 1, len(study.data.domains)
    block = width * (width + 1) // 2 + width
    return features * (features + 1) // 2 + 1 + sum(1 + blocks * block + domains * width for blocks in (domains, 1))


def metric_cells(study: Study) -> tuple[int, int]:
    """Cells of one domain's metric sum: (C, bins of the score), (C, 2 x bins) for more than two classes.

    If the label is a number: (1, cells of moments).
    """
    form = form_of(study.data.label.count)
    return form.classes, form.cells(study.evaluation.bins)


def metric_values(study: Study) -> int:
    """Length of one domain's metric sum."""
    classes, cells = metric_cells(study)
    return classes * cells


def joint_heads(study: Study, round_number: int) -> int:
    """Number of heads that a round trains in the encoder's own steps (FedAvg); 0 if heads and encoder alternate."""
    if study.recipe not in AVERAGED and round_number > study.encoder.warm_up:
        return 0
    return 1 if is_pooled(study, round_number) else len(study.data.domains)


def trains_encoder(study: Study, round_number: int) -> bool:
    """Whether a round trains the encoder."""
    after = round_number - study.encoder.warm_up
    return round_number <= study.encoder_rounds and (after <= 0 or after % study.encoder.every == 0)


def is_pooled(study: Study, round_number: int) -> bool:
    """Whether this round moves one pooled head (docs/design/heads.md, "Pooled rounds first")."""
    return round_number <= study.heads.pooled_rounds
