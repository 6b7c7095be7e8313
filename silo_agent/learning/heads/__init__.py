"""Second-order heads (FedDAR Eq. 8): per-domain sums of curvature and gradient, and the solver on the opened sums.

The averages of the recipes that it is compared with stand beside it (docs/design/recipes.md).
"""

__all__ = [
    "calibration",
    "count_average",
    "domain_weights",
    "evidence",
    "hessian_average",
    "hierarchical",
    "local_steps",
    "logits",
    "newton",
    "sums",
]
