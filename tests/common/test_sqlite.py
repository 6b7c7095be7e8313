"""The settings of a connection, as SQLite itself states them."""

import sqlite3
from contextlib import closing

from common.sqlite import make_durable


def test_what_is_written_survives_and_who_finds_it_locked_waits(tmp_path):
    with closing(sqlite3.connect(tmp_path / "some.sqlite3", timeout=0)) as connection:
        make_durable(connection, "foreign_keys=ON", "secure_delete=ON")
        said = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in WANTED}
    assert said == WANTED


WANTED = {"journal_mode": "delete", "synchronous": 3, "busy_timeout": 30_000, "foreign_keys": 1, "secure_delete": 1}
