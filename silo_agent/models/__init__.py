"""What a hospital does with a finished model: measure it, predict with it, export it with its card.

Reads models and records; nothing from here leaves a hospital by itself.
"""

__all__ = ["evaluate", "export", "predict"]
