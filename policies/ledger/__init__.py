"""policies.ledger.ledger."""
