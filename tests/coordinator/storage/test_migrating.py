"""Tables come up to date from every version on, in one transaction, and are those that the code knows."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from coordinator.storage.database import Database, StoreError
from coordinator.storage.migrating import migrate
from coordinator.storage.tables import METADATA
from support.databases import opened

LATER = {
    "nothing": METADATA.tables.keys(),
    "0.1": {"created", "publications", "statements", "countersigned_statements", "received_statements",
            "summed_releases", "room"},
    "0.5": {"received_statements", "summed_releases", "room"},
    "0.6": set(),
    "0.7": set(),
}  # fmt: skip
"""Tables that a database of a version lacks, beside those of 0.7."""
OF_0_7 = {"changes", "owners", "authors", "archived", "seen", "audit", "audit_cosignatures", "lease"}


def tables_of(version, url):
    """A database as a version left it: its tables, and no mark of the version before 0.7."""
    made = Database(url)
    METADATA.create_all(made.engine)
    lacks = set(LATER[version]) | (OF_0_7 if version != "0.7" else set())
    with made.engine.begin() as connection:
        for name in lacks:
            connection.execute(text(f"DROP TABLE {name}"))
        if "studies" not in lacks:
            connection.execute(text("INSERT INTO studies VALUES ('s', 'n', 'c', 'p')"))
    made.engine.dispose()


@pytest.mark.parametrize("version", LATER)
def test_a_database_of_every_version_comes_up_to_date_and_keeps_its_rows(url, version):
    tables_of(version, url)
    database = opened(Database(url))
    for _ in range(2):
        with database.reading() as connection:
            assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
            assert connection.execute(text("SELECT name FROM studies")).scalar() == (
                None if version == "nothing" else "n"
            )
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "0.7"
        migrate(database)
    database.engine.dispose()


def test_a_database_of_a_newer_version_is_left_alone(tmp_path):
    database = opened(Database(f"sqlite:///{tmp_path / 'newer.sqlite3'}"))
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9.0'"))
    with pytest.raises(StoreError, match=r"was used by a newer version of FedWard .*9\.0.*start that version"):
        migrate(database)
    database.engine.dispose()


def test_a_step_that_fails_leaves_all_as_it_was(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'half.sqlite3'}"
    tables_of("0.5", url)
    database = Database(url)
    monkeypatch.setattr("alembic.op.create_index", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        opened(database)
    with database.reading() as connection:
        found = connection.execute(text("SELECT count(*) FROM sqlite_master WHERE name = 'received_statements'"))
        assert found.scalar() == 0
    database.engine.dispose()
