"""How much a silo has said since its charges, beside the chain: the memory of a state folder that is rolled back.

The state folder counts what binds the silo in a study: draws, uploads, signed lists, reveals, voids. After each of them
the count is written here, durably, before anybody hears of it. So a folder that is put back from an older copy, without
the ledger, has a lower count than the ledger knows (docs/design/noise.md, "Rolled back"). If the ledger is put back as
well, those who cosigned it know (cosign.py). A count says nothing of a patient. It is no entry and charges nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from policies.errors import LedgerShortError, LedgerWriteError

_BUSY_SECONDS: Final = 5.0
_PASSING: Final = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_BUSY", "SQLITE_CANTOPEN"})
"""If the ledger is there, the machine lacks files or room now, and the same may work later."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS anchors (study TEXT PRIMARY KEY, round INTEGER NOT NULL, said INTEGER NOT NULL) STRICT
"""
_RAISE: Final = """
INSERT INTO anchors (study, round, said) VALUES (?, ?, ?)
ON CONFLICT (study) DO UPDATE SET round = max(round, excluded.round), said = max(said, excluded.said)
"""


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the ledger knows of one study: the last round in which the silo has said anything, and how often in all."""

    round: int = -1
    said: int = 0


class Anchors:
    """The counts beside one ledger, whose file must be there."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger

    def of(self, study: str) -> Anchor:
        """The anchor of a study; that of a silo that has said nothing, if there is none. Raises `LedgerWriteError`."""
        with self._connected() as connection:
            connection.execute(_SCHEMA)
            row = connection.execute("SELECT round, said FROM anchors WHERE study = ?", (study,)).fetchone()
        return Anchor() if row is None else Anchor(*row)

    def raise_to(self, study: str, anchor: Anchor) -> None:
        """Raise a study's anchor, durably. It never goes down. Raises `LedgerWriteError`; then nothing may be said.

        It is a `LedgerShortError` if the machine lacks files or room now.
        """
        with self._connected() as connection:
            connection.execute(_SCHEMA)
            connection.execute(_RAISE, (study, anchor.round, anchor.said))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        place = f"file:{quote(str(self._path.absolute()))}?mode=rw"
        try:
            with contextlib.closing(sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("PRAGMA synchronous=EXTRA")
                connection.execute("PRAGMA journal_mode=DELETE")
                with connection:
                    yield connection
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            msg = (
                f"{self._path.name}: what this silo has said cannot be noted ({name}), so it says nothing; free space"
                " on its disk, raise the limit of open files, or fix the permissions of its folder"
            )
            lacking = name in _PASSING and self._path.exists()
            raise (LedgerShortError if lacking else LedgerWriteError)(msg) from None
