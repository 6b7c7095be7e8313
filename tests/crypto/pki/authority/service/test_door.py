"""Who holds most connections loses the oldest to whoever wants to come in."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from crypto.pki.authority.service.door import Door


class Named(socket.socket):
    """A connection of some address."""

    address = ""

    def getpeername(self):
        return (self.address, 1)


MOST = 4


@pytest.fixture
def come():
    """A door, and a way to come in from an address: gives the caller's end."""
    door, here = Door(MOST), []
    with ExitStack() as opened:

        def come(address):
            ours, theirs = (opened.enter_context(one) for one in socket.socketpair())
            named = opened.enter_context(Named(fileno=ours.detach()))
            named.address = address
            here.append(named)
            door.enter(named)
            theirs.settimeout(0.0)
            return theirs

        come.here = here
        yield come


def cut(end):
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_whoever_holds_most_loses_its_oldest(come):
    first, *others = come("192.0.2.2"), *[come("192.0.2.1") for _ in range(MOST - 1)]
    assert not any(map(cut, [first, *others]))
    come("192.0.2.3")
    assert [cut(end) for end in [first, *others]] == [False, True, False, False]
    come("192.0.2.3")
    assert [cut(end) for end in [first, *others[1:]]] == [False, True, False]


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_a_network_of_64_bits_is_one_address(come, one, another, same):
    stranger, first = come("192.0.2.9"), come(one)
    for _ in range(MOST - 1):
        come(another)
    assert (cut(first), cut(stranger)) == (same, False)


def test_the_number_of_a_connection_that_was_closed_may_be_anothers(come):
    come("192.0.2.1")
    come.here[0].close()
    with ExitStack() as opened:
        reused = [opened.enter_context(one) for one in socket.socketpair()]
        for _ in range(2 * MOST):
            come("192.0.2.1")
        reused[0].settimeout(0.0)
        assert not cut(reused[0])
