"""policies.accounting."""
