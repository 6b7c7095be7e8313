"""What people ask of the coordinator: who may, within which quota, what the audit log says of it, and the calls."""

__all__ = ["authors", "desk", "polls", "service"]
