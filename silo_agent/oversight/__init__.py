"""What the data-protection officer does: approve a policy; sign, audit, rebind and recover a ledger; print it.

The room works on files and the ledger. It reads no record and no model.
"""

__all__ = [
    "approval",
    "asking",
    "asking_figures",
    "audit",
    "decisions",
    "ledger_tables",
    "polling",
    "rebinding",
    "recovery",
    "signing",
    "stamping",
    "statement_page",
    "telling",
]
