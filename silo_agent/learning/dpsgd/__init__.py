"""Training for an upload by DP-SGD: sampling, gradients, clipping, noise in each step, and what may train so."""

__all__ = ["batches", "clipping", "rounded_gaussian", "schedule", "steady", "trained_heads", "training"]
