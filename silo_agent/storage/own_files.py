"""Marks what reads or writes the agent's own files, so that a passing want of room or of open files is waited out.

Where an error is raised decides, not its type: a file of records that cannot be opened, or an image that cannot be
read, raises the same OSError, and must never make the agent wait, because others would see it. So this stands around
the files that the agent itself has made, and around nothing that reads or computes records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.os_errors import is_passing
from silo_agent.storage.errors import ShortageError


@contextmanager
def own_files() -> Iterator[None]:
    """Within it, a passing error of the system becomes a `ShortageError`. Every other error stays what it is."""
    try:
        yield
    except OSError as error:
        if not is_passing(error):
            raise
        raise ShortageError.of(error) from error
