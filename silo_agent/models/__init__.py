"""What a hospital does with a finished model: measure it, predict with it, export it with its card.

The room reads models and records. Nothing leaves the hospital by itself.
"""

__all__ = ["evaluate", "export", "predict"]
