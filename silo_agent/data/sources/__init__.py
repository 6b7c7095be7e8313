"""Where a hospital keeps a study's records, if not in one file, and the rows that a study began with."""

__all__ = ["snapshot", "sql"]
