"""Connections that break a limit are closed; those of others stay."""

from __future__ import annotations

import socket

import pytest
from structlog.testing import capture_logs

from coordinator.door import connections
from coordinator.door.connections import (
    FLOOD,
    MOST_LONGER,
    PROOF_SECONDS,
    PROVEN,
    UNPROVEN,
    Connections,
    _peer,
    _source,
)
from coordinator.door.guard import LOOK_SECONDS
from coordinator.metrics import CoordinatorMetrics


class House:
    """A port of this process with connections from some addresses, and a clock that a test moves."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port, self.now, self.metrics = self.listener.getsockname()[1], 0.0, CoordinatorMetrics()
        self.door = Connections(self.port, self.metrics, clock=lambda: self.now)
        self.made = []

    def connect(self, source="127.0.0.1", caller=None):
        """One more connection; returns its other end."""
        mine = socket.create_connection(("127.0.0.1", self.port), source_address=(source, 0))
        accepted, _ = self.listener.accept()
        self.made += [mine, accepted]
        mine.settimeout(0.0)
        if caller:
            self.call(mine, caller)
        return mine

    def call(self, mine, caller):
        self.door.prove(self.name(mine), caller)

    @staticmethod
    def name(mine):
        host, port = mine.getsockname()
        return f"ipv4:{host}:{port}"

    def closed(self, reason):
        return self.metrics.registry.get_sample_value(
            "fedward_coordinator_closed_connections_total", {"reason": reason}
        )

    def close(self):
        for one in (self.listener, *self.made):
            one.close()


@pytest.fixture
def house():
    made = House()
    yield made
    made.close()


def is_open(mine):
    try:
        return mine.recv(1) != b""
    except BlockingIOError:
        return True


def test_an_address_has_few_connections_without_a_certificate(house):
    crowd = [house.connect("127.0.0.2") for _ in range(UNPROVEN + 8)]
    honest = house.connect("127.0.0.3")
    house.door.look()
    assert [is_open(one) for one in crowd] == [True] * UNPROVEN + [False] * 8
    assert is_open(honest)
    assert house.closed("address") == 8


def test_a_connection_that_brings_no_call_is_closed(house):
    silent, known = house.connect(), house.connect(caller="silo/north")
    house.door.look()
    house.now = PROOF_SECONDS + 1
    house.door.look()
    assert (is_open(silent), is_open(known)) == (False, True)
    assert house.closed("no_call") == 1


def test_a_connection_whose_call_waits_for_a_thread_is_given_as_much_longer(house):
    """Where all threads are busy, an honest member cannot prove anything."""
    mine = house.connect()
    house.door.look()
    house.now = PROOF_SECONDS + 3
    house.door.look(3.0)
    assert is_open(mine)
    house.door.look(2.9)
    assert not is_open(mine)


def test_threads_that_never_come_free_leave_no_connection_without_a_limit(house):
    mine = house.connect()
    house.door.look()
    house.now = PROOF_SECONDS + MOST_LONGER
    house.door.look(9e9)
    assert is_open(mine)
    house.now += 1
    house.door.look(9e9)
    assert not is_open(mine)


def test_a_call_that_came_before_the_connection_was_seen_counts(house):
    mine = house.connect(caller="silo/north")
    house.now = PROOF_SECONDS + 1
    house.door.look()
    assert is_open(mine)


def test_a_certificate_keeps_its_newest_connections(house):
    mine = []
    for _ in range(PROVEN + 2):
        house.now += 1
        mine.append(house.connect(caller="silo/north"))
        house.door.look()
    other = house.connect(caller="silo/south")
    house.door.look()
    assert [is_open(one) for one in mine] == [False] * 2 + [True] * PROVEN
    assert is_open(other)
    assert house.closed("certificate") == 2


def test_a_flood_of_refused_calls_ends_its_connection(house):
    noisy, quiet = house.connect(caller="silo/north"), house.connect(caller="silo/south")
    house.door.look()
    for _ in range(FLOOD + 1):
        house.door.refuse(house.name(noisy))
    house.door.refuse(house.name(quiet))
    house.door.look()
    assert (is_open(noisy), is_open(quiet)) == (False, True)
    assert house.closed("flood") == 1


def test_refusals_of_one_look_do_not_add_up_with_those_of_the_next(house):
    """Else every connection that lives long enough would be a flood."""
    mine = house.connect(caller="silo/north")
    house.door.look()
    for _ in range(5):
        for _ in range(FLOOD):
            house.door.refuse(house.name(mine))
        house.door.look()
    assert is_open(mine)
    assert house.closed("flood") is None


def test_other_sockets_of_the_process_are_left_alone(house):
    elsewhere = socket.create_server(("127.0.0.1", 0))
    mine = socket.create_connection(elsewhere.getsockname())
    mine.settimeout(0.0)
    accepted, _ = elsewhere.accept()
    house.connect()
    house.door.look()
    house.now = PROOF_SECONDS + 1
    house.door.look()
    assert is_open(mine)
    for one in (elsewhere, mine, accepted):
        one.close()


def test_a_number_that_stands_for_another_file_is_not_closed(house):
    """A connection ends by itself between two looks, and its number is given to another file."""
    mine = house.connect()
    house.door.look()
    (inode,) = house.door._open
    house.door._files[inode] = house.listener.fileno()
    house.door._close([inode], "address")
    assert is_open(mine)
    assert house.closed("address") is None


def test_what_is_gone_is_forgotten(house):
    house.connect(caller="silo/north")
    house.door.look()
    for one in house.made:
        one.close()
    house.made.clear()
    house.now = 60.0
    house.door.look()
    assert (house.door._open, house.door._proven) == ({}, {})


def test_without_proc_nothing_is_closed(house, monkeypatch, tmp_path):
    monkeypatch.setattr(connections, "_FILES", tmp_path / "absent")
    mine = house.connect()
    house.door.look()
    assert is_open(mine)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("ipv4:192.0.2.1:50051", ("192.0.2.1", 50051)),
        ("ipv6:%5B2001:db8::1%5D:7", ("2001:db8::1", 7)),
        ("ipv6:[::ffff:192.0.2.1]:7", ("192.0.2.1", 7)),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", ("fe80::1", 7)),
        ("unix:/tmp/socket", None),
        ("unix:", None),
    ],
)
def test_the_names_that_grpc_gives(name, peer):
    assert _peer(name) == peer


def test_one_party_has_a_whole_network_of_ipv6():
    assert _source("2001:db8:1:2:3:4:5:6") == _source("2001:db8:1:2:ffff::") == "2001:db8:1:2::"
    assert _source("192.0.2.1") == "192.0.2.1"


def test_a_connection_has_all_of_its_seconds_and_is_counted_once(house):
    silent = house.connect("127.0.0.2")
    house.door.look()
    house.now = PROOF_SECONDS
    house.door.look()
    assert is_open(silent)
    house.now += 0.1
    with capture_logs() as told:
        for _ in range(3):
            house.door.look()
    assert not is_open(silent)
    assert house.closed("no_call") == 1
    (line,) = told
    assert (line["event"], line["reason"], line["number"]) == ("connections closed", "no_call", 1)
    assert (line["address"], line["caller"]) == ("127.0.0.2", None)


def test_a_certificate_is_named_when_its_connections_are_closed(house):
    for _ in range(PROVEN + 1):
        house.connect(caller="silo/north")
    with capture_logs() as told:
        house.door.look()
    assert [(line["caller"], line["number"], line["reason"]) for line in told] == [("silo/north", 1, "certificate")]


def test_an_address_keeps_its_oldest_connections(house):
    old = [house.connect("127.0.0.2") for _ in range(UNPROVEN)]
    house.door.look()
    house.now = 1.0
    new = house.connect("127.0.0.2")
    house.door.look()
    assert [is_open(one) for one in (*old, new)] == [True] * UNPROVEN + [False]


def test_a_proof_waits_some_seconds_for_its_connection_to_be_seen(house):
    house.door.prove("ipv4:192.0.2.1:5", "silo/north")
    for at, known in ((4.9, 1), (5.0, 0)):
        house.now = at
        house.door.look()
        assert len(house.door._proven) == known


def test_a_connection_over_ipv6_is_found_by_the_name_that_grpc_gives_it():
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = listener.getsockname()[1]
    with listener, socket.create_connection(("127.0.0.1", port)) as mine, listener.accept()[0]:
        door = Connections(port, CoordinatorMetrics(), clock=lambda: 0.0)
        door.look()
        (one,) = door._open.values()
        assert (one.peer, one.source) == (("127.0.0.1", mine.getsockname()[1]), "127.0.0.1")


def test_lines_are_spared_by_whose_connections_they_are(house, monkeypatch):
    asked = []
    monkeypatch.setattr(house.door._log_limit, "allows", asked.append)
    mine = house.connect("127.0.0.3", caller="silo/north")
    house.connect("127.0.0.2")
    house.door.look()
    for _ in range(FLOOD + 1):
        house.door.refuse(house.name(mine))
    house.now = PROOF_SECONDS + 1
    with capture_logs() as told:
        house.door.look()
    assert sorted(asked) == ["127.0.0.2", "silo/north"]
    assert not told


def test_the_limits_are_those_of_the_handbook():
    """docs/operating.md, by the second; the door looks ten times in one."""
    assert (PROOF_SECONDS, UNPROVEN, PROVEN, FLOOD, LOOK_SECONDS) == (15.0, 32, 8, 100, 0.1)
    assert MOST_LONGER == 45.0
