"""Takes uploads in: chunks are checked as they come; finished bytes are published and recorded, once, whatever crash.

Guarantees: no byte is kept that is not of the chunk that the upload's signed digest names; an upload goes on where its
chunks on disk end, which are read and checked again before; a slot's record names bytes that lie complete on disk;
bytes that lie complete there, but were not recorded when the process died, are used instead of being asked for again.
Whether anybody waits for an upload is the engine's.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.aggregation import check_content
from coordinator.metrics import Metrics
from coordinator.storage.spool import Spool
from coordinator.storage.store import Store
from crypto.errors import FrameError
from protos.chunks import ChunkList, read_chunks, whole_chunks
from protos.messages import RINGS, UploadHeader


class Intake:
    """Uploads of all studies: files in the spool, records in the store."""

    def __init__(self, store: Store, spool: Spool, metrics: Metrics) -> None:
        self._store, self._spool, self._metrics = store, spool, metrics

    def recorded(self, header: UploadHeader) -> bool:
        """Whether the slot holds exactly these bytes already. Raises `ContentConflictError` where it holds others."""
        return self._store.holds(header)

    def offset(self, header: UploadHeader) -> int:
        """Bytes of an upload that need not be sent (again): where to resume, as far as file lengths tell."""
        if self._complete(header) is not None:
            return header.size
        listed = self._spool.chunk_list(self._chunks(header))
        if listed is None or listed.digest != header.sha256:
            return 0
        length = self._spool.length(self._partial(header))
        return length if length == header.size else whole_chunks(length)

    def begin(self, header: UploadHeader, chunks: ChunkList) -> int:
        """Where a stream of an upload must begin: the length of what lies here and is right, the rest is cut off.

        `chunks` is the list that the header's digest names. Nobody else may fill the slot meanwhile. Raises
        `SpoolFullError`.
        """
        if self._complete(header) is not None:
            return header.size
        partial = self._partial(header)
        if self._spool.chunk_list(self._chunks(header)) != chunks:
            self._spool.discard(partial)
            self._spool.keep_chunk_list(self._chunks(header), chunks)
        right = 0
        if partial.exists():
            for data in read_chunks(partial):
                if not chunks.has(right, data):
                    break
                right += len(data)
            self._spool.cut(partial, right)
        return right

    def take(self, header: UploadHeader, chunks: ChunkList, offset: int, data: bytes) -> None:
        """Keep the next chunk. Raises `MessageError` where it is not the one that was announced, `SpoolFullError`."""
        chunks.check(offset, data)
        self._spool.append(self._partial(header), offset, data)

    def settle(self, header: UploadHeader, signature: bytes) -> None:
        """Check, publish and record an upload of which all chunks are here.

        Raises `FrameError`, `SpoolFullError`, FileNotFoundError where its bytes are gone.
        """
        chunks = self._complete(header)
        if chunks is None:
            self._publish(header)
        else:
            # The list that lies beside it may be that of another upload, begun after this one's bytes were published.
            self._spool.keep_chunk_list(self._chunks(header), chunks)
        self._store.add_content(header, signature)
        self._metrics.received.labels(header.kind).inc(header.size)

    def _complete(self, header: UploadHeader) -> ChunkList | None:
        """The chunks of what was published by a process that died before it recorded so; None where nothing was."""
        path = self._spool.complete(header.place, header.slot, header.silo)
        if self._spool.length(path) != header.size:
            return None
        chunks = ChunkList.of(path)
        return chunks if chunks.digest == header.sha256 else None

    def _publish(self, header: UploadHeader) -> None:
        partial = self._partial(header)
        if header.kind in RINGS:
            try:
                check_content(partial, header.kind)
            except FrameError:
                self._spool.discard(partial)
                raise
        self._spool.publish(partial, self._spool.complete(header.place, header.slot, header.silo))

    def _partial(self, header: UploadHeader) -> Path:
        return self._spool.partial(header.place, header.slot, header.silo)

    def _chunks(self, header: UploadHeader) -> Path:
        return self._spool.chunks(header.place, header.slot, header.silo)
