"""What every database of a program asks of SQLite, so that what is written survives a loss of power.

A rollback journal and full synchronous writes: with this SQLite's WAL several connections may corrupt a file. Who finds
it locked waits.
"""

from __future__ import annotations

from typing import Any, Final

_DURABLE: Final = ("journal_mode=DELETE", "synchronous=EXTRA", "busy_timeout=30000")


def make_durable(connection: Any, *more: str) -> None:
    """Set a DB-API connection up; `more` are pragmas of the caller's own, as `name=value`."""
    cursor = connection.cursor()
    for pragma in (*_DURABLE, *more):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
