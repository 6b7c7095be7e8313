"""Pure state machines of the agent: no network, no clock, no randomness, no storage."""

__all__ = ["bonds", "turns"]
