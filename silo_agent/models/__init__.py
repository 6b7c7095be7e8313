"""What a hospital does with a finished model: measure it, adapt it, predict with it, export it; what to expect of it.

The room reads models and records. Nothing leaves the hospital by itself.
"""

__all__ = ["adapt", "chosen", "evaluate", "expecting", "export", "fairness", "predict"]
