"""Folders and files of a program's own that nobody else on the machine may read.

Guarantees: what these functions return from is open to its owner alone. What exists with a wider mode is narrowed, and
the caller is told, so that it can say so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077


def private_folder(folder: Path) -> bool:
    """Make a folder for its owner alone, or narrow one. Return whether it was open to others. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _narrowed(folder, 0o700)


def private_file(path: Path) -> bool:
    """Make an empty file for its owner alone, or narrow one. Return whether it was open to others. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return _narrowed(path, 0o600)


def _narrowed(path: Path, mode: int) -> bool:
    if not path.stat().st_mode & _OTHERS:
        return False
    try:
        path.chmod(mode)
    except OSError as error:
        msg = (
            f"others on this machine may read {path}, and it cannot be closed to them ({error.strerror}); run"
            f" chmod {mode:o} {path} as its owner, or give a new folder inside it"
        )
        raise OSError(msg) from None
    return True
