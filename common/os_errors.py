"""What to do about an error of the operating system, which itself says only what happened and to which file."""

from __future__ import annotations

import errno
from typing import Final

_OWNER: Final = "fix the owner or the mode of the file or of its folder, or run this as its owner"
_ROOM: Final = "make room there, or choose another folder"
_LIMIT: Final = "raise the limit of open files (ulimit -n, or LimitNOFILE in a unit of systemd)"
_ADVICE: Final = {
    errno.EACCES: _OWNER,
    errno.EPERM: _OWNER,
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: _LIMIT,
    errno.ENFILE: _LIMIT,
    errno.EIO: "check the disk",
    errno.ENOMEM: "free memory, or give the process more",
    errno.ENOENT: "fix the path",
    errno.ENOTDIR: "fix the path",
    errno.EISDIR: "it is a folder; give a file",
}


_LASTING: Final = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def is_passing(error: BaseException | None) -> bool:
    """Whether an error of the system says that something is lacking now, and not how things are.

    The same may work later: when there is room, when other files are closed, or when a person has fixed an owner.
    """
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, _LASTING)


def explained(error: Exception) -> str:
    """An error in a sentence, with what to do about it. One with a text of the program's own says so itself."""
    advice = _ADVICE.get(error.errno or 0) if isinstance(error, OSError) else None
    return f"{error}; {advice}" if advice else str(error)
