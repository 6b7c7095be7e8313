"""Widths that follow from a study alone and are public: of the encoder, its tables, a head, a domain's metrics.

release.py computes the sizes of the releases from them. `silo_agent.learning` says what the values mean.
"""

from __future__ import annotations

from itertools import pairwise

from policies.documents.study import Study
from policies.plan import architectures, terms
from policies.plan.families import form_of


def encoder_values(study: Study) -> int:
    """Number of weights of the shared encoder. A stochastic encoder (FedSR) has two outputs per coordinate."""
    image = study.data.image
    bias = study.model.encoder != "linear"
    layers = sum(a * b + b * bias for a, b in pairwise(layer_widths(study)))
    return layers + (0 if image is None else architectures.weights(study.model, image))


def layer_widths(study: Study) -> tuple[int, ...]:
    """Widths of the encoder's layers: inputs and image features, the hidden layers, the outputs. Raw inputs alone."""
    model, image = study.model, study.data.image
    if model.encoder == "raw":
        return (study.data.inputs,)
    outputs = model.representation * (2 if terms.is_stochastic(study.encoder) else 1)
    pixels = 0 if image is None else architectures.features(model, image)
    return (study.data.inputs + pixels, *model.hidden, outputs)


def compared_widths(study: Study) -> tuple[int, ...]:
    """Widths of the layers that `personal.depth` counts, from the representation down."""
    model, image = study.model, study.data.image
    pixels = () if image is None else (architectures.features(model, image),)
    return (model.representation, *reversed(model.hidden), *pixels)


def prior_values(study: Study) -> int:
    """Length of the tables that a term trains with the encoder, if they are averaged: FedSR's r(z|y)."""
    return terms.averaged_values(study)


def head_width(study: Study) -> int:
    """W: weights of one head. K for two classes or a number (one row), C K for more (a softmax of C logits)."""
    return form_of(study.data.label.count).logits * study.head_row


def head_values(study: Study, round_number: int) -> int:
    """Length of the heads' sum: for each head an upper triangle and a gradient, W(W+1)/2 + W values.

    A pooled round has one head, a later round M, one for each domain. With the hierarchical solver the sum of all
    domains stands beside these. An average of heads (FedDAR-WA) has no triangle, and one value for the number of
    patients. The calibration has a few values for each block. 0 if the round trains the heads together with the encoder
    (`joint_heads`).
    """
    if joint_heads(study, round_number):
        return 0
    if is_calibration(study, round_number):
        return head_blocks(study, round_number) * form_of(study.data.label.count).calibration_values
    width = head_width(study)
    one = width + 1 if study.composition.heads == "counts" else width * (width + 1) // 2 + width
    return head_blocks(study, round_number) * one


def head_blocks(study: Study, round_number: int) -> int:
    """Blocks of the heads' sum in a round: see `head_values`."""
    if is_calibration(study, round_number):
        return 1 if study.heads.calibration == "pooled" else len(study.data.domains) + 1
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
    width, features, domains = head_width(study), study.head_row, len(study.data.domains)
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


def metric_blocks(study: Study) -> int:
    """Blocks of the metric sum: the domains, and one of all patients if it has a share (`together_share`)."""
    domains = len(study.data.domains)
    return domains + (domains > 1 and study.evaluation.together_share > 0)


def steps_before(study: Study, round_number: int) -> int:
    """Number of the encoder's steps in the training rounds before this one."""
    own = study.encoder.head_steps + study.encoder.steps
    return own * sum(sums_encoder(study, number) for number in range(1, round_number))


def momentum_values(study: Study) -> int:
    """Length of the momentum that the shared model keeps: that of sealed steps. Otherwise a silo keeps its own."""
    encoder = study.encoder
    if not encoder.sealed_steps or not encoder.momentum or not study.encoder_rounds:
        return 0
    return encoder_values(study) + prior_values(study)


def trained_heads(study: Study, round_number: int) -> int:
    """Number of heads that a silo trains in the encoder's own steps; 0 if heads and encoder alternate."""
    if study.encoder.together:
        return 1 if is_pooled(study, round_number) else len(study.data.domains)
    return joint_heads(study, round_number)


def joint_heads(study: Study, round_number: int) -> int:
    """Number of heads that the encoder's own steps train (FedAvg); 0 if the heads have a sum of their own."""
    if not study.composition.joint and round_number > study.encoder.warm_up:
        return 0
    return 1 if is_pooled(study, round_number) else len(study.data.domains)


def encoder_sum_values(study: Study, joint: int) -> int:
    """Length of the encoder's sum: the encoder, the averaged tables, and `joint` heads that are averaged with it.

    What the recipe keeps at the silo is left out. If nothing is left, one zero is summed, so that a round of a recipe
    that shares nothing runs like any other.
    """
    recipe, heads = study.composition, joint * head_width(study)
    encoder = 0 if recipe.encoder == "kept" else encoder_values(study)
    return max(1, encoder + prior_values(study) + (0 if recipe.heads == "kept" else heads))


def sums_encoder(study: Study, round_number: int) -> bool:
    """Whether a round sums the encoder: its update, or a sealed step."""
    if study.encoder.sealed_steps:
        return sealed_step(study, round_number) is not None
    after = round_number - study.encoder.warm_up
    return round_number <= study.encoder_rounds and (after <= 0 or after % study.encoder.every == 0)


def is_pooled(study: Study, round_number: int) -> bool:
    """Whether this round moves one pooled head (docs/design/heads.md, "Pooled rounds first")."""
    return round_number <= last_pooled(study)


def is_calibration(study: Study, round_number: int) -> bool:
    """Whether this round moves the intercepts alone (docs/design/heads.md, "Calibration")."""
    number = head_round(study, round_number)
    return number is not None and number > study.head_rounds


def last_pooled(study: Study) -> int:
    """Number of the round that sums the pooled head for the last time."""
    return _round_of_heads(study, study.heads.pooled_rounds)


def head_round(study: Study, round_number: int) -> int | None:
    """The how manieth round of the heads this training round is, from 1; None if it is a sealed step."""
    block = _block(study)
    trained = study.encoder_rounds * block
    if round_number > trained:
        return study.encoder_rounds + round_number - trained
    rounds, within = divmod(round_number - 1, block)
    return None if within else rounds + 1


def sealed_step(study: Study, round_number: int) -> int | None:
    """Which of the study's sealed steps this training round is, from 0; None if it sums heads."""
    if head_round(study, round_number) is not None:
        return None
    rounds, within = divmod(round_number - 1, _block(study))
    return rounds * study.encoder.steps + within - 1


def _round_of_heads(study: Study, number: int) -> int:
    """The training round that is this round of the heads, the inverse of `head_round`."""
    return number + min(number - 1, study.encoder_rounds) * (_block(study) - 1)


def _block(study: Study) -> int:
    """Training rounds from one round of the heads to the next, while the encoder is trained."""
    return 1 + (study.encoder.steps if study.encoder.sealed_steps else 0)
