"""What a state folder"s secret keys, and what the ledger remembers of the words that rest on it."""

__all__ = ["anchored", "digests", "secret"]
