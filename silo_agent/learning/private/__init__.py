"""What makes a release private: sampling, clipping, noise, the grid, and the examination of what is trained."""

__all__ = ["dpsgd", "noise", "release"]
