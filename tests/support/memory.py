"""Searches for byte patterns in everything a process keeps: its files, its log, its metrics, its memory image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from crypto.rings.ckks_public import pack
from support.live_files import content_of, live_files

WINDOW = 4
"""Consecutive values of a pattern that make a find; chance would need 2^-100."""
WINDOWS = 2
"""Windows looked for; a whole pattern would make the search slow and no surer."""
CHUNK = 1 << 24


def encodings(integers: np.ndarray, step: float) -> dict[str, list[bytes]]:
    """The beginning of the pattern in every encoding that it has on its way, as windows of `WINDOW` values."""
    values = integers.astype(np.float64) * step
    forms = {
        "float32": values.astype("<f4"),
        "float64": values.astype("<f8"),
        "float64 of integers": integers.astype("<f8"),
        "int32": integers.astype("<i4"),
        "int64": integers.astype("<i8"),
        "big-endian int32": integers.astype(">i4"),
    }
    starts = range(0, WINDOW * WINDOWS, WINDOW)
    found = {name: [form[i : i + WINDOW].tobytes() for i in starts] for name, form in forms.items()}
    words = integers.astype(np.uint64)
    found["54-bit words"] = [pack(words[i : i + WINDOW]) for i in starts]
    found["text"] = [", ".join(map(str, integers[i : i + WINDOW])).encode() for i in starts]
    return found


def search(content: bytes, patterns: Mapping[str, Iterable[bytes]]) -> set[str]:
    """Names of the encodings of which a window occurs."""
    return {name for name, windows in patterns.items() if any(window in content for window in windows)}


def search_files(folder: Path, patterns: Mapping[str, Iterable[bytes]]) -> set[str]:
    """`file: encoding` for every find below a folder."""
    return {
        f"{path.relative_to(folder)}: {name}"
        for path in live_files(folder)
        for name in search(content_of(path), patterns)
    }


def memory_regions(pid: int) -> list[tuple[int, int]]:
    """What a process has written or may write; libraries' code and constants are not its memory."""
    regions = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw..", line)
        if match and "[vvar" not in line and "[vsyscall" not in line:
            regions.append((int(match[1], 16), int(match[2], 16)))
    return regions


def search_memory(pid: int, patterns: Mapping[str, Iterable[bytes]]) -> tuple[set[str], int]:
    """Finds in the memory image of a running process, and how many bytes were read."""
    found: set[str] = set()
    read = 0
    overlap = max(len(window) for windows in patterns.values() for window in windows)
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, end in memory_regions(pid):
            position, tail = start, b""
            while position < end:
                try:
                    memory.seek(position)
                    chunk = memory.read(min(CHUNK, end - position))
                except (OSError, ValueError, OverflowError):
                    break
                if not chunk:
                    break
                found |= search(tail + chunk, patterns)
                tail = chunk[-overlap:]
                position += len(chunk)
                read += len(chunk)
    return found, read
