"""What a state folder's secret keys, and what ledger and silos remember of the words that rest on it."""

__all__ = ["anchored", "digests", "heard", "secret"]
