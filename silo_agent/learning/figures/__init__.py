"""What is published of a model: its metrics from noised cells of held-out patients, with their intervals."""

__all__ = [
    "blocks",
    "calibration_curve",
    "calibration_line",
    "decision_curve",
    "evaluation",
    "influence",
    "intervals",
    "moments",
    "paired",
    "subgroup_risks",
]
