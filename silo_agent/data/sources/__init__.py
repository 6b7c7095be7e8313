"""Where a hospital keeps a study's records, if not in one file."""

__all__ = ["sql"]
