"""The recipes that a study may name, one file for each: what is shared, what is kept, how heads are aggregated."""

__all__ = ["composition", "registry"]
