"""What can be wrong with the agent's folder. A module of its own, so that commands need no database to name it."""

from silo_agent.errors import SiloError


class StateError(SiloError):
    """The agent's folder was changed, or a write would change what must not change. Names the file and the fix."""


class StateFileError(StateError):
    """The database of the folder cannot be used: the disk is full, say, or the file belongs to somebody else."""


class LocalFileError(StateError):
    """A file that a study's rounds read is damaged or gone. Names it and the fix, for the hospital alone."""


class SurvivorsError(StateError):
    """A second survivor list was requested, or a voided sum. The message names only what the coordinator knows."""


class SumError(StateError):
    """A second sum was offered under one label. Nothing of it was opened."""
