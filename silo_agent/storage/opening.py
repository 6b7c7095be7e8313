"""Opens an agent's state folder: its secret, then its database, which rests on it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from crypto.entropy import Entropy
from crypto.pki.at_rest import Holder
from silo_agent.storage.digests import Digests
from silo_agent.storage.errors import StateFileError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.secret import open_secret
from silo_agent.storage.state import State, is_keyed


def open_state(folder: Path, credential: Holder, entropy: Entropy) -> tuple[State, bytes]:
    """The state in a folder, and the folder's secret. Both are made if an agent was never started there.

    Raises `StateError` with file, cause and fix if one of them is lost, damaged or of another silo; OSError.
    """
    files = StateFolder(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        first = not files.database.exists() or not is_keyed(files.database)
    except sqlite3.Error as error:
        msg = f"{files.database} cannot be read ({error}); put back a backup (fedward-silo restore)"
        raise StateFileError(msg) from None
    secret = open_secret(files, credential, entropy, first=first)
    return State(folder, Digests.of(secret)), secret
