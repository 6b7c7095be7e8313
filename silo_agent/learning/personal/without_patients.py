"""The shared heads as if some of this silo's patients had not taken part: what cross-validation compares with.

The shared model has learned from the very patients on whom a silo could compare it with a model of its own. With few
patients that flatters it by more than most models of one's own gain. The hierarchical solver's heads follow from sums
that every silo has opened, and a silo can compute what its own patients added to them. So it takes their terms out and
solves again. Source: docs/design/choice.md, "The shared model without a fold".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from policies.plan import shapes
from silo_agent.data.records import Records
from silo_agent.learning.heads import hierarchical
from silo_agent.learning.heads.evidence import Evidence, Gathered, mixed
from silo_agent.learning.heads.sums import second_order_sums
from silo_agent.learning.model.shared import SharedModel

Floats = NDArray[np.float64]


def change_without(models: Mapping[int, SharedModel], left: Records, device: torch.device | str = "cpu") -> Floats:
    """What is added to the last model's heads, (M, W), if the patients of `left` had not taken part.

    `models` are those that this silo keeps, by round. Zero with another solver, without rounds by domain, and for
    rounds of which the model or the one before it is missing: the shared model is then flattered. The frame, the
    encoder and the heads at which sums were made stay as they are.
    """
    last = models[max(models)]
    if not len(last.evidence) or not last.gathered.own.weight:
        return np.zeros_like(last.heads)
    evidence = last.gathered
    own, pooled = evidence.own, evidence.pooled
    for number in sorted(models):
        if number - 1 in models and not shapes.is_pooled(last.study, number):
            pair = models[number - 1], models[number]
            own, pooled = _removed((own, pooled), pair, left, device)
    return _solved(last, replace(evidence, own=own, pooled=pooled)) - _solved(last, evidence)


def _removed(
    parts: tuple[Gathered, Gathered],
    pair: tuple[SharedModel, SharedModel],
    left: Records,
    device: torch.device | str,
) -> tuple[Gathered, Gathered]:
    """Both sums over releases less what `left` added in the round that led from one model to the other."""
    before, then, after = pair[0], pair[0].gathered, pair[1].gathered
    weights = after.own.weight - then.own.weight, after.pooled.weight - then.pooled.weight
    if not any(weights):
        return parts  # no release of heads by domain, or one that an unfinished encoder gave
    study, family = before.study, before.family.with_curvature(hierarchical.CURVATURE)
    encoder, clip = before.build_encoder(), before.study.heads.clip
    sums = second_order_sums(
        before.features(left.inputs, left.images, device),
        left.labels,
        left.domains,
        left.weights,
        before.heads,
        family=family,
        pooled=False,
        clip=clip,
        blind=study.heads.clip_by == "worst",
        frame=then.frame,
        norm_bound=encoder.norm_bound,
    )
    hessian, gradient = family.centred(*mixed(*sums, then.share))
    count = len(study.data.domains)
    scales = math.sqrt(1.0 - then.share), math.sqrt(then.share)
    found = []
    for part, weight, scale, blocks in zip(
        parts, weights, scales, (slice(None, count), slice(count, None)), strict=True
    ):
        factor = weight * clip / scale if scale else 0.0
        found.append(
            replace(
                part,
                hessian=part.hessian - factor * hessian[blocks],
                gradient=part.gradient - factor * gradient[blocks],
            )
        )
    return found[0], found[1]


def _solved(model: SharedModel, evidence: Evidence) -> Floats:
    study, family = model.study, model.family.with_curvature(hierarchical.CURVATURE)
    scale = hierarchical.Scale(family.hessian_factor, family.gradient_divisor)
    rows = family.form.logits
    return hierarchical.solve(evidence, scale, rows, study.heads.pooled_share, bias=study.model.bias).heads
