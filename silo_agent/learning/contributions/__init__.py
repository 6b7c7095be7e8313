"""What a silo adds to each sum of a study, and what the opened sum changes in the model: one file for each tensor.

`contribution` says what each file must provide. `drawing` adds the noise.
"""

__all__ = ["contribution", "counts", "drawing", "encoder", "encoder_steps", "heads", "metrics", "possible"]
