"""The permanent record of charges: a chain of entries with one writer, and cosignatures that say how far it had come.

`ledger` is the only way to charge. `cosign` and `exports` are for parties that check the ledger from outside.
"""

__all__ = ["anchors", "chain", "cosign", "events", "exports", "judging", "ledger", "lock", "summary"]
