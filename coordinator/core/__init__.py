"""Pure state machines of the coordinator: no network, no clock, no randomness, no storage."""

__all__ = ["events", "round", "state", "study"]
