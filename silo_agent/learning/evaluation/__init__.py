"""Measures how good a model is, by domain: noised histograms, intervals, calibration, patients of unknown domain."""

__all__ = ["evaluation", "moments", "sampling", "unknown_domain"]
