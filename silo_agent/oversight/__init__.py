"""What the data-protection officer does: approve a policy; sign, audit and recover a ledger; print its statement.

The room works on files and the ledger. It reads no record and no model.
"""

__all__ = ["approval", "audit", "recovery", "signing", "stamping", "statement_page"]
