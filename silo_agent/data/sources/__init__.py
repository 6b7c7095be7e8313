"""Where a hospital keeps a study's records, the rows that a study began with, and how both become two cohorts."""

__all__ = ["csv_blocks", "data_set", "opening", "parquet_rows", "snapshot", "sql"]
