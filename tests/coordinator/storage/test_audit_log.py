"""The audit log in the database: in order, in the transaction of what it tells of, and followed by silos."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta

import pytest

from coordinator.core.revisions import StudyExistsError
from coordinator.core.study import create
from coordinator.engine import script_of
from coordinator.storage import audit_log
from coordinator.storage.audit_log import MOST_REFUSALS, AuditLogError, append, stamp
from coordinator.storage.store import Store
from crypto.audit_chain import UNKNOWN, Followed, entry_digest, follow
from protos.audit import CosignedAudit
from support.databases import again as opened_again
from support.databases import store_in
from support.people import audit_entry
from support.studies import tiny_study

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def store(database):
    return Store(database)


def add(store, *entries):
    with store.engine.begin() as connection:
        return [append(connection, entry) for entry in entries]


def signed(followed, silo="north", broke=UNKNOWN):
    return CosignedAudit(silo, followed.entries, followed.head, broke.entries, broke.head, b"pem", b"signature")


def test_a_log_begins_by_saying_so_once_and_no_two_logs_begin_alike(store, tmp_path):
    (first,) = store.audit.entries(0, 10)
    assert (first.number, first.who, first.action, first.outcome) == (0, "", "begin", "done")
    assert len(first.reason) == 32
    again = opened_again(store)
    assert again.audit.entries(0, 10) == [first]
    other = store_in(tmp_path / "other")
    assert other.audit.followed().head != store.audit.followed().head
    for one in (again, other):
        one.engine.dispose()


def test_entries_have_the_next_number_and_their_head_follows_from_all_before(store):
    made = add(store, audit_entry("start"), audit_entry("pause", reason="lunch"))
    assert [entry.number for entry in made] == [1, 2]
    entries = store.audit.entries(0, 10)
    assert entries[1:] == made
    assert [store.audit.entries(1, 1), store.audit.entries(3, 9)] == [made[:1], []]
    digests = [entry_digest(entry.content().encode()) for entry in entries]
    assert store.audit.followed() == Followed(3, follow(UNKNOWN.head, digests))
    assert store.audit.trail(UNKNOWN).digests == b"".join(digests)
    one = Followed(1, follow(UNKNOWN.head, digests[:1]))
    assert store.audit.trail(one) == type(store.audit.trail(one))(3, b"".join(digests[1:]))
    assert store.audit.trail(store.audit.followed()).digests == b""


@pytest.mark.parametrize(
    "head", [Followed(1, bytes(32)), Followed(3, UNKNOWN.head), Followed(7, b"1" * 32), Followed(0, b"1" * 32)]
)
def test_who_has_another_head_gets_no_trail_and_signs_nothing(store, head):
    add(store, audit_entry("start"), audit_entry("pause"))
    with pytest.raises(AuditLogError, match=r"^the audit log has no head"):
        store.audit.trail(head)
    with pytest.raises(AuditLogError, match=r"^the audit log has no such head"):
        store.audit.keep(signed(head))
    with pytest.raises(AuditLogError, match="after 0 entries"):
        store.audit.keep(signed(UNKNOWN))
    assert store.audit.cosigned() == []


def test_a_trail_is_as_long_as_a_message_takes(store, monkeypatch):
    monkeypatch.setattr(audit_log, "MOST_DIGESTS", 2)
    add(store, audit_entry("start"), audit_entry("pause"), audit_entry("resume"))
    trail = store.audit.trail(UNKNOWN)
    assert (trail.entries, len(trail.digests)) == (4, 64)


def test_what_a_silo_signed_last_is_kept(store):
    first = store.audit.followed()
    store.audit.keep(signed(first))
    store.audit.keep(signed(first, "south"))
    add(store, audit_entry("start"))
    last = store.audit.followed()
    store.audit.keep(signed(last, broke=Followed(9, b"9" * 32)))
    assert store.audit.cosigned() == [signed(last, broke=Followed(9, b"9" * 32)), signed(first, "south")]


def test_refusals_of_one_certificate_are_noted_so_often_a_day_and_no_oftener(store):
    refused = audit_entry("create", outcome="refused", why="quota", who="fedward://author/mallory")
    others = audit_entry("create", outcome="refused", who="fedward://author/ada")
    noted = [store.audit.note_refusal(refused, NOW) for _ in range(MOST_REFUSALS + 2)]
    assert noted == [True] * MOST_REFUSALS + [False] * 2
    assert store.audit.note_refusal(others, NOW)
    assert store.audit.note_refusal(refused, NOW + timedelta(days=1))
    assert store.audit.followed().entries == MOST_REFUSALS + 3


def test_creations_of_a_day_are_counted_by_who_created(store):
    ada = "fedward://author/ada"
    add(
        store,
        audit_entry("create", ada),
        audit_entry("create", ada),
        audit_entry("start", ada),
        audit_entry("create", ada, outcome="refused"),
        audit_entry("create", "fedward://author/adalbert"),
    )
    assert store.audit.created(ada, NOW) == 2
    assert store.audit.created(ada, NOW + timedelta(hours=23, minutes=59)) == 2
    assert store.audit.created(ada, NOW + timedelta(days=1)) == 0
    assert store.audit.created("fedward://operator/ops", NOW) == 0


def test_times_of_entries_sort_as_times_do():
    east = NOW.astimezone()
    assert stamp(east) == stamp(NOW) == "2026-01-02T03:04:05.000006+00:00"
    assert stamp(NOW.replace(microsecond=0)) == "2026-01-02T03:04:05.000000+00:00"


def test_an_action_that_is_not_stored_has_no_entry(store, monkeypatch):
    study = tiny_study()
    state = create(script_of(study))
    store.create(study.canonical(), state, audit_entry(study=study.digest))
    before = store.audit.followed()
    with pytest.raises(StudyExistsError):
        store.create(study.canonical(), state, audit_entry(study=study.digest))
    with pytest.raises(AttributeError):
        store.save(state, [None], entry=audit_entry("start"))
    assert store.audit.followed() == before
    assert store.owners() == {study.digest: "fedward://operator/ops"}


def test_an_entry_that_cannot_be_stored_undoes_the_action(store, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "disk")

    study = tiny_study()
    monkeypatch.setattr(audit_log, "append", fail)
    with pytest.raises(OSError, match="disk"):
        store.create(study.canonical(), create(script_of(study)), audit_entry())
    assert (store.load(), store.owners()) == ([], {})


def test_a_number_that_no_database_holds_is_a_head_that_the_log_has_not(store):
    """The wire holds 64 bits."""
    far = Followed((1 << 64) - 1, bytes(32))
    with pytest.raises(AuditLogError):
        store.audit.trail(far)
    assert store.audit.entries(far.entries, 10) == []
