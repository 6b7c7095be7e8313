"""Randomness that can be repeated, for simulations: the same seed gives the same noise. It protects nobody.

It feeds the samplers that agents use, so that a simulated study has the very law of noise that a real one has. It lives
above both sides: the contract of the floors forbids an agent to import it (docs/decisions.md).
"""

from __future__ import annotations

import builtins
import hashlib


class RepeatableEntropy:
    """The same bytes for the same names and the same calls: SHAKE-256 over the names and the number of the call."""

    def __init__(self, *names: str | int) -> None:
        self._start = hashlib.shake_256(b"fedward simulation")
        for name in names:
            raw = str(name).encode()
            self._start.update(len(raw).to_bytes(8, "big") + raw)
        self._calls = 0

    def bytes(self, n: int) -> builtins.bytes:
        """The next n bytes."""
        self._calls += 1
        block = self._start.copy()
        block.update(self._calls.to_bytes(8, "big"))
        return block.digest(n)
