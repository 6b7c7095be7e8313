"""The seeds of one attempt, as agreement and recovery would give them: both ends of a pair hold the same one."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from crypto.secagg.masks import Masks, Unmasking

GROUP = b"g" * 32


class Seeds:
    """Of these participants; other salts give other seeds."""

    def __init__(self, names: Sequence[str], salt: str = "") -> None:
        self.names = tuple(names)
        self._salt = salt

    def masks(self, me: str) -> Masks:
        pairs = {other: self._pair(me, other) for other in self.names if other != me}
        return Masks(me, self._own(me), pairs, GROUP)

    def unmasking(self, survivors: Collection[str]) -> Unmasking:
        dropped = {
            gone: {other: self._pair(gone, other) for other in self.names if other != gone}
            for gone in self.names
            if gone not in survivors
        }
        return Unmasking({name: self._own(name) for name in survivors}, dropped, GROUP)

    def _own(self, name: str) -> bytes:
        return hashlib.sha256(f"{self._salt} own {name}".encode()).digest()

    def _pair(self, one: str, other: str) -> bytes:
        return hashlib.sha256(f"{self._salt} pair {' '.join(sorted((one, other)))}".encode()).digest()
