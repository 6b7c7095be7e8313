"""A hostile member of a federation: what it can do to a coordinator (`python -m bench.attacks.hostile`)."""
