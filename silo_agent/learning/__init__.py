"""What a silo computes from its records: contributions, families, terms, noise, training, models, metrics.

Everything here works on one silo's data and the study's public constants. Charging the ledger comes before, sealing
after; neither is done here.
"""

__all__ = [
    "contributions",
    "device",
    "encoder",
    "errors",
    "evaluation",
    "lean",
    "learner",
    "model",
    "personal",
    "private",
]
