"""A source of bytes that everybody can predict: for tests that must repeat."""

from __future__ import annotations

import builtins
import hashlib


class SeededEntropy:
    """The same bytes for the same seed and the same calls: SHA-256 over seed, call number and block number."""

    def __init__(self, seed: builtins.bytes | int) -> None:
        self._seed = seed if isinstance(seed, builtins.bytes) else b"seed %d" % seed
        self._calls = 0

    def begin_again(self) -> None:
        """Give the same bytes as at first."""
        self._calls = 0

    def bytes(self, n: int) -> builtins.bytes:
        self._calls += 1
        blocks = (
            hashlib.sha256(b"%d %d " % (self._calls, block) + self._seed).digest() for block in range(-(-n // 32))
        )
        return b"".join(blocks)[:n]
