"""Words of chance by which a database knows a spool, and a lease a folder of data. Each lies in a file."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from common.durable import write_whole
from coordinator.errors import CoordinatorError

SPOOL_FILE: Final = "spool.id"
INSTANCE_FILE: Final = "instance.id"
WORD: Final = re.compile("[0-9a-f]{32}")


class WordDamagedError(CoordinatorError):
    """The file holds no word."""


def new_word() -> str:
    """Return a word of chance."""
    return secrets.token_hex(16)


def word_in(path: Path) -> str:
    """Return the word in a file; make one if there is no file. Raises `WordDamagedError`, OSError."""
    if not path.exists():
        write_whole(path, new_word().encode())
    word = path.read_text(encoding="utf-8", errors="replace").strip()
    if not WORD.fullmatch(word):
        msg = f"{path} is damaged; write into it the word that the database has (table lease: spool, or holder)"
        raise WordDamagedError(msg)
    return word
