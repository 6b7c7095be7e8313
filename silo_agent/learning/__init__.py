"""What a silo computes from its records: contributions, families, terms, noise, training, models, metrics.

Everything here works on one silo's data and the study's public constants. The ledger is charged before this code runs,
and the results are sealed after it. Neither is done here.
"""

__all__ = [
    "adapt",
    "apart",
    "beginning",
    "choice",
    "contributions",
    "device",
    "encoder",
    "errors",
    "evaluation",
    "families",
    "files",
    "forecast",
    "heads",
    "kept",
    "lean",
    "learner",
    "model",
    "personal",
    "personal_process",
    "private",
    "terms",
]
