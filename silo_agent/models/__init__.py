"""What a hospital does with a finished model: measure, adapt, predict with, export it, hand it over.

Also what its public file lets a forecast expect. Nothing leaves the hospital by itself.
"""

__all__ = ["adapt", "chosen", "evaluate", "expecting", "export", "fairness", "handing_over", "predict"]
