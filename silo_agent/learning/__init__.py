"""What a silo computes from its records: what leaves it, what stays, and the models, terms and noise behind it.

Everything here works on one silo's data and the study's public constants. The ledger is charged before this code runs,
and the results are sealed after it. Neither is done here.
"""

__all__ = [
    "alone",
    "device",
    "dpsgd",
    "each_record",
    "encoder",
    "errors",
    "figures",
    "heads",
    "learner",
    "light_imports",
    "model",
    "noise",
    "outcomes",
    "personal",
    "releases",
    "terms",
]
