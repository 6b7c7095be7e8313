"""What a silo adds to each sum of a study, and what the opened sum means for the model: one file for each tensor.

`contribution` says what each must do, `drawing` is where noise enters a sum.
"""

__all__ = ["contribution", "counts", "encoder", "heads", "metrics"]
