"""The number of files that the coordinator may have open. Each connection is one."""

from __future__ import annotations

import resource

from coordinator.errors import CoordinatorError

NEEDED = 4096
"""Fewest open files with which the coordinator serves."""
WANTED = 16_384
RESERVED = 1024
"""Open files that no connection can take: for the database, the spool and libraries."""
CONNECTIONS = 4096
"""Most connections at once, whoever makes them, so that a flood of them takes little memory until it is closed."""


class FewFilesError(CoordinatorError):
    """The system allows too few open files."""


def raise_limit() -> int:
    """Raise this process's limit of open files as far as is allowed and useful; return it. Raises `FewFilesError`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < WANTED:
        soft = WANTED if hard == unlimited else min(hard, WANTED)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft != unlimited and soft < NEEDED:
        msg = (
            f"the coordinator needs {NEEDED} open files, but this system allows {soft}; raise the limit with"
            f" `ulimit -n {NEEDED}`, or with LimitNOFILE={NEEDED} in the unit of systemd"
        )
        raise FewFilesError(msg)
    return WANTED if soft == unlimited else soft
