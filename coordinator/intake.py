"""Takes uploads in: finished bytes are checked, published on disk and recorded, each once, whatever crash intervenes.

Guarantees: a slot's record names bytes that lie complete on disk; bytes that lie complete there, but were not recorded
when the process died, are used instead of being asked for again. Whether anybody waits for an upload is the engine's.
"""

from __future__ import annotations

from coordinator.adding import check_content
from coordinator.metrics import Metrics
from coordinator.spool import Spool, digest
from coordinator.store import Store
from crypto.errors import FrameError
from protos.messages import UploadHeader


class Intake:
    """Uploads of all studies: files in the spool, records in the store."""

    def __init__(self, store: Store, spool: Spool, metrics: Metrics) -> None:
        self._store, self._spool, self._metrics = store, spool, metrics

    def recorded(self, header: UploadHeader) -> bool:
        """Whether the slot holds exactly these bytes already. Raises `ContentConflictError` where it holds others."""
        return self._store.holds(header)

    def offset(self, header: UploadHeader) -> int:
        """Bytes of an upload that need not be sent (again): where to resume."""
        if self._is_complete(header):
            return header.size
        return self._spool.length(self._spool.partial(header.place, header.slot, header.silo))

    def settle(self, header: UploadHeader, signature: bytes) -> None:
        """Check, publish and record an upload of which all bytes are here.

        Raises ValueError, `FrameError`, `SpoolFullError`, FileNotFoundError where its bytes are gone.
        """
        if not self._is_complete(header):
            self._publish(header)
        self._store.add_content(header, signature)
        self._metrics.received.labels(header.kind).inc(header.size)

    def _is_complete(self, header: UploadHeader) -> bool:
        """Published by a process that died before it recorded so."""
        path = self._spool.complete(header.place, header.slot, header.silo)
        return self._spool.length(path) == header.size and digest(path) == header.sha256

    def _publish(self, header: UploadHeader) -> None:
        place, slot, silo = header.place, header.slot, header.silo
        partial = self._spool.partial(place, slot, silo)
        if digest(partial) != header.sha256:
            self._spool.discard(partial)
            msg = "the bytes received do not have the SHA-256 that was signed; the upload starts anew"
            raise ValueError(msg)
        if header.tensor is not None:
            try:
                check_content(partial, header.tensor)
            except FrameError:
                self._spool.discard(partial)
                raise
        self._spool.publish(partial, self._spool.complete(place, slot, silo))
