"""Noise from a key stream, the sums that it hides, and where the randomness of a charged release comes from."""

__all__ = ["draws", "gaussian", "noised_sum"]
