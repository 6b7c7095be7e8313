"""What was charged, for ever: a chain of entries, its one writer, and how others remember how far it had come.

`ledger` is the only way to charge; `cosign` and `exports` are for those who check it from outside.
"""

__all__ = ["chain", "cosign", "events", "exports", "ledger", "summary"]
