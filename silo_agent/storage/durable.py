"""The agent's durable writes: those of both programs (`policies.durable`), and one that says what it wrote.

Every file that the agent must not lose is written here, and no other module of the agent syncs a file or a folder but
the training log (`logs`), which only ever grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from policies import durable
from policies.durable import sync_folder, write_whole
from protos.chunks import ChunkHasher

__all__ = ["sync_folder", "write_pieces", "write_whole"]


def write_pieces(path: Path, pieces: Iterable[bytes]) -> str:
    """`write_whole` for content that comes in pieces; returns its digest, as the wire has it (`protos.chunks`)."""
    hasher = ChunkHasher()

    def hashed() -> Iterator[bytes]:
        for piece in pieces:
            hasher.update(piece)
            yield piece

    durable.write_pieces(path, hashed())
    return hasher.digest
