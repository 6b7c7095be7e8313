"""Columns of many cells at once: how they lie in memory, and how they become values."""

__all__ = ["ahead", "arrow_cells", "collected", "names", "number_forms", "own_columns", "parsers", "parsing"]
