"""Contents that a test holds in memory: chunk lists, made without the code under test's reader, and sums."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crypto.rings.rings import ring_of
from protos import chunks
from protos.chunks import ChunkList


def pieces(content: bytes) -> list[bytes]:
    """The chunks, of the size that is in force."""
    return [content[at : at + chunks.MAX_CHUNK] for at in range(0, len(content), chunks.MAX_CHUNK)]


def listed(content: bytes) -> ChunkList:
    """What is sent beside the content."""
    return ChunkList(len(content), b"".join(hashlib.sha256(piece).digest() for piece in pieces(content)))


def digest_of(content: bytes) -> str:
    """What headers and parts say of the content."""
    return listed(content).digest


def read_frames(kind: str, content: bytes) -> list[NDArray[np.unsignedinteger]]:
    """The words of every frame. Raises `FrameError`."""
    ring = ring_of(kind)
    return [ring.read(content[begin : begin + ring.frame_bytes]) for begin in range(0, len(content), ring.frame_bytes)]


def add_up(kind: str, contents: Sequence[bytes]) -> bytes:
    """The sum of sealed contents."""
    ring, total = ring_of(kind), read_frames(kind, contents[0])
    for content in contents[1:]:
        for words, addend in zip(total, read_frames(kind, content), strict=True):
            ring.add(words, addend)
    return b"".join(map(ring.write, total))
