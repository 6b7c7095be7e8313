"""The silo's own records: read by the study's public schema, and split into training and evaluation patients.

Nothing here needs torch, and nothing here leaves the silo.
"""

__all__ = [
    "cells",
    "csv_rows",
    "errors",
    "image_store",
    "images",
    "inputs",
    "outcome",
    "profiling",
    "reader",
    "records",
    "sources",
    "split",
    "table",
    "unlabelled",
]
