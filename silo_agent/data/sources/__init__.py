"""Where a hospital keeps a study's records, the rows that a study began with, and how both become two cohorts."""

__all__ = ["data_set", "opening", "snapshot", "sql"]
