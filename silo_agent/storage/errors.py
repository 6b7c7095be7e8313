"""What can be wrong with the agent's folder. A module of its own, so that commands need no database to name it."""

from __future__ import annotations

from typing import Self

from common.os_errors import explained
from silo_agent.errors import SiloError


class StateError(SiloError):
    """The agent's folder was changed, or a write would change what must not change. Names the file and the fix."""


class ShortageError(StateError, OSError):
    """One of the agent's own files cannot be read or written now, for want of room or of open files, say.

    The agent does the same work again later. No error of reading or computing records is ever of this kind.
    """

    @classmethod
    def of(cls, error: OSError) -> Self:
        """What an error of the system says, with file, cause and fix."""
        return cls(explained(error))


class StateFileError(ShortageError):
    """The database of the folder cannot be used: the disk is full, say, or the file belongs to somebody else."""


class LocalFileError(StateError):
    """A file that a study's rounds read is damaged or gone. Names it and the fix, for the hospital alone."""


class StateRolledBackError(LocalFileError):
    """The folder is older than the ledger beside it. The silo sits out the rounds that it may not remember."""


class StateOlderError(StateRolledBackError):
    """A peer has shown this silo's own signature over more than the folder knows of. Others have seen that as well."""


class SecondSumError(StateError):
    """A second sum was offered under one label. Nothing of it was opened."""
