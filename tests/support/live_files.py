"""Files below a folder in which a running process makes and removes files meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def live_files(folder: Path) -> Iterator[Path]:
    """All files found on one walk; what vanishes on the way is left out, and a file may vanish once it was yielded."""
    for root, _, names in os.walk(folder):
        yield from (Path(root) / name for name in names)


def size_of(path: Path) -> int:
    """Its length; 0 where it has vanished."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def content_of(path: Path) -> bytes:
    """What it holds; nothing where it has vanished."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
