"""The agent's durable writes: those of `common.durable`, and one that also returns the digest of what it wrote.

Every file that the agent must not lose is written here. No other module of the agent syncs a file or a folder, except
the training log (`logs`), which only ever grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from common import durable
from protos.chunks import ChunkHasher
from silo_agent.storage.own_files import own_files

__all__ = ["sync_folder", "write_pieces", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """`common.durable.write_whole`. Raises `ShortageError` if this machine cannot do it now, else OSError."""
    with own_files():
        durable.write_whole(path, content)


def sync_folder(folder: Path) -> None:
    """`common.durable.sync_folder`. Raises `ShortageError` if this machine cannot do it now, else OSError."""
    with own_files():
        durable.sync_folder(folder)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> str:
    """`write_whole` for content that comes in pieces. Returns its digest in the form of `protos.chunks`.

    Raises as `write_whole` does. If a piece raises, nothing is left behind.
    """
    hasher = ChunkHasher()

    def hashed() -> Iterator[bytes]:
        for piece in pieces:
            hasher.update(piece)
            yield piece

    with own_files():
        durable.write_pieces(path, hashed())
    return hasher.digest
