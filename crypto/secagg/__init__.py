"""crypto.secagg."""
