"""Measures how good a model is, by domain: noised histograms, intervals, calibration, patients of unknown domain."""

__all__ = ["evaluation", "moments", "unknown_domain"]
