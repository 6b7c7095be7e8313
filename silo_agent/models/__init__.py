"""What a hospital does with a finished model: measure, adapt, predict with, export it, hand it over.

Also what its public file lets a forecast expect. Nothing leaves the hospital by itself.
"""

__all__ = [
    "adapt",
    "attacker",
    "beside_own",
    "chosen",
    "evaluate",
    "expecting",
    "export",
    "fairness",
    "groups",
    "handing_over",
    "jackknife",
    "predict",
]
