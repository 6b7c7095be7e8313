"""policies.documents."""
