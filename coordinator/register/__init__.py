"""What the engine knows at any time: the studies and their states, and which silos have called."""

__all__ = ["catalogue", "presence"]
