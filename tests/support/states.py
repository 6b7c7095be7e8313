"""State folders for tests: with digests under a key that everybody knows."""

from __future__ import annotations

from pathlib import Path

from silo_agent.storage.keyed.digests import Digests
from silo_agent.storage.state import State

DIGESTS = Digests(bytes(range(32)))


def keyed(folder: Path) -> State:
    """The state in a folder, which is made if it is not there."""
    return State(folder, DIGESTS)
