"""What makes a release private: sampling, clipping, noise, the grid, and the examination of the trained parts."""

__all__ = ["batches", "clipping", "dpsgd", "draws", "noise", "release", "rounded", "schedule", "steady"]
