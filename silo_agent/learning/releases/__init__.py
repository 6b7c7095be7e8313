"""What leaves a silo: its part of each sum of a study, and what the opened sum changes in the model; a file a tensor.

`contribution` says what each file must provide. `noising` adds the noise, `possible_sums` judges an opened sum.
"""

__all__ = [
    "contribution",
    "counts",
    "encoder",
    "encoder_steps",
    "heads",
    "metrics",
    "noising",
    "possible_sums",
    "whole_batches",
]
