"""Chunk lists of contents that a test holds in memory, made without the code under test's reader."""

from __future__ import annotations

import hashlib

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
