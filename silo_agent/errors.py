"""The root of the agent's errors; each room keeps its own kinds, and all of them hang on it.

Guarantees: whatever `silo_agent` raises on purpose is a `SiloError`, and its text says what to do about it. Two things
are no errors and hang apart: `protocol.client.Stopped`, the operator's wish, and `data.errors.Unfit`, which the reader
turns into a `DataError` before anybody sees it. What may be said of an error outside the hospital is `agent`'s rule.
"""

from __future__ import annotations


class SiloError(Exception):
    """Base of the tree."""
