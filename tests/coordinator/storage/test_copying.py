"""A backup has all of one moment, and is put back into either kind of database, whole or not at all."""

from __future__ import annotations

import shutil

import pytest
from sqlalchemy import insert, select, text

from coordinator.core.study import Script, create
from coordinator.storage import tables
from coordinator.storage.copying import CopyError, back_up, put_back
from coordinator.storage.database import Database
from coordinator.storage.store import Store
from protos.messages import Tensor
from support.databases import opened
from support.people import audit_entry
from support.postgres import database_url
from support.rounds import LIMITS


def filled(database, studies=3):
    store = Store(database)
    for digit in range(1, studies + 1):
        digest = str(digit) * 64
        script = Script(digest, f"study-{digit}", ("north", "south"), 2, 1, True, ((Tensor.COUNTS,),), LIMITS, 1)
        store.create(b"\x00{}", create(script), audit_entry())
        store.tell(digest, "north")
    store.see({"north": 5.25})
    return store


def content(database):
    """All rows of all tables, but of the lease."""
    with database.reading() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table)).all()))
            for table in tables.METADATA.sorted_tables
            if table is not tables.lease
        }


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request, tmp_path):
    """Another database, of either kind."""
    if request.param == "sqlite":
        made = opened(Database(f"sqlite:///{tmp_path / 'other.sqlite3'}"))
        yield made
        made.engine.dispose()
    else:
        with database_url() as url:
            made = opened(Database(url))
            yield made
            made.engine.dispose()


def test_what_is_put_back_is_what_was_stored_and_counts_on(database, empty, tmp_path):
    store = filled(database)
    backup = tmp_path / "backup"
    assert back_up(database, backup) == 3
    assert backup.stat().st_mode & 0o077 == 0
    epoch = empty.epoch
    Store(empty)  # which begins an audit log, as a coordinator that was started too early
    assert put_back(empty, backup) == 3
    assert content(empty) == content(database)
    assert empty.epoch == epoch, "the lease is of the database"
    assert Store(empty).load() == store.load()
    filled_again = Store(empty)
    script = Script("9" * 64, "later", ("north",), 1, 1, True, ((Tensor.COUNTS,),), LIMITS, 1)
    filled_again.create(b"{}", create(script), audit_entry())
    assert [one.script.name for one in filled_again.load()][-1] == "later"
    assert filled_again.audit.followed().entries == store.audit.followed().entries + 1


def test_a_backup_is_of_one_moment_beside_who_writes(database, tmp_path, monkeypatch):
    """What is written while rows are copied is not in the backup, also where it lies in tables that come later."""
    store = filled(database, 1)
    before = content(database)
    original, written = tables.METADATA.create_all, []

    def meanwhile(connection):
        if not written and database.kind == "postgresql":
            written.append(store.tell("1" * 64, "south"))
        original(connection)

    monkeypatch.setattr(tables.METADATA, "create_all", meanwhile)
    back_up(database, tmp_path / "backup")
    monkeypatch.undo()
    copy = opened(Database(f"sqlite:///{tmp_path / 'backup'}"))
    assert content(copy) == before
    copy.engine.dispose()


def test_a_database_that_holds_anything_is_not_overwritten(database, empty, tmp_path):
    filled(database)
    back_up(database, tmp_path / "backup")
    with empty.writing() as connection:
        connection.execute(insert(tables.told).values(study="s", silo="n"))
    before = content(empty)
    with pytest.raises(CopyError, match=r"is not empty \(told\); a backup is put back into a new database alone"):
        put_back(empty, tmp_path / "backup")
    assert content(empty) == before
    with empty.writing() as connection:
        connection.execute(text("DELETE FROM told"))
    Store(empty).audit.note(audit_entry())
    with pytest.raises(CopyError, match=r"\(audit\)"):
        put_back(empty, tmp_path / "backup")


@pytest.mark.parametrize("content_", [b"", b"no database", None])
def test_another_file_is_refused_by_name_and_nothing_changes(empty, tmp_path, content_):
    file = tmp_path / "backup"
    if content_ is None:
        other = Database(f"sqlite:///{file}")  # one without a lease
        other.engine.dispose()
    else:
        file.write_bytes(content_)
    before = content(empty)
    with pytest.raises(CopyError, match=f"{file} is no backup of a coordinator"):
        put_back(empty, file)
    assert content(empty) == before
    assert not list(tmp_path.glob(".restoring-*"))
    with pytest.raises(CopyError, match="there is no file"):
        put_back(empty, tmp_path / "absent")


def test_a_backup_that_fails_leaves_nothing_and_replaces_nothing(database, tmp_path, monkeypatch):
    filled(database)
    backup = tmp_path / "backup"
    with monkeypatch.context() as failing:
        failing.setattr("coordinator.storage.copying._copy", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            back_up(database, backup)
    assert not backup.exists()
    assert not list(tmp_path.glob("backup*"))
    back_up(database, backup)
    kept = backup.read_bytes()
    with pytest.raises(CopyError, match="exists already; give another name"):
        back_up(database, backup)
    assert backup.read_bytes() == kept


def test_a_database_of_another_version_is_not_backed_up_in_part(database, tmp_path):
    with database.writing() as connection:
        connection.execute(text("DROP TABLE seen"))
    with pytest.raises(CopyError, match=r"lacks the tables seen: .*start this version's coordinator on it once"):
        back_up(database, tmp_path / "backup")
    assert not list(tmp_path.glob("backup*"))


def test_a_backup_is_not_changed_when_it_is_put_back(database, empty, tmp_path):
    filled(database)
    back_up(database, tmp_path / "backup")
    shutil.copy(tmp_path / "backup", tmp_path / "kept")
    put_back(empty, tmp_path / "backup")
    assert (tmp_path / "backup").read_bytes() == (tmp_path / "kept").read_bytes()
