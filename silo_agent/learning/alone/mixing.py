"""Mixes of the shared model with one of the hospital's own records: how much each domain trusts the latter.

A record's logits are those of the shared model, a shift b, and w_m of the way to the other model's, for its domain m.
They are the most probable ones under Gaussian priors, w_m = w + d_m: w around one half with deviation one half, each
d_m around 0 with deviation a quarter. So a domain with few patients has about the weight of all. The shift has the
deviation of a new intercept (`refit`): a hospital whose rate is another one need not trust its own model for that.
Source: docs/design/choice.md, "A model of the hospital's own records".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from policies.documents.study import Study
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family, is_of_classes
from silo_agent.learning.outcomes.links import logits_of, losses, residuals

Floats = NDArray[np.float64]
_MIDDLE: Final = 0.5
_OF_ALL: Final = 0.5
"""Prior deviation of the weight of all domains."""
_OF_ONE: Final = 0.25
"""Prior deviation of what a domain's weight differs by."""
INTERCEPT: Final = 3.0
"""Prior deviation of an intercept's change, in logits."""
_SMALLEST: Final = 1e-9


@dataclass(frozen=True, repr=False, eq=False)
class TwoOpinions:
    """What both models say of n records that neither has seen: logits (n, R), with outcomes and domains, (n,)."""

    shared: Floats
    alone: Floats
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]
    counted: Floats

    def rows(self, chosen: NDArray[np.bool_]) -> TwoOpinions:
        """Of those records."""
        return TwoOpinions(
            self.shared[chosen], self.alone[chosen], self.labels[chosen], self.domains[chosen], self.counted[chosen]
        )


@dataclass(frozen=True, repr=False, eq=False)
class Mix:
    """The weight (M,) of the model of one's own in each domain, in [0, 1], and what is added to all logits, (R,)."""

    weights: Floats
    shift: Floats

    def logits(self, shared: Floats, alone: Floats, domains: NDArray[np.int64]) -> Floats:
        """Logits (n, R) of records of these domains, (n,)."""
        found: Floats = shared + self.shift + self.weights[domains][:, None] * (alone - shared)
        return found


def mix_of(said: TwoOpinions, domains: int, family: Family) -> Mix:
    """The mix for `domains` = M domains that these records make most probable."""
    rows = family.form.logits
    if not len(said.labels):
        return Mix(np.full(domains, _MIDDLE), np.zeros(rows))
    unit = 1.0
    if not is_of_classes(family):  # as in `refit`: a number's deviations are in units of the typical error
        share = said.counted / said.counted.sum()
        unit = max(float(np.sqrt(2.0 * share @ losses(said.shared, said.labels, family))), _SMALLEST)
    precision, apart = said.counted / unit**2, said.alone - said.shared

    def mix(change: Floats) -> Mix:
        weights = _MIDDLE + _OF_ALL * change[0] + _OF_ONE * change[1 : 1 + domains]
        return Mix(weights, INTERCEPT * unit * change[1 + domains :])

    def objective(change: Floats) -> tuple[float, Floats]:
        logits = mix(change).logits(said.shared, said.alone, said.domains)
        loss = precision @ losses(logits, said.labels, family)
        error = precision[:, None] * residuals(logits, said.labels, family)
        of_domain = np.bincount(said.domains, weights=(error * apart).sum(axis=1), minlength=domains)
        shift = INTERCEPT * unit * error.sum(axis=0)
        gradient = np.concatenate([[_OF_ALL * of_domain.sum()], _OF_ONE * of_domain, shift])
        return float(loss + change @ change / 2.0), gradient + change

    found = minimize(objective, np.zeros(1 + domains + rows), jac=True, method="L-BFGS-B")
    best = mix(np.asarray(found.x, np.float64))
    return Mix(np.clip(best.weights, 0.0, 1.0), best.shift)


@dataclass(frozen=True, repr=False, eq=False)
class MixedModel:
    """The shared model and one of the hospital's own records. As private as the latter."""

    shared: SharedModel
    alone: AloneModel
    mix: Mix

    def __repr__(self) -> str:
        return "MixedModel(<private>)"

    @property
    def study(self) -> Study:
        """Of both."""
        return self.shared.study

    @property
    def round(self) -> int:
        """Of the shared model."""
        return self.shared.round

    @property
    def family(self) -> Family:
        """The family of the study's outcomes."""
        return self.shared.family

    def predict(
        self,
        inputs: NDArray[np.float32] | Inputs,
        domains: NDArray[np.int64],
        images: Images | None = None,
        device: torch.device | str = "cpu",
    ) -> Floats:
        """Probability of every class, or a number, float64 (n, C)."""
        shared = logits_of(self.shared.predict(inputs, domains, images, device), self.family)
        return self.family.probabilities(self.mix.logits(shared, self.alone.logits(inputs, domains), domains))
