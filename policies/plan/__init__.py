"""policies.plan."""
