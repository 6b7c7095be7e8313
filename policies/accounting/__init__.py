"""What releases cost: epsilon of a list of them, epsilon for a patient of several hospitals, noise for a target.

Only this room imports dp-accounting. It adds up and remembers nothing; the ledger remembers.
"""

__all__ = ["accountant", "completing", "overlap", "planning", "totals"]
