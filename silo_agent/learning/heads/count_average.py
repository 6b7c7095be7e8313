"""FedDAR-WA: local heads, averaged with numbers of patients as weights (docs/design/recipes.md, "FedDAR-WA").

w_m = sum_i n_im w_im / sum_i n_im
"""

from __future__ import annotations

import numpy as np

from policies.documents.study import HeadPlan
from silo_agent.learning.heads.local_steps import Floats, Sums, local_heads


def statistic(sums: Sums, patients: Floats, heads: Floats, plan: HeadPlan) -> Floats:
    """A silo's `patients` (D,) and their local heads' moves, (D, 1 + W), for the common `heads` (D, W).

    The moves are in units of `plan.max_step`, so that none exceeds the number of patients.
    """
    moved = (local_heads(sums, heads, plan) - heads) / plan.max_step
    return np.concatenate([patients[:, None], patients[:, None] * moved], axis=1)


def solve(heads: Floats, total: Floats, plan: HeadPlan, least: float) -> Floats:
    """The next heads (M, W) from the sum (D, 1 + W) of all silos. A domain with fewer than `least` keeps its head."""
    patients = total[:, :1]
    moved = np.where(patients >= least, plan.max_step * total[:, 1:] / np.maximum(patients, least), 0.0)
    return heads + moved
