"""One step for each version that changed the tables."""

__all__: list[str] = []
