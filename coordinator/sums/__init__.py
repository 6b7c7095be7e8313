"""Adding contributions without reading them."""

__all__ = ["adding", "aggregation"]
