"""What a silo that has met no coordinator yet remembers of coordinators' leases."""

from __future__ import annotations

import tempfile
from pathlib import Path

from silo_agent.protocol.calls.epochs import Epochs


def fresh_epochs() -> Epochs:
    """The highest epoch of a new silo: none."""
    return Epochs(Path(tempfile.mkdtemp(prefix="fedward-epochs-")) / "epoch")
