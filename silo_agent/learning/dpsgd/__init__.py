"""Training for an upload by DP-SGD: sampling, gradients, clipping, noise in each step, and what may train so."""

__all__ = ["batches", "chunk_independence", "clipping", "rounded_gaussian", "schedule", "trained_heads", "training"]
