"""Which of several coordinators on one database is the active one. The others stand by, and take over from it."""

__all__ = ["holding", "turns"]
