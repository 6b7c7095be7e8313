"""Terms of the losses: one file each."""

__all__ = ["losses", "mmd", "prior"]
