"""The silo's own records: read against the study's public schema, split into training and evaluation patients.

Nothing here needs torch, and nothing here leaves the silo.
"""

__all__ = ["cells", "errors", "images", "reader", "records", "split", "unlabelled"]
