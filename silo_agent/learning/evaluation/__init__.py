"""Measures how good a model is: noised histograms, intervals, calibration, unknown domains, protected groups."""

__all__ = [
    "attacker",
    "evaluation",
    "fairness",
    "moments",
    "moved",
    "own_patients",
    "paired",
    "sampling",
    "unknown_domain",
]
