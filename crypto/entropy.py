"""Where randomness comes from. The only source here is the operating system.

Sources that can be repeated exist in tests and in simulations (`deploy.local.simulate`), where no agent imports them.
"""

from __future__ import annotations

import builtins
import os
from typing import Protocol


class Entropy(Protocol):
    """A source of bytes that nobody can predict."""

    def bytes(self, n: int) -> builtins.bytes:
        """Return n fresh bytes."""
        ...


class SystemEntropy:
    """The operating system's cryptographic generator."""

    def bytes(self, n: int) -> builtins.bytes:
        """Return n fresh bytes from `os.urandom`."""
        return os.urandom(n)
