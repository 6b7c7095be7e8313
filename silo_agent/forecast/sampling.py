"""How far a measured AUC lies from that of many patients (Hanley and McNeil 1982, Radiology 143)."""

from __future__ import annotations


def area_variance(area: float, positive: float, negative: float) -> float:
    """Variance of an AUC that is measured on so many patients with and without the outcome, each above 0."""
    one, other = area / (2.0 - area) - area**2, 2.0 * area**2 / (1.0 + area) - area**2
    spread = area * (1.0 - area) + (positive - 1.0) * one + (negative - 1.0) * other
    return max(spread, 0.0) / (positive * negative)
