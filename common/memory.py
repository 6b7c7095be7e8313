"""How the C library keeps memory that a process has freed."""

from __future__ import annotations

import ctypes
from typing import Final

_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Numbers of glibc's `malloc.h`."""
_LARGE: Final = 128 << 10
_ARENAS: Final = 2


def give_back_freed() -> bool:
    """Have large blocks go back to the system at once, and small ones be shared by all threads.

    By default glibc gives threads arenas of their own, eight for each core, and keeps ever larger blocks once one was
    freed. A server with many threads then holds what its busiest second took. Returns whether the library has been
    told: only glibc can be, and elsewhere nothing changes. Call it before threads start.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, _LARGE)) and bool(mallopt(_ARENA_MAX, _ARENAS))
