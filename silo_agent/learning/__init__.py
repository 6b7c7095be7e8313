"""What a silo computes from its records: statistics, noise, encoder training, solving, models, metrics.

Everything here works on one silo's data and the study's public constants. Charging the ledger comes before, sealing
after; neither is done here.
"""

__all__ = ["device", "encoder", "errors", "evaluation", "lean", "learner", "model", "personal", "private"]
