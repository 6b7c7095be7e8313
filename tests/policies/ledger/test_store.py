from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from policies.errors import (
    LedgerBusyError,
    LedgerExistsError,
    LedgerMissingError,
    LedgerTamperedError,
    LedgerWriteError,
)
from policies.ledger.chain import Genesis, next_entry
from policies.ledger.events import Debit, EntryRef
from policies.ledger.store import LedgerFile, create_store, read_ledger
from policies.plan.cost import Cost

HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[3])
GENESIS = Genesis("cardiology", 0.2, 1e-5)
COST = Cost("training", 1.0, 20.0, 1)
LONG = "s" * 128
"""A name as long as it may be: fills pages fast."""


def entry_after(head: EntryRef, round_number: int = 1):
    debit = Debit(LONG, LONG, round_number, 1, {"heads": COST, "encoder": COST, "metrics": COST})
    return next_entry(head, debit, "2026-01-31T08:00:00+00:00", 0.1)


def head_of(path) -> EntryRef:
    _, entries = read_ledger(path)
    if entries:
        return EntryRef(entries[-1].sequence, entries[-1].hash)
    with contextlib.closing(sqlite3.connect(path)) as raw:
        return EntryRef(*raw.execute("SELECT sequence, hash FROM chain").fetchone())


@pytest.fixture
def path(tmp_path):
    create_store(tmp_path / "ledger.db", GENESIS)
    return tmp_path / "ledger.db"


@pytest.fixture
def store(path):
    with contextlib.closing(LedgerFile(path)) as opened:
        yield opened


def test_a_new_store_holds_its_genesis_and_nothing_else_lies_about(path):
    assert read_ledger(path) == (GENESIS, ())
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", [":memory:", "a?mode=memory", "a#b", "a%62", "file:a", "ä b&c=d"])
def test_a_store_is_the_file_of_its_name_however_sqlite_reads_such_a_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    create_store(path, GENESIS)
    with contextlib.closing(LedgerFile(path)) as opened:
        assert (
            opened.read() == opened.read_again() == read_ledger(tmp_path / name) == read_ledger(path) == (GENESIS, ())
        )
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_store_is_made_once(path):
    with pytest.raises(LedgerExistsError, match="only one ledger"):
        create_store(path, GENESIS)


def test_of_two_makers_at_once_one_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "ledger.db"
    whole = os.link

    def overtaken(source, target):
        path.write_bytes(b"the other's")
        whole(source, target)

    monkeypatch.setattr(os, "link", overtaken)
    with pytest.raises(LedgerExistsError, match="at the same moment"):
        create_store(path, GENESIS)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"the other's"]


def test_a_left_over_journal_is_not_applied_to_a_new_store(tmp_path):
    (tmp_path / "ledger.db-journal").write_bytes(b"old")
    with pytest.raises(LedgerExistsError, match="journal"):
        create_store(tmp_path / "ledger.db", GENESIS)
    assert not (tmp_path / "ledger.db").exists()


def test_a_store_that_cannot_be_made_leaves_nothing(tmp_path):
    with pytest.raises(LedgerWriteError, match="cannot be made"):
        create_store(tmp_path / "absent" / "ledger.db", GENESIS)
    assert list(tmp_path.iterdir()) == []


def test_an_absent_store_is_not_made_in_passing(tmp_path):
    for use in (LedgerFile, read_ledger):
        with pytest.raises(LedgerMissingError, match="restore it from its backup"):
            use(tmp_path / "ledger.db")
    assert list(tmp_path.iterdir()) == []


def test_writes_are_synchronous_and_journalled(store):
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_an_entry_is_read_back_also_beside_the_writer(path, store):
    entry = entry_after(head_of(path))
    store.append(entry, head_of(path))
    assert store.read() == (GENESIS, (entry,))
    assert read_ledger(path) == (GENESIS, (entry,))


def test_a_stale_head_is_refused(path, store):
    genesis = head_of(path)
    store.append(entry_after(genesis), genesis)
    with pytest.raises(LedgerTamperedError, match="another program changed the ledger"):
        store.append(entry_after(genesis, 2), genesis)


def test_the_same_key_stands_once_whatever_the_caller_thinks(path, store):
    store.append(entry_after(head_of(path)), head_of(path))
    with pytest.raises(LedgerWriteError, match="SQLITE_CONSTRAINT"):
        store.append(entry_after(head_of(path)), head_of(path))
    assert len(read_ledger(path)[1]) == 1


def test_a_file_that_was_replaced_under_the_writer_is_refused(path, store):
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    with pytest.raises(LedgerTamperedError, match="moved or replaced"):
        store.append(entry_after(head_of(path)), head_of(path))


def test_a_file_that_was_removed_under_the_writer_is_refused(path, store):
    head = head_of(path)
    path.unlink()
    with pytest.raises(LedgerTamperedError, match="moved or replaced"):
        store.append(entry_after(head), head)


def test_a_closed_store_refuses(path, store):
    store.close()
    with pytest.raises(LedgerWriteError, match="closed"):
        store.append(entry_after(head_of(path)), head_of(path))


