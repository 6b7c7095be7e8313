"""How a hospital's records fit a study, counted for people inside: nothing of it may leave, and no study reads it."""

__all__ = ["profile", "proposing"]
