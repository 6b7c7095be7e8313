"""Public files as the records of virtual silos, and what keeps a hospital's own out of simulations."""

__all__ = ["guard", "reading"]