def test_a_full_database_charges_nothing_and_goes_on_once_there_is_room(path, store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")
    written = 0

    def fill() -> None:
        nonlocal written
        for number in range(100):
            head = head_of(path)
            store.append(entry_after(head, number), head)
            written += 1

    with pytest.raises(LedgerWriteError, match=r"SQLITE_FULL.*free space"):
        fill()
    assert written < 99
    assert len(read_ledger(path)[1]) == written
    store._connection.execute("PRAGMA max_page_count=1000000")
    head = head_of(path)
    store.append(entry_after(head, 1000), head)
    assert len(read_ledger(path)[1]) == written + 1


class FailsAtCommit:
    """A connection whose COMMIT raises; everything else is the real one's."""

    def __init__(self, connection, error):
        self._connection, self._error = connection, error

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, sql, *values):
        if sql == "COMMIT":
            raise self._error
        return self._connection.execute(sql, *values)


def test_an_unknown_failure_closes_the_store_until_it_is_opened_anew(path, store):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    whole, store._connection = store._connection, FailsAtCommit(store._connection, error)
    head = head_of(path)
    with pytest.raises(LedgerWriteError, match=r"SQLITE_IOERR_FSYNC.*open the ledger again"):
        store.append(entry_after(head), head)
    store._connection = whole
    assert read_ledger(path)[1] == ()
    with pytest.raises(LedgerWriteError, match="its last write failed"):
        store.append(entry_after(head), head)
    with contextlib.closing(LedgerFile(path)) as again:
        again.append(entry_after(head), head)


def test_an_interrupt_rolls_back_and_closes(path, store):
    whole, store._connection = store._connection, FailsAtCommit(store._connection, KeyboardInterrupt())
    head = head_of(path)
    with pytest.raises(KeyboardInterrupt):
        store.append(entry_after(head), head)
    store._connection = whole
    assert read_ledger(path)[1] == ()
    with pytest.raises(LedgerWriteError):
        store.append(entry_after(head), head)


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM charged WHERE tensor = 'heads'",
        "UPDATE charged SET attempt = 2 WHERE tensor = 'heads'",
        "INSERT INTO charged VALUES ('x', 1, 'heads', 1, 1)",
        "UPDATE chain SET body = replace(body, '20.0', '90.0')",
        "UPDATE chain SET hash = 'x' WHERE sequence = 1",
        "DELETE FROM chain WHERE sequence = 0",
        "DELETE FROM chain",
        "DROP TABLE charged",
    ],
)
def test_edits_of_the_file_are_found(path, edit):
    with contextlib.closing(LedgerFile(path)) as store:
        store.append(entry_after(head_of(path)), head_of(path))
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute(edit)
        raw.commit()
    with pytest.raises(LedgerTamperedError, match="cosigned"):
        read_ledger(path)


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 400])
def test_a_file_that_is_no_ledger_is_refused(tmp_path, content):
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerTamperedError):
        read_ledger(path)


def test_a_cut_file_is_refused(path):
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(LedgerTamperedError):
        read_ledger(path)


CHILD = """
import resource, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from policies.errors import LedgerWriteError
from policies.ledger.store import LedgerFile
from test_store import entry_after, head_of
path, limit = Path(sys.argv[1]), int(sys.argv[2])
store = LedgerFile(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
written = 0
try:
    for number in range(200):
        head = head_of(path)
        store.append(entry_after(head, number), head)
        written += 1
except LedgerWriteError as error:
    print(written, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
head = head_of(path)
store.append(entry_after(head, 1000), head)
"""


@pytest.mark.parametrize("beyond", ["at the journal", "at the database"])
def test_a_file_system_that_takes_no_more_charges_nothing(path, beyond):
    size = path.stat().st_size
    limit = 512 if beyond == "at the journal" else size
    child = subprocess.run(
        [sys.executable, "-c", CHILD, path, str(limit), HERE, ROOT], capture_output=True, text=True, check=True
    )
    written, _, message = child.stdout.partition(" ")
    assert "Nothing was charged and nothing may be computed; free space" in message
    entries = read_ledger(path)[1]
    assert [entry.debit.round for entry in entries] == [*range(int(written)), 1000]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from policies.ledger.store import LedgerFile
from test_store import entry_after, head_of
path = Path(sys.argv[1])
store = LedgerFile(path)
def trace(sql):
    if sql.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
head = head_of(path)
store._connection.set_trace_callback(trace)
store.append(entry_after(head, 7), head)
"""


@pytest.mark.parametrize("moment", ["BEGIN", "INSERT INTO chain", "INSERT INTO charged", "COMMIT"])
def test_a_kill_before_the_commit_leaves_nothing(path, moment):
    child = subprocess.run([sys.executable, "-c", KILLED, path, moment, HERE, ROOT], check=False)
    assert child.returncode == -signal.SIGKILL
    assert read_ledger(path) == (GENESIS, ())


HALFWAY = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from policies.ledger.store import LedgerFile
connection = LedgerFile(Path(sys.argv[1]))._connection
connection.execute("PRAGMA cache_size=2")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE chain SET body = 'spoilt'")
for number in range(2000):
    connection.execute("INSERT INTO charged VALUES (?, 1, 'heads', 1, 0)", (f"{number:0100}",))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_half_written_change_is_undone_by_the_next_writer_and_not_read_before(path):
    before = path.read_bytes()
    child = subprocess.run([sys.executable, "-c", HALFWAY, path, HERE, ROOT], check=False)
    assert child.returncode == -signal.SIGKILL
    assert path.with_name("ledger.db-journal").exists()
    assert path.read_bytes() != before
    with pytest.raises(LedgerBusyError, match="let the agent open it first"):
        read_ledger(path)
    with contextlib.closing(LedgerFile(path)) as store:
        assert store.read() == (GENESIS, ())
    assert read_ledger(path) == (GENESIS, ())
    assert path.read_bytes()[100:] == before[100:]
