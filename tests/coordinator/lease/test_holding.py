"""One coordinator at a time has a database, whatever clocks say and however long another was frozen."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import select, text

from coordinator.lease.holding import Lease, keep
from coordinator.storage import tables
from coordinator.storage.database import Database, LeaseLostError, StoreError

SECONDS = 15.0
SPOOL = "5" * 32


class Machine:
    """One coordinator's way to the lease, with a clock of its own."""

    def __init__(self, url, name, spool=SPOOL):
        self.now = 1000.0
        self.database = Database(url)
        self.lease = Lease(self.database, name * 32, f"machine {name}", spool, seconds=SECONDS, clock=lambda: self.now)

    def writes(self):
        try:
            with self.database.writing() as connection:
                connection.execute(text("UPDATE notes SET word = word"))
        except LeaseLostError:
            return False
        return True


@pytest.fixture
def machines(url):
    made = []

    def machine(name, **changes):
        made.append(Machine(url, name, **changes))
        return made[-1]

    first = Database(url)
    with first.engine.begin() as connection:
        connection.execute(text("CREATE TABLE notes (word VARCHAR(9))"))
    first.engine.dispose()
    yield machine
    for one in made:
        one.database.engine.dispose()


def test_a_second_one_stands_by_until_nobody_has_renewed_the_lease_for_its_time(machines):
    first, second = machines("1"), machines("2")
    assert not first.writes(), "nobody writes without a lease"
    assert first.lease.attempt()
    assert (first.writes(), second.lease.attempt(), second.writes()) == (True, False, False)
    for _ in range(3):  # its own clock runs, and the lease is renewed
        second.now += SECONDS - 0.1
        assert not second.lease.attempt()
        first.lease.renew()
    assert not second.lease.attempt(), "it has just seen a renewal"
    second.now += SECONDS - 0.1
    assert not second.lease.attempt()
    second.now += 0.1
    assert second.lease.attempt()
    assert (first.writes(), second.writes()) == (False, True)
    assert second.lease.epoch > first.lease.epoch
    assert (first.database.lost.is_set(), second.database.lost.is_set()) == (True, False)
    with pytest.raises(LeaseLostError):
        first.lease.renew()
    with pytest.raises(LeaseLostError):
        first.database.require()


def test_a_clock_that_is_wrong_takes_nothing(machines, monkeypatch):
    first, second = machines("1"), machines("2")
    assert first.lease.attempt()
    monkeypatch.setattr(time, "time", lambda: 4e9)
    assert not second.lease.attempt()
    monkeypatch.setattr(time, "time", lambda: 1.0)
    second.now += SECONDS
    assert second.lease.attempt()
    assert second.lease.epoch == first.lease.epoch + 1, "an epoch grows, also where a clock went back"


def test_an_epoch_is_the_time_so_that_a_database_from_a_backup_has_a_higher_one(machines):
    first = machines("1")
    before = int(time.time())
    assert first.lease.attempt()
    assert before <= first.lease.epoch <= time.time()


def test_of_two_that_find_the_lease_overdue_one_takes_it(machines, monkeypatch):
    first, second, third = machines("1"), machines("2"), machines("3")
    assert first.lease.attempt()
    row = first.lease.row()
    assert not second.lease.attempt()
    assert not third.lease.attempt()
    second.now = third.now = 1000.0 + SECONDS
    monkeypatch.setattr(third.lease, "row", lambda: row)  # it has looked before the other one took it
    assert second.lease.attempt()
    assert not third.lease.attempt()
    assert (second.writes(), third.writes()) == (True, False)


def test_of_two_that_begin_at_once_one_begins(machines, monkeypatch):
    first, second = machines("1"), machines("2")
    monkeypatch.setattr(second.lease, "row", lambda: None)
    assert first.lease.attempt()
    assert not second.lease.attempt()
    assert (first.writes(), second.writes()) == (True, False)


def test_a_renewal_between_the_look_and_the_taking_keeps_the_lease(machines, monkeypatch):
    first, second = machines("1"), machines("2")
    assert first.lease.attempt()
    row = first.lease.row()
    assert not second.lease.attempt()
    second.now += SECONDS
    first.lease.renew()
    monkeypatch.setattr(second.lease, "row", lambda: row)
    assert not second.lease.attempt()
    assert first.writes()


def test_what_was_given_back_or_is_of_the_same_folder_is_taken_at_once(machines):
    first, second, again = machines("1"), machines("2"), machines("1")
    assert first.lease.attempt()
    assert again.lease.attempt(), "the lock of its folder of data says that the former process is dead"
    assert not first.writes()
    again.lease.give_back()
    assert not again.writes()
    assert second.lease.attempt()
    assert second.lease.row().at == "machine 2"


def test_another_spool_is_refused_by_name(machines):
    first, other = machines("1"), machines("2", spool="6" * 32)
    assert first.lease.attempt()
    with pytest.raises(StoreError, match=f"belongs to the spool whose file spool.id has {SPOOL}"):
        other.lease.attempt()
    other.now += SECONDS
    with pytest.raises(StoreError, match="give the same `spool` to all coordinators"):
        other.lease.attempt()
    assert first.writes()


def test_nobody_takes_over_within_a_transaction_that_writes(machines):
    """What is written after the check of the epoch is written under that epoch: the takeover waits for its end."""
    first, second = machines("1"), machines("2")
    assert first.lease.attempt()
    assert not second.lease.attempt()
    second.now += SECONDS
    taken = threading.Thread(target=second.lease.attempt)
    with first.database.writing() as connection:
        taken.start()
        taken.join(1.0)
        waited = taken.is_alive()
        connection.execute(text("INSERT INTO notes VALUES ('first')"))
    taken.join(60)
    assert waited
    assert (first.writes(), second.writes()) == (False, True)
    with second.database.reading() as connection:
        assert connection.execute(text("SELECT word FROM notes")).scalars().all() == ["first"]


def test_a_renewal_waits_for_no_transaction_of_the_same_process(machines, url):
    """On PostgreSQL. SQLite lets one transaction write at a time anyway."""
    if url.startswith("sqlite"):
        pytest.skip("SQLite has one writer")
    first = machines("1")
    assert first.lease.attempt()
    with first.database.writing():
        renewed = threading.Thread(target=first.lease.renew)
        renewed.start()
        renewed.join(30)
        assert not renewed.is_alive()


def test_a_transaction_that_began_before_the_takeover_ends_with_nothing(machines):
    first, second = machines("1"), machines("2")
    assert first.lease.attempt()
    assert not second.lease.attempt()
    second.now += SECONDS
    assert second.lease.attempt()
    with pytest.raises(LeaseLostError), first.database.writing() as connection:
        connection.execute(text("INSERT INTO notes VALUES ('late')"))
    with second.database.reading() as connection:
        assert connection.execute(select(tables.lease.c.holder)).scalar_one() == "2" * 32
        assert connection.execute(text("SELECT count(*) FROM notes")).scalar_one() == 0


def test_it_is_renewed_until_it_is_lost(machines, monkeypatch):
    first, second = machines("1"), machines("2")
    assert first.lease.attempt()
    monkeypatch.setattr(Lease, "pace", 0.01)
    stop = threading.Event()
    keeping = threading.Thread(target=keep, args=(first.lease, stop))
    keeping.start()
    while first.lease.row().beat < 3:
        time.sleep(0.01)
    assert second.lease.attempt() is False
    second.now += SECONDS
    while not second.lease._take(second.lease.row()):  # between two renewals
        pass
    keeping.join(60)
    assert not keeping.is_alive()
    assert first.database.lost.is_set()
