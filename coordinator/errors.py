"""The root of the coordinator's errors; each module keeps its own kinds, and all of them derive from it."""

from __future__ import annotations


class CoordinatorError(Exception):
    """Whatever `coordinator` raises on purpose."""


class OperatorError(CoordinatorError):
    """The coordinator could not be reached, or refused. The message says why.

    It is here and not beside its raiser, so that commands can name it without gRPC.
    """


class NoConsoleError(CoordinatorError):
    """This coordinator serves no console. It is here so that the services can name it."""
