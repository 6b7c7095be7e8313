"""crypto.rings.rings."""
