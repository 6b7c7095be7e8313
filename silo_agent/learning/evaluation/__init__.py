"""How good a model is, by domain: noised histograms and their intervals, calibration, patients of unknown domain."""

__all__ = ["evaluation", "unknown_domain"]
