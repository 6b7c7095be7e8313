"""The root of the coordinator's errors; each module keeps its own kinds, and all of them hang on it."""

from __future__ import annotations


class CoordinatorError(Exception):
    """Whatever `coordinator` raises on purpose."""
