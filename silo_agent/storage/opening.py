"""Opens an agent's state folder: its secret, then its database, which rests on it.

Guarantees: nothing is made anew in the place of what is lost. Database and secret are made at the first start alone,
which is known by a ledger that has charged nothing. A file that is damaged, cut, gone, older or of another folder ends
the start with one sentence: which file, why, and what to do. What each file of the folder does is told in
docs/operating.md, "A damaged state folder".
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from crypto.entropy import Entropy
from crypto.pki.at_rest import KeyHolder
from policies.ledger.ledger import read_ledger
from silo_agent.storage.errors import StateError, StateFileError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.keyed.digests import Digests
from silo_agent.storage.keyed.secret import open_secret
from silo_agent.storage.rows import Withdrawals
from silo_agent.storage.state import KEYED, State

_Found = Literal["none", "plain", "keyed"]
"""No database; one of 0.6 or out of a backup, which rests on no secret; one that rests on the folder's."""
_PUT_BACK: Final = (
    "put the file back, or put back a backup, which ends the studies that run (fedward-silo restore); without any, back"
    " up this folder as it is and put that back (fedward-silo backup, restore)"
)


def open_state(folder: Path, credential: KeyHolder, entropy: Entropy) -> tuple[State, bytes]:
    """The state in a folder, and the folder's secret. Both are made if an agent was never started there.

    Raises `StateError` with file, cause and fix if one of them, or the list of who has withdrawn, is lost, damaged or
    of another folder; `LedgerError` if there is no database and the ledger cannot be read; OSError.
    """
    files = StateFolder(folder)
    found = _look(files.database)
    if found == "none":
        _require_unused(files)
    secret = open_secret(files, credential, entropy, first=found != "keyed")
    state = State(folder, Digests.of(secret))
    try:
        _require_withdrawals(state, len(Withdrawals(files, credential, entropy).names()))
    except BaseException:
        state.close()
        raise
    return state, secret


def read_state(folder: Path) -> State:
    """The state in a folder, for a command that only reads it. Raises `StateError` if no agent was ever started there.

    No file is made.
    """
    database = StateFolder(folder).database
    if _look(database) == "none":
        msg = f"there is no {database}: no agent was started with this folder, or it is lost; {_PUT_BACK}"
        raise StateError(msg)
    return State(folder)


def _look(database: Path) -> _Found:
    """What is there. Raises `StateFileError` if it cannot be read."""
    if not database.exists():
        return "none"
    try:
        # Read and write, so that a write that was cut off is undone first.
        place = f"file:{quote(str(database.absolute()))}?mode=rw"
        with closing(sqlite3.connect(place, uri=True, timeout=30)) as connection:
            damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        damage = str(error)
    if damage != "ok":
        msg = f"{database} is damaged, or cannot be used ({' '.join(damage.split())}); {_PUT_BACK}"
        raise StateFileError(msg)
    if not tables:
        return "none"
    return "keyed" if version == KEYED else "plain"


def _require_unused(files: StateFolder) -> None:
    """Raise `StateError` if the ledger has charged something: then there was a database."""
    _, debits = read_ledger(files.ledger)
    if debits:
        what = "is empty" if files.database.exists() else "is gone"
        msg = (
            f"{files.database} {what}, but the ledger has {len(debits)} charges, and a new one would not know what was"
            f" drawn and signed under them; {_PUT_BACK}"
        )
        raise StateError(msg)


def _require_withdrawals(state: State, names: int) -> None:
    """Raise `StateError` if an earlier start found more people on the list of who has withdrawn, on which all stay."""
    before = state.withdrawals()
    if names < before:
        what = "is older than it was" if state.files.withdrawn.exists() else "is gone"
        msg = (
            f"{state.files.withdrawn} {what}: {before} people had withdrawn, and {names} are on the list; put the file"
            " back, or enter every withdrawal again (fedward-silo data withdraw)"
        )
        raise StateError(msg)
    if names > before:
        state.keep_withdrawals(names)
