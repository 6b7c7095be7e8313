"""FedDAR-SA: local heads, averaged with their Hessians as weights (FedDAR Eq. 8, docs/design/recipes.md, "FedDAR-SA").

    w_m = (sum_i H_im)^-1 sum_i H_im w_im,      H_im at the local head w_im, summed over patients

A silo sends H_im and H_im (w_m - w_im), in place of the curvature and gradient at the common head w_m. Then Newton's
step from the sums is Eq. 8, and what repairs and bounds it serves both.
"""

from __future__ import annotations

import numpy as np

from policies.documents.study import HeadPlan
from silo_agent.learning.heads.local_steps import Floats, Sums, local_heads


def statistic(sums: Sums, heads: Floats, plan: HeadPlan) -> tuple[Floats, Floats]:
    """A silo's curvature (D, W, W) and pull (D, W) for the common `heads` (D, W).

    The pull is in units of `plan.max_step`, so that it fits the grid of the curvature.
    """
    return weighed(sums, heads, local_heads(sums, heads, plan), plan)


def weighed(sums: Sums, heads: Floats, local: Floats, plan: HeadPlan) -> tuple[Floats, Floats]:
    """The same for local heads (D, W) that were trained in another way."""
    curvature, _ = sums(local)
    return curvature, np.einsum("dij,dj->di", curvature, (heads - local) / plan.max_step)


def opened(curvature: Floats, pull: Floats, plan: HeadPlan) -> tuple[Floats, Floats]:
    """The summed curvature and pull as `heads.newton.solve` takes them.

    `plan.ridge` of the mean eigenvalue is added. A mean with matrices as weights may lie far outside of what it
    averages: in a direction that no two silos weigh alike, or that nobody has, it is a quotient of small numbers. There
    the ridge keeps the head where it was.
    """
    width = curvature.shape[-1]
    mean = np.trace(curvature, axis1=1, axis2=2)[:, None, None] / width
    return curvature + plan.ridge * mean * np.eye(width), plan.max_step * pull
