"""Content that travels in chunks. Each chunk is checked as it comes.

Guarantees: a content's digest covers its size and the SHA-256 of every chunk of `MAX_CHUNK` bytes (the last chunk may
be shorter). A receiver who knows the digest, from a signed header or from the coordinator, refuses the first chunk that
was altered, cut, repeated or moved, before the chunk is written. A stream may begin at any chunk. The list costs 32
bytes for 128 KiB of content, so 2 MiB for `MAX_CONTENT`, and fits one message. A list whose length does not fit the
size is refused. `messages` says who signs what.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from protos.bounds import Count
from protos.messages import MAX_CHUNK, MAX_CONTENT, Message, MessageError

_DOMAIN = b"fedward chunks 1"
HASH_BYTES = 32
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True)
class ChunkList(Message):
    """The SHA-256 of every chunk of a content of `size` bytes, one after the other."""

    called: ClassVar[str | None] = "chunks"

    size: int
    hashes: Annotated[bytes, Count(0, HASH_BYTES * MAX_CONTENT // MAX_CHUNK)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.hashes) != HASH_BYTES * self.count:
            msg = f"chunks: {len(self.hashes)} bytes do not list the chunks of {self.size} bytes"
            raise MessageError(msg)

    @classmethod
    def of(cls, path: Path) -> Self:
        """List a file's chunks, in constant memory except for the list. Raises OSError."""
        hashes, size = bytearray(), 0
        for chunk in read_chunks(path):
            hashes += hashlib.sha256(chunk).digest()
            size += len(chunk)
        return cls(size, bytes(hashes))

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """The inverse of `to_bytes`. Raises `MessageError`."""
        if len(blob) < _SIZE.size:
            msg = f"chunks: {len(blob)} bytes are no list of chunks"
            raise MessageError(msg)
        (size,) = _SIZE.unpack(blob[-_SIZE.size :])
        return cls(size, blob[: -_SIZE.size])

    def to_bytes(self) -> bytes:
        """Return the hashes, then the size in eight bytes, little-endian."""
        return self.hashes + _SIZE.pack(self.size)

    @property
    def count(self) -> int:
        """The number of chunks."""
        return -(-self.size // MAX_CHUNK)

    @property
    def digest(self) -> str:
        """The digest that names the content: SHA-256 over a domain and `to_bytes`, lowercase hex."""
        return hashlib.sha256(_DOMAIN + self.to_bytes()).hexdigest()

    def require(self, digest: str) -> None:
        """Raise `MessageError` unless this is the list of the content that `digest` names."""
        if self.digest != digest:
            msg = "chunks: the list is not that of the announced content"
            raise MessageError(msg)

    def has(self, offset: int, data: bytes) -> bool:
        """Whether `data` is the chunk that begins at `offset`."""
        at, rest = divmod(offset, MAX_CHUNK)
        known = self.hashes[HASH_BYTES * at : HASH_BYTES * (at + 1)]
        return not rest and len(data) == min(MAX_CHUNK, self.size - offset) and hashlib.sha256(data).digest() == known

    def check(self, offset: int, data: bytes) -> None:
        """Raise `MessageError`, with the chunk's number from 1, unless `data` is the chunk that begins at `offset`."""
        if not self.has(offset, data):
            msg = (
                f"chunks: the {len(data)} bytes at offset {offset} are not chunk {offset // MAX_CHUNK + 1} of"
                f" {self.count} as it was announced; have it sent again"
            )
            raise MessageError(msg)


class ChunkHasher:
    """Computes `ChunkList.digest` of a content that comes in pieces of any length, without storing the list."""

    def __init__(self) -> None:
        self._size, self._chunk, self._whole = 0, hashlib.sha256(), hashlib.sha256(_DOMAIN)

    def update(self, data: bytes | memoryview) -> None:
        """Take the next piece."""
        rest = memoryview(data)
        while rest:
            piece = rest[: MAX_CHUNK - self._size % MAX_CHUNK]
            self._chunk.update(piece)
            self._size += len(piece)
            rest = rest[len(piece) :]
            if self._size % MAX_CHUNK == 0:
                self._whole.update(self._chunk.digest())
                self._chunk = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Return the digest of all pieces so far, lowercase hex."""
        whole = self._whole.copy()
        if self._size % MAX_CHUNK:
            whole.update(self._chunk.digest())
        whole.update(_SIZE.pack(self._size))
        return whole.hexdigest()


def read_chunks(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Yield a file's chunks from `offset` on. A chunk must begin at `offset`. Raises OSError."""
    with path.open("rb") as file:
        file.seek(offset)
        while data := file.read(MAX_CHUNK):
            yield data


def whole_chunks(length: int) -> int:
    """Return where to resume a content of which `length` bytes are stored. A chunk that was cut is sent again."""
    return length - length % MAX_CHUNK
