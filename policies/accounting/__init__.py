"""What releases cost: epsilon of any list of them, of a patient of several hospitals, and the noise for a wanted price.

The only room that imports dp-accounting. It counts and remembers nothing; the ledger remembers.
"""

__all__ = ["accountant", "overlap", "planning", "totals"]
