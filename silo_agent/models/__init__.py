"""What a hospital does with a finished model: measure it, predict with it, export it; what its public file lets expect.

The room reads models and records. Nothing leaves the hospital by itself.
"""

__all__ = ["chosen", "evaluate", "expecting", "export", "fairness", "predict"]
