"""What a silo fetches in a phase, as one stream: the sum, or notes of one kind, whole or cut for whom they concern.

The list of its chunks comes with each content's first message. Contents are read chunk by chunk, so a stream holds a
few chunks in memory whatever it sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import chain

from coordinator.storage.shelf import Shelf, Stored
from coordinator.storage.spool import Spool
from crypto.secagg.dealt.slices import SliceForm
from protos.chunks import ChunkList, read_chunks
from protos.messages import MAX_CHUNK, MessageError
from protos.v1 import silo_pb2


class HandingOut:
    """Streams of complete contents of one spool."""

    def __init__(self, spool: Spool) -> None:
        self._spool, self._shelf = spool, Shelf(spool)

    def stream(self, found: Iterable[Stored], offset: int) -> Iterator[silo_pb2.DownloadChunk]:
        """Yield these contents, the first from a chunk on. Raises `MessageError` for an offset behind its end."""
        contents = (self._content(one, 0 if number else offset) for number, one in enumerate(found))
        return packed(chain.from_iterable(contents))

    def cut(self, found: Iterable[tuple[Stored, SliceForm]], about: frozenset[str]) -> Iterator[silo_pb2.DownloadChunk]:
        """Yield these notes, each cut for some silos (`crypto.secagg.dealt.slices`)."""
        notes = (self._shelf.cut(stored, form, about) for stored, form in found)
        return packed(chain.from_iterable(map(_chunks, notes)))

    def _content(self, stored: Stored, offset: int) -> Iterator[silo_pb2.DownloadChunk]:
        small = self._shelf.get(stored)
        if small is not None:
            _require_within(offset, len(small.data))
            yield silo_pb2.DownloadChunk(offset=offset, data=small.data[offset:], hashes=small.chunks.hashes)
            return
        path = self._spool.complete(*stored)
        _require_within(offset, self._spool.length(path))
        chunks = self._spool.chunk_list(self._spool.chunks(*stored)) or ChunkList.of(path)
        hashes = chunks.hashes
        for data in read_chunks(path, offset):
            yield silo_pb2.DownloadChunk(offset=offset, data=data, hashes=hashes)
            offset, hashes = offset + len(data), b""
        if hashes:
            yield silo_pb2.DownloadChunk(offset=offset, hashes=hashes)


def _chunks(data: bytes) -> Iterator[silo_pb2.DownloadChunk]:
    """Yield what is in memory as a content of its own."""
    pieces = [data[at : at + MAX_CHUNK] for at in range(0, len(data), MAX_CHUNK)]
    hashes = b"".join(sha256(piece).digest() for piece in pieces)
    for number, piece in enumerate(pieces):
        yield silo_pb2.DownloadChunk(offset=number * MAX_CHUNK, data=piece, hashes=b"" if number else hashes)


def packed(pieces: Iterable[silo_pb2.DownloadChunk]) -> Iterator[silo_pb2.DownloadChunk]:
    """Put pieces that come one after another into one message, as many as have no more bytes than a chunk.

    Notes are small and many: each in a message of its own would cost more than its bytes.
    """
    message: silo_pb2.DownloadChunk | None = None
    size = 0
    for piece in pieces:
        own = len(piece.data) + len(piece.hashes)
        if message is None or size + own > MAX_CHUNK:
            if message is not None:
                yield message
            message, size = piece, own
        else:
            message.more.append(piece)
            size += own
    if message is not None:
        yield message


def _require_within(offset: int, length: int) -> None:
    if offset > length:
        msg = f"download: the offset {offset} lies after the end; begin again at 0"
        raise MessageError(msg)
