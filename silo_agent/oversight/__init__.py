"""What the data-protection officer does: approve a policy, sign, audit and recover a ledger, print its statement.

Works on files and the ledger; no record and no model is read here.
"""

__all__ = ["approval", "audit", "recovery", "signing", "statement_page"]
