"""What a silo keeps on its disk: durable state, the names of its files, and when they are removed.

Every write is whole or absent. What the bytes mean is not known here.
"""

__all__ = ["errors", "retention", "state"]
