"""What the coordinator must not forget: durable, unique by constraint, the same after a restart."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from dacite import UnexpectedDataError
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from coordinator.core.state import Phase
from coordinator.core.study import Progress, Script, advance, create, start
from coordinator.storage import store as stores
from coordinator.storage.database import Database, StoreDamagedError, StoreError
from coordinator.storage.store import (
    ContentConflictError,
    Store,
    StudyExistsError,
)
from coordinator.storage.tables import METADATA
from coordinator.storage.upgrading import upgraded
from protos import record
from protos.messages import RINGS, Place, SignedPublication, Tensor, UploadHeader, note_slot
from protos.status import PhaseTime, UploadSize
from protos.steps import Note
from support.databases import again, store_in
from support.people import audit_entry
from support.rounds import LIMITS, SHA, STUDY, wanted

PLACE = Place(STUDY, 1, 2)
HEADER = UploadHeader(PLACE, "ckks", Tensor.HEADS, "north", 9, 8 << 30, SHA)
NOTE = UploadHeader(PLACE, "keys", None, "north", 0, 100, SHA)


def test_every_column_is_always_filled_and_wide_enough_for_its_longest_word():
    """SQLite takes longer words than a column says. PostgreSQL refuses them, and with them what a silo has sent."""
    words = {
        "silo": 63,
        "signer": 63,
        "study": 64,
        "sha256": 64,
        "tensor": max(map(len, Tensor)),
        "phase": max(map(len, Phase)),
        "kind": max(map(len, (*RINGS, *Note))),
        "slot": max(len(HEADER.slot), *(len(note_slot(note, tensor)) for note in Note for tensor in (None, *Tensor))),
        "at": len(datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC).isoformat()),
    }
    columns = [one for table in METADATA.tables.values() for one in table.c]
    assert {one.name for one in columns} >= words.keys()
    for column in columns:
        assert not column.nullable, column
        assert column.name not in words or column.type.length >= words[column.name], column


def progress(study=STUDY, name="tiny"):
    return create(Script(study, name, ("north", "south"), 2, 1, True, ((Tensor.COUNTS,),), LIMITS, 1))


@pytest.fixture
def store(database):
    return Store(database)


def test_studies_are_loaded_in_the_order_of_creation(store):
    studies = [progress(digit * 64, f"study-{digit}") for digit in "974"]
    for one in studies:
        store.create(b"{}", one, audit_entry())
    store.save(start(studies[0], 1.0)[0], [])
    loaded = again(store).load()
    assert loaded == [start(studies[0], 1.0)[0], *studies[1:]]


def test_studies_of_version_0_1_come_first_by_name(store):
    studies = [progress(digit * 64, f"study-{digit}") for digit in "974"]
    for one in studies:
        store.create(b"{}", one, audit_entry())
    with store.engine.begin() as connection:
        connection.execute(text("DROP TABLE created"))
        connection.execute(text("DROP TABLE alembic_version"))
    newer = again(store)
    newer.create(b"{}", progress("1" * 64, "a-new-one"), audit_entry())
    assert [one.script.name for one in again(store).load()] == ["study-4", "study-7", "study-9", "a-new-one"]


def test_a_publication_is_saved_with_the_state_that_counts_it(store):
    store.create(b"{}", progress(), audit_entry())
    running, _ = start(progress(), 1.0)
    for silo in ("south", "north"):
        store.save(running, [], (PLACE, signed(silo)))
    store.save(running, [], (Place(STUDY, 1, 1), signed("north")))
    assert again(store).publications(PLACE) == (signed("north"), signed("south"))
    assert store.publications(Place(STUDY, 2, 1)) == ()
    with pytest.raises(IntegrityError):
        store.save(progress(), [], (PLACE, signed("north")))
    assert store.load() == [running], "half a change is none"


def signed(silo):
    return SignedPublication(silo, b"{}", b"\x00signature", b"certificate")


def test_a_study_s_text(store):
    store.create(b'{"a":1}', progress(), audit_entry())
    assert (again(store).canonical(STUDY), store.canonical("6" * 64)) == (b'{"a":1}', None)


@pytest.mark.parametrize("other", [{}, {"study": "6" * 64}, {"name": "other"}])
def test_a_name_and_a_digest_stand_for_one_study(store, other):
    store.create(b"{}", progress(), audit_entry())
    with pytest.raises(StudyExistsError, match="exists already; give the new one another name"):
        store.create(b"{}", progress(**other), audit_entry())
    assert len(store.load()) == 1


def test_state_and_times_are_saved_together(store, monkeypatch):
    store.create(b"{}", progress(), audit_entry())
    running, _ = start(progress(), 1.0)
    times = [PhaseTime(0, 1, "offer", None, 1.5), PhaseTime(0, 1, "gather", Tensor.COUNTS, 0.25)]
    store.save(running, times)
    assert (again(store).load(), again(store).times(STUDY)) == ([running], tuple(times))
    with pytest.raises(AttributeError):
        store.save(progress(), [None])
    assert store.load() == [running], "half a change is none"


def rows(store):
    """(changes, whole states) that are stored, as texts."""
    with store.engine.begin() as connection:
        changed = connection.execute(text("SELECT change FROM changes ORDER BY number")).scalars().all()
        return changed, connection.execute(text("SELECT progress FROM studies")).scalars().all()


def lived():
    """Every state of a study of many silos until its first round is over."""
    silos = tuple(f"silo-{number:02}" for number in range(24))
    state = create(Script(STUDY, "tiny", silos, 20, 1, True, ((Tensor.COUNTS,), (Tensor.HEADS,)), LIMITS, 1))
    state, _ = start(state, 1.0)
    yield state
    while state.round.place.round == 0:
        for event in wanted(state.round):
            state, _ = advance(state, event, 2.0)
            yield state


def test_every_state_is_found_again_and_each_write_is_small(store):
    states = list(lived())
    store.create(b"{}", replace(states[0], round=None), audit_entry())
    written = whole = 0
    for number, state in enumerate(states):
        before = rows(store)
        store.save(state, [])
        after = rows(store)
        written += len(after[1][0]) if after[1] != before[1] else len(after[0][-1])
        whole += len(record.dump(state))
        if number % 20 == 0 or len(after[0]) < 2:
            assert again(store).load() == [state]
    assert again(store).load() == [states[-1]]
    assert len(states) > 200
    assert written < 0.1 * whole


def test_changes_are_never_longer_than_the_whole_state(store):
    store.create(b"{}", progress(), audit_entry())
    running, _ = start(progress(), 1.0)
    seen = set()
    for number in range(200):
        store.save(replace(running, why=f"{number}" * 20), [])
        changed, (whole,) = rows(store)
        assert sum(map(len, changed)) <= len(whole)
        seen.add(len(changed))
    assert {0, 1, 2} <= seen, "now and then the whole state takes their place"


def test_after_a_write_that_failed_the_state_is_stored_whole(store):
    """A database that is away may have stored it all the same."""
    store.create(b"{}", progress(), audit_entry())
    running, _ = start(progress(), 1.0)
    store.save(running, [])
    store.save(replace(running, why="one"), [])
    assert len(rows(store)[0]) == 1
    with pytest.raises(AttributeError):
        store.save(replace(running, why="two"), [None])
    store.save(replace(running, why="three"), [])
    assert rows(store)[0] == []
    assert again(store).load() == [replace(running, why="three")]


def test_the_first_state_of_a_process_is_stored_whole(store):
    """So a change is read by the version that wrote it, or by one that reads its whole state."""
    store.create(b"{}", progress(), audit_entry())
    running, _ = start(progress(), 1.0)
    for why in ("one", "two"):
        store.save(replace(running, why=why), [])
    assert len(rows(store)[0]) == 1
    next_one = again(store)
    next_one.load()
    next_one.save(replace(running, why="three"), [])
    assert rows(store)[0] == []
    assert again(store).load() == [replace(running, why="three")]


def test_two_studies_keep_their_changes_apart(store):
    other = progress("6" * 64, "other")
    for one in (progress(), other):
        store.create(b"{}", one, audit_entry())
        store.save(one, [])
    for why in ("one", "two", "three"):
        store.save(replace(progress(), why=why), [])
        store.save(replace(other, why=why * 2), [])
    assert again(store).load() == [replace(progress(), why="three"), replace(other, why="threethree")]


def test_a_state_that_has_changes_is_no_state_for_a_version_without_them(store):
    store.create(b"{}", progress(), audit_entry())
    (whole,) = rows(store)[1]
    with pytest.raises(UnexpectedDataError, match="changed_since"):
        record.load(Progress, json.dumps(upgraded(json.loads(whole))))


def test_a_state_of_version_0_6_is_read(store):
    store.create(b"{}", progress(), audit_entry())
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE studies SET progress = :it"), {"it": record.dump(progress())})
        connection.execute(text("DROP TABLE changes"))
        connection.execute(text("DROP TABLE alembic_version"))
    assert again(store).load() == [progress()]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("""UPDATE changes SET change = '{"fields": {"other": {"value": 1}}}'""", "does not fit"),
        ("DELETE FROM changes WHERE number = 1", "is missing"),
        ("UPDATE changes SET change = 'x'", "Expecting value"),
    ],
)
def test_a_change_that_is_missing_or_does_not_fit_is_damage(store, damage, says):
    store.create(b"{}", progress(), audit_entry())
    for why in ("one", "two", "three"):
        store.save(replace(progress(), why=why), [])
    with store.engine.begin() as connection:
        connection.execute(text(damage))
    with pytest.raises(StoreDamagedError, match=rf"{says}.*put the database back from a backup"):
        store.load()


def test_a_slot_is_filled_once(store):
    assert not store.holds(HEADER)
    store.add_content(HEADER, b"signature")
    store.add_content(HEADER, b"another signature over the same")
    assert again(store).holds(HEADER)
    other = replace(HEADER, sha256="b" * 64)
    with pytest.raises(ContentConflictError, match="north has already sent other bytes for heads of round 1"):
        store.add_content(other, b"signature")
    with pytest.raises(ContentConflictError, match="send the stored bytes again"):
        store.holds(other)
    assert store.uploads(STUDY) == (UploadSize(1, 2, Tensor.HEADS, "ckks", "north", 8 << 30),)


def test_what_lasted_and_what_was_sent_is_told_of_one_study(store):
    for study in ("4" * 64, STUDY, "6" * 64):
        store.create(b"{}", progress(study, f"study-{study[0]}"), audit_entry())
        times = [PhaseTime(0, 1, "offer", None, int(study[0]))]
        store.save(start(progress(study, f"study-{study[0]}"), 1.0)[0], times)
        store.add_content(replace(HEADER, place=Place(study, 1, 2), size=int(study[0])), b"signature")
    for study in ("4" * 64, STUDY, "6" * 64):
        assert [one.seconds for one in store.times(study)] == [int(study[0])]
        assert [one.bytes for one in store.uploads(study)] == [int(study[0])]


@pytest.mark.parametrize(
    "other",
    [
        replace(HEADER, silo="south"),
        replace(HEADER, tensor=Tensor.METRICS),
        replace(HEADER, place=Place(STUDY, 1, 1)),
        replace(HEADER, place=Place(STUDY, 2, 2)),
        replace(HEADER, place=Place("6" * 64, 1, 2)),
        NOTE,
    ],
)
def test_other_slots_are_other_slots(store, other):
    store.add_content(HEADER, b"signature")
    assert not store.holds(other)
    store.add_content(replace(other, sha256="b" * 64), b"signature")


def test_what_fills_a_slot_is_known_by_silo(store):
    for header in (HEADER, replace(HEADER, silo="south", sha256="b" * 64), NOTE):
        store.add_content(header, b"signature")
    for other in (replace(HEADER, place=Place(STUDY, 1, 1)), replace(HEADER, tensor=Tensor.METRICS)):
        store.add_content(replace(other, silo="west"), b"signature")
    assert again(store).digests(PLACE, "heads") == {"north": SHA, "south": "b" * 64}
    assert store.digests(Place(STUDY, 9, 1), "heads") == {}


def test_notes_are_uploads_without_a_tensor(store):
    store.add_content(NOTE, b"signature")
    store.add_content(UploadHeader(PLACE, "reveal", Tensor.HEADS, "north", 0, 101, SHA), b"signature")
    assert store.uploads(STUDY) == (
        UploadSize(1, 2, None, "keys", "north", 100),
        UploadSize(1, 2, None, "reveal", "north", 101),
    )


def test_sizes_that_are_remembered_are_those_that_are_stored(store, monkeypatch):
    """Of two studies, in order, the latest alone, whatever was refused or not stored in between."""
    monkeypatch.setattr(stores, "MAX_HISTORY", 5)
    other = "6" * 64

    def agree():
        fresh = again(store)
        assert [store.uploads(study) for study in (STUDY, other)] == [fresh.uploads(study) for study in (STUDY, other)]

    for number in range(9):
        store.add_content(replace(HEADER, silo=f"silo-{number}", size=number + 1), b"signature")
        store.add_content(replace(NOTE, place=Place(other, 1, 2), silo=f"silo-{number}"), b"signature")
        agree()
    assert [one.silo for one in store.uploads(STUDY)] == [f"silo-{number}" for number in range(4, 9)]
    store.add_content(replace(HEADER, silo="silo-8", size=9), b"again")
    with pytest.raises(ContentConflictError):
        store.add_content(replace(HEADER, silo="silo-8", sha256="b" * 64), b"signature")
    agree()
    with monkeypatch.context() as patch:
        patch.setattr(stores, "insert", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.add_content(replace(HEADER, silo="silo-9"), b"signature")
    agree()
    with monkeypatch.context() as patch:
        patch.setattr(stores, "_latest", lambda *_: 1 / 0)
        store.add_content(replace(HEADER, silo="silo-9"), b"signature")
        assert store.uploads(STUDY)[-1].silo == "silo-9", "without another reading"
    agree()


def test_who_was_told(store):
    store.tell(STUDY, "north")
    store.tell(STUDY, "north")
    store.tell(STUDY, "south")
    assert again(store).told() == {(STUDY, "north"), (STUDY, "south")}


def test_sqlite_writes_are_durable(tmp_path):
    store = store_in(tmp_path)
    with store.engine.connect() as connection:
        pragmas = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "page_size")
        }
    assert pragmas == {"journal_mode": "delete", "synchronous": 3, "page_size": 1024}


def test_a_database_that_has_larger_pages_keeps_them(tmp_path):
    path = tmp_path / "coordinator.sqlite3"
    with closing(sqlite3.connect(path)) as before:
        before.executescript("PRAGMA page_size=4096; CREATE TABLE created (id INTEGER PRIMARY KEY, study VARCHAR(64))")
    store = store_in(tmp_path)
    store.add_content(HEADER, b"signature")
    assert again(store).holds(HEADER)
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA page_size")).scalar() == 4096
    store.engine.dispose()


@pytest.mark.parametrize("url", ["nonsense", "nonsense://user:hunter2@host/db", "sqlite:////no/such/folder/db.sqlite3"])
def test_a_database_that_cannot_be_used_is_one_sentence(url):
    with pytest.raises(StoreError, match=r"the database cannot be used: .*; fix `database` or `data`") as caught:
        Database(url)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
