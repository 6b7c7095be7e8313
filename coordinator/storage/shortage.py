"""Which errors say only that this machine lacks something now: open files, memory, room, a database that answers.

Guarantees: such an error is never taken for the fault of a silo or of a study. The same work is done again later. Every
other error, a file that is gone among them, stays what it is. Pure.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from common.os_errors import explained, is_passing
from coordinator.errors import CoordinatorError

Lack = Literal["files", "memory", "disk", "database", "other"]
_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})


@dataclass(frozen=True)
class Shortage:
    """What this machine lacks now. `told` is for its operator: file, cause and fix in one sentence."""

    lack: Lack
    told: str

    @property
    def outside(self) -> str:
        """The sentence for silos: it names no file of ours."""
        return f"the coordinator's machine has {_OUTSIDE[self.lack]} now; its operator sees more, so try again later"


_OUTSIDE: Final[dict[Lack, str]] = {
    "files": "no open files left",
    "memory": "too little memory",
    "disk": "no usable disk",
    "database": "no usable database",
    "other": "a fault",
}


class ShortError(CoordinatorError):
    """Something could not be done for want of something. Everything that was stored before is intact."""

    shortage: Shortage


class DatabaseShortError(ShortError):
    """The database cannot be used now: it is full or locked, say. The message has its file, the cause and the fix."""

    def __init__(self, told: str) -> None:
        self.shortage = Shortage("database", told)
        super().__init__(told)


def shortage_of(error: BaseException) -> Shortage | None:
    """Return what an error says this machine lacks, or None if it says something else."""
    if isinstance(error, ShortError):
        return error.shortage
    if isinstance(error, MemoryError):
        return Shortage("memory", "the coordinator's process got no memory; free some, or give the service more")
    if isinstance(error, (OperationalError, PoolTimeoutError)):
        return DatabaseShortError(database_told("the database", error)).shortage
    if isinstance(error, OSError) and is_passing(error):
        return Shortage(_lack(error.errno or 0), explained(error))
    return None


def database_told(name: str, error: Exception) -> str:
    """Return what is wrong with a database, and what to do about it, in one sentence without SQL."""
    cause = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error).partition("\n")[0]
    fix = next((fix for words, fix in _FIXES if words in cause.lower()), "see whether its server or its disk works")
    return f"{name}: {cause}; {fix}"


_FIXES: Final = (
    ("full", "make room on its disk"),
    ("locked", "stop other programs that use it, or give it a faster disk"),
    ("unable to open", "fix the owner of its folder, or raise the limit of open files (LimitNOFILE)"),
    ("readonly", "fix the owner or the mode of the file, or mount its disk for writing"),
    ("i/o error", "make room on its disk, and check the disk"),
    ("malformed", "stop the coordinator and restore the file from a backup"),
    ("not a database", "stop the coordinator and restore the file from a backup"),
)


def _lack(number: int) -> Lack:
    if number in _FILES:
        return "files"
    if number in _DISK:
        return "disk"
    return "memory" if number == errno.ENOMEM else "other"
