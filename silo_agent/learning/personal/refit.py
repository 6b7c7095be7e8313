"""Heads of a hospital's own under the shared encoder, from the shared heads and the hospital's records alone.

A hospital moves all domains' heads in the same way: by an intercept for each logit, and by one factor of all logits,
one change of the weights, or both. Each has a Gaussian prior around the shared heads, so few patients move little. The
result is the most probable change. Nothing of it leaves the hospital. Source: docs/design/choice.md, "Candidates".

n records, M domains, R logits, k values that a head reads, W weights of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from silo_agent.learning.alone.mixing import INTERCEPT
from silo_agent.learning.outcomes.family import Family, is_of_classes
from silo_agent.learning.outcomes.links import losses, residuals

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_FACTOR: Final = 0.5
"""Prior deviation of the factor of all logits, around 1."""
_WEIGHTS: Final = 0.25
"""Prior deviation of what a change of the weights adds to a typical record's logit."""
_STEPS: Final = 500
_CLOSE: Final = 1e-4
"""Largest slope of the objective at which the search ends; a change of that size in prior deviations is nothing."""
_SMALLEST: Final = 1e-9


def logits_under(phi: Floats, heads: Floats, domains: Integers, rows: int) -> Floats:
    """Logits (n, R) of `phi` (n, k) under the heads (M, W) of the records' `domains` (n,); R = `rows`."""
    k = phi.shape[1]
    found = np.zeros((len(phi), rows))
    for m in np.unique(domains):
        own, head = domains == m, heads[m].reshape(rows, -1)
        found[own] = phi[own] @ head[:, :k].T
        if head.shape[1] > k:
            found[own] += head[:, k]
    return found


@dataclass(frozen=True, repr=False, eq=False)
class Sample:
    """What heads are fitted to: `phi` (n, k), `labels`, `domains` and how much each record counts, (n,)."""

    phi: Floats
    labels: Integers
    domains: Integers
    counted: Floats

    def rows(self, chosen: NDArray[np.bool_]) -> Sample:
        """Those records."""
        return Sample(self.phi[chosen], self.labels[chosen], self.domains[chosen], self.counted[chosen])


def refit(
    sample: Sample,
    heads: Floats,
    family: Family,
    *,
    factor: bool,
    weights: bool,
) -> Floats:
    """Heads (M, W) that fit these records better, as far as the prior lets them.

    `factor` and `weights` say what may change beside the intercepts. For a number, deviations are in units of the
    shared model's typical error. Heads without bias get no intercept. Without records they stay as they are.
    """
    phi, labels, domains, counted = sample.phi, sample.labels, sample.domains, sample.counted
    if not len(labels):
        return heads.copy()
    rows, k = family.form.logits, phi.shape[1]
    biased = heads.shape[1] > rows * k
    base, share = logits_under(phi, heads, domains, rows), counted / counted.sum()
    middle, level = (share @ phi, share @ base) if biased else (np.zeros(k), np.zeros(rows))
    length = float(np.sqrt(share @ ((phi - middle) ** 2).sum(axis=1)))
    unit = 1.0 if is_of_classes(family) else max(float(np.sqrt(2.0 * share @ losses(base, labels, family))), _SMALLEST)
    moves = weights and length > _SMALLEST
    reach = _WEIGHTS * unit / length if moves else 0.0
    moved = reach * (phi - middle) if moves else np.zeros((len(phi), 0))
    tilt, step = factor * _FACTOR * (base - level), biased * INTERCEPT * unit
    precision = counted / unit**2

    def parts(change: Floats) -> tuple[float, Floats, Floats]:
        return float(change[0]), change[1 : 1 + rows], change[1 + rows :].reshape(rows, moved.shape[1])

    def objective(change: Floats) -> tuple[float, Floats]:
        grown, shift, weight = parts(change)
        logits = base + grown * tilt + step * shift + moved @ weight.T
        loss = precision @ losses(logits, labels, family)
        error = precision[:, None] * residuals(logits, labels, family)
        gradient = np.concatenate([[(error * tilt).sum()], step * error.sum(axis=0), (error.T @ moved).ravel()])
        return float(loss + change @ change / 2.0), gradient + change

    start = np.zeros(1 + rows + rows * moved.shape[1])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": _CLOSE})
    grown, shift, weight = parts(np.asarray(found.x, np.float64))
    own = (1.0 + factor * _FACTOR * grown) * heads.reshape(len(heads), rows, -1)
    if moves:
        own[:, :, :k] += reach * weight
    if biased:
        own[:, :, k] += step * shift - factor * _FACTOR * grown * level
        if moves:
            own[:, :, k] -= reach * (weight @ middle)
    return np.asarray(own.reshape(heads.shape), np.float64)
