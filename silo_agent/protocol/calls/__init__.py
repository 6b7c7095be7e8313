"""The way to the coordinator: calls and their retries, which certificate it shows, which of its machines is active."""

__all__ = ["client", "coordinator_watch", "epochs"]
