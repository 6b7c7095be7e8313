"""A policy in plain words: what it allows, and what a new one changes."""

__all__ = ["compare", "explain", "factors"]
