"""Randomness that is the same for the same draw, whatever the process that makes it: tests alone.

A draw is named by what it is for (place and tensor, or the personal model's round), so a process that begins again and
makes a lost draw anew gets the very bits of the one that was killed. Outside a named draw it is the system's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any


class PlacedEntropy:
    """See the module. `name` begins a draw; the calls within it are numbered."""

    def __init__(self, seed: str) -> None:
        self._seed, self._draw, self._calls = seed, "", 0

    def name(self, draw: str) -> None:
        self._draw, self._calls = draw, 0

    def bytes(self, n: int) -> bytes:
        if not self._draw:
            return os.urandom(n)
        self._calls += 1
        key = f"{self._seed} {self._draw} {self._calls}".encode()
        blocks = (hashlib.sha256(key + b"%d" % block).digest() for block in range(-(-n // 32)))
        return b"".join(blocks)[:n]

    def during(self, method: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        """`method`, with its draws named after its arguments."""

        def named(*arguments: Any, **words: Any) -> Any:
            self.name(name(*arguments))
            try:
                return method(*arguments, **words)
            finally:
                self.name("")

        return named
