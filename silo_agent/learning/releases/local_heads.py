"""The heads' sum of FedDAR's own recipes: what a silo's local heads add, and the heads that follow from the sum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.rings.grid import from_grid
from policies.plan import shapes
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.heads import count_average, hessian_average, newton
from silo_agent.learning.heads.domain_weights import domain_weights
from silo_agent.learning.heads.local_steps import Sums
from silo_agent.learning.heads.sums import pack, second_order_sums, unpack
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Integers, Setting
from silo_agent.learning.releases.counts import noised_counts, of_large_domains
from silo_agent.learning.releases.encoder import keep_change, train_together
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.learning.releases.steady_features import steady_features

Floats = NDArray[np.float64]
_LEAST_PATIENTS = 2.0**-12
"""Fewer patients than this, by weight, are the error of rounding to the grid."""


def statistic(
    setting: Setting, cohort: Records, place: Place, model: SharedModel, *, rehearsed: bool = False
) -> Floats:
    """What the silo's local heads add to the sum, (release.values,). If `rehearsed`, domains need not be counted."""
    study, plan = setting.study, setting.study.heads
    pooled = shapes.is_pooled(study, place.round)
    heads = model.heads[:1] if pooled else model.heads
    weights = _weights(setting, cohort) if pooled and not rehearsed else cohort.weights
    sums = _sums(setting, cohort, weights, model, pooled=pooled)
    if study.encoder.together and not rehearsed:
        own, change = train_together(setting, cohort, place, model)
        keep_change(setting, place, change)
        local = own.heads[: len(heads)]
        sums = _sums(setting, cohort, weights, own, pooled=pooled)
        return pack(*hessian_average.weighed(sums, heads, local, plan), setting.family)
    if study.composition.heads == "hessians":
        return pack(*hessian_average.statistic(sums, heads, plan), setting.family)
    domains = np.zeros_like(cohort.domains) if pooled else cohort.domains
    patients = np.bincount(domains, weights=weights, minlength=len(heads)).astype(np.float64)
    return count_average.statistic(sums, patients, heads, plan).ravel()


def solve(setting: Setting, total: Integers, place: Place, model: SharedModel, *, noise_sd: float) -> Floats:
    """The next heads (M, W). `noise_sd` is taken for what rounding leaves on each value of the sum."""
    study, plan, family = setting.study, setting.study.heads, setting.family
    pooled, blocks = shapes.is_pooled(study, place.round), shapes.head_blocks(study, place.round)
    values = from_grid(total, SumGrid.of(study).step)
    if study.composition.heads == "hessians":
        sums = hessian_average.opened(*family.centred(*unpack(values, blocks, model.heads.shape[1], family)), plan)
        heads = newton.solve(model.heads, *sums, noise_sd / family.hessian_factor, plan, pooled=pooled)
    else:
        heads = count_average.solve(model.heads, values.reshape(blocks, -1), plan, _LEAST_PATIENTS)
    return heads if pooled else of_large_domains(setting, heads, model)


def _weights(setting: Setting, cohort: Records) -> Floats:
    """Weights of records where one head serves all domains: each domain counts as much as `encoder.weight_clip` lets.

    With a head for each domain a domain's weight would change nothing.
    """
    weights = domain_weights(noised_counts(setting.folder), setting.study.encoder.weight_clip)
    return np.asarray(cohort.weights * weights[cohort.domains])


def _sums(setting: Setting, cohort: Records, weights: Floats, model: SharedModel, *, pooled: bool) -> Sums:
    """Curvature and gradient of all of the silo's patients. The features are computed once."""
    encoder = model.build_encoder()
    features = steady_features(encoder, cohort.inputs[:], cohort.images, setting.device)

    def sums(heads: Floats) -> tuple[Floats, Floats]:
        return second_order_sums(
            features,
            cohort.labels,
            cohort.domains,
            weights,
            np.broadcast_to(heads, model.heads.shape) if pooled else heads,
            family=setting.family,
            pooled=pooled,
            norm_bound=encoder.norm_bound,
        )

    return sums
