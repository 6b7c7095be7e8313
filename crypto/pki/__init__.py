"""crypto.pki."""
