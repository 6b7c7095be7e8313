"""Receives uploads. Chunks are checked as they come; a finished upload is published and recorded once despite crashes.

Guarantees: every stored byte belongs to the chunk that the upload's signed digest names. An upload resumes where its
chunks on disk end; these are read and checked again before. A slot's record names bytes that lie complete on disk.
Bytes that lie complete on disk but were not recorded when the process died are used, and not requested again. The
engine decides whether a phase waits for an upload.
"""

from __future__ import annotations

from pathlib import Path

from coordinator.metrics import CoordinatorMetrics
from coordinator.storage.spool import Spool
from coordinator.storage.store import Store
from coordinator.sums.aggregation import check_content
from crypto.errors import FrameError
from protos.chunks import ChunkList, read_chunks, whole_chunks
from protos.messages import RINGS, UploadHeader


class Intake:
    """Uploads of all studies: files in the spool, records in the store."""

    def __init__(self, store: Store, spool: Spool, metrics: CoordinatorMetrics) -> None:
        self._store, self._spool, self._metrics = store, spool, metrics

    def recorded(self, header: UploadHeader) -> bool:
        """Whether the slot holds exactly these bytes already. Raises `ContentConflictError` if it holds others."""
        return self._store.holds(header)

    def offset(self, header: UploadHeader) -> int:
        """Return the bytes of an upload that need not be sent (again), judged by file lengths alone."""
        if self._complete(header) is not None:
            return header.size
        listed = self._spool.chunk_list(self._chunks(header))
        if listed is None or listed.digest != header.sha256:
            return 0
        length = self._spool.length(self._partial(header))
        return length if length == header.size else whole_chunks(length)

    def begin(self, header: UploadHeader, chunks: ChunkList) -> int:
        """Return where a stream of an upload must begin: the length of the correct bytes on disk. Cut off the rest.

        `chunks` is the list that the header's digest names. No other stream may fill the slot meanwhile. Raises
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
            self._spool.claim(partial)
            for data in read_chunks(partial):
                if not chunks.has(right, data):
                    break
                right += len(data)
            self._spool.cut(partial, right)
        return right

    def take(self, header: UploadHeader, chunks: ChunkList, offset: int, data: bytes) -> None:
        """Store the next chunk. Raises `MessageError` if it is not the announced one, and `SpoolFullError`."""
        chunks.check(offset, data)
        self._spool.append(self._partial(header), offset, data)

    def content(self, header: UploadHeader) -> bytes:
        """Return the bytes of a small upload whose chunks are all here. Raises FileNotFoundError if they are gone."""
        published = self._complete(header) is not None
        where = self._spool.complete(header.place, header.slot, header.silo) if published else self._partial(header)
        return where.read_bytes()

    def discard(self, header: UploadHeader) -> None:
        """Delete an upload that is not taken."""
        self._spool.discard(self._partial(header))

    def settle(self, header: UploadHeader, signature: bytes) -> None:
        """Check, publish and record an upload whose chunks are all here.

        Raises `FrameError`, `SpoolFullError`, and FileNotFoundError if its bytes are gone.
        """
        chunks = self._complete(header)
        if chunks is None:
            self._publish(header)
        else:
            # The list beside it may belong to another upload, which began after the bytes of this one were published.
            self._spool.keep_chunk_list(self._chunks(header), chunks)
        self._store.add_content(header, signature)
        self._metrics.received.labels(header.kind).inc(header.size)

    def _complete(self, header: UploadHeader) -> ChunkList | None:
        """Return the chunks of an upload that was published but not recorded, because the process died; else None."""
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
