"""What silos said of themselves since this coordinator began: version and certificate. For people who run studies."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

_MOST: Final = 10_000


@dataclass(frozen=True)
class JoinedSilo:
    """How a silo joined last."""

    version: str
    certificate_pem: bytes


@dataclass
class SiloBook:
    """The latest of each silo, in memory: a silo joins again whenever it connects."""

    _joined: dict[str, JoinedSilo] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def note(self, silo: str, version: str, certificate_pem: bytes) -> None:
        """Keep how a silo joined."""
        with self._turn:
            if silo in self._joined or len(self._joined) < _MOST:
                self._joined[silo] = JoinedSilo(version, certificate_pem)

    def of(self, silo: str) -> JoinedSilo | None:
        """Return how a silo joined last; None if it has not joined since this coordinator began."""
        with self._turn:
            return self._joined.get(silo)
