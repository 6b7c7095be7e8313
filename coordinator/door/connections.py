"""The TCP connections of the coordinator's port: those that break a limit are closed.

gRPC accepts connections by itself and closes none for us, so this module looks at the process's sockets several times
a second. A connection is proven once a call with a valid certificate came over it. Guarantees: an address has few
unproven connections, each for some seconds; a certificate has few connections; a connection that floods the service
with calls that are refused is closed. Between two looks more may be open, up to the limit of open files.

It needs Linux, where a process finds its sockets in /proc. Elsewhere no connection is closed here, only by gRPC.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

import structlog

from coordinator.door.log_limit import LogLimit
from coordinator.metrics import CoordinatorMetrics

log = structlog.get_logger()
PROOF_SECONDS = 15.0
"""Time in which a connection must bring a call with a certificate."""
MOST_LONGER = 45.0
"""Most seconds that a connection is given beyond these while calls wait for a thread, however long they wait."""
UNPROVEN = 32
"""Most connections of one address without one."""
PROVEN = 8
"""Most connections of one certificate."""
FLOOD = 100
"""Most refused calls of one connection between two looks."""
_FRESH_SECONDS = 5.0
_FILES = Path("/proc/self/fd")

Peer = tuple[str, int]
"""Address and port of the other end."""


@dataclass
class _Connection:
    peer: Peer
    source: str
    """Whose connection it is, if unproven: the address, or of IPv6 the network of 64 bits."""
    since: float
    caller: str = ""
    refused: int = 0
    closed: bool = False
    """It was closed here. gRPC lets go of it a moment later."""


class Connections:
    """The connections of one port."""

    def __init__(self, port: int, metrics: CoordinatorMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._port, self._metrics, self._clock = port, metrics, clock
        self._open: dict[int, _Connection] = {}
        self._files: dict[int, int] = {}
        self._guard, self._log_limit = threading.Lock(), LogLimit(clock)
        self._proven: dict[Peer, tuple[str, float]] = {}
        self._refused: Counter[Peer] = Counter()

    def prove(self, peer: str, caller: str) -> None:
        """Note that a caller with a valid certificate called. `peer` is gRPC's name of the connection."""
        if (key := _peer(peer)) is not None:
            with self._guard:
                self._proven[key] = (caller, self._clock())

    def refuse(self, peer: str) -> None:
        """Note that a call of this connection was refused."""
        if (key := _peer(peer)) is not None:
            with self._guard:
                self._refused[key] += 1

    def look(self, queued: float = 0.0) -> None:
        """Close the connections that break a limit. Called several times a second, by one thread.

        `queued`: seconds that a call waits for a thread now. A connection proves nothing before its call has one, so it
        is given as much longer, up to `MOST_LONGER`.
        """
        self._find()
        now, allowed = self._clock(), PROOF_SECONDS + min(queued, MOST_LONGER)
        by_address: defaultdict[str, list[int]] = defaultdict(list)
        by_caller: defaultdict[str, list[int]] = defaultdict(list)
        with self._guard:
            refused, self._refused = self._refused, Counter()
            peers = {one.peer for one in self._open.values()}
            # The connection of a call that came just now is found by the next look.
            self._proven = {
                peer: proof for peer, proof in self._proven.items() if peer in peers or now - proof[1] < _FRESH_SECONDS
            }
            for one in self._open.values():
                one.caller, one.refused = self._proven.get(one.peer, ("", 0.0))[0], refused[one.peer]
        for inode, one in sorted(self._open.items(), key=lambda item: item[1].since):
            if one.refused > FLOOD:
                self._close([inode], "flood")
            elif one.caller:
                by_caller[one.caller].append(inode)
            elif now - one.since > allowed:
                self._close([inode], "no_call")
            else:
                by_address[one.source].append(inode)
        for inodes in by_address.values():
            self._close(inodes[UNPROVEN:], "address")
        for inodes in by_caller.values():
            self._close(inodes[:-PROVEN], "certificate")  # the oldest, which a caller has given up if it made new ones

    def _find(self) -> None:
        """Take up new connections, and drop those that are gone."""
        files = dict(_sockets())
        self._open = {inode: one for inode, one in self._open.items() if inode in files}
        for inode, file in files.items():
            if inode not in self._open and (end := _peer_of(file, inode, self._port)) is not None:
                self._open[inode] = _Connection(end, _source(end[0]), self._clock())
        self._files = files

    def _close(self, inodes: list[int], reason: str) -> None:
        """Close connections of one address or certificate."""
        open_ones = [inode for inode in inodes if not self._open[inode].closed]
        for inode in open_ones:
            self._open[inode].closed = _shut(self._files[inode], inode)
        closed = [one for one in (self._open[inode] for inode in open_ones) if one.closed]
        if closed:
            self._metrics.closed.labels(reason).inc(len(closed))
            first = closed[0]
            if self._log_limit.allows(first.caller or first.source):
                named = {"address": first.peer[0], "caller": first.caller or None}
                log.info("connections closed", reason=reason, number=len(closed), **named)


def _sockets() -> Iterator[tuple[int, int]]:
    """Yield inode and number of every open socket of this process."""
    try:
        numbers = [int(name) for name in os.listdir(_FILES)]  # noqa: PTH208  # thousands of them, many times a second
    except FileNotFoundError:
        return
    for number in numbers:
        try:
            status = os.fstat(number)
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield status.st_ino, number


def _held(file: int, inode: int) -> socket.socket | None:
    """Return an object of our own for the socket, or None if the number stands for another file by now."""
    try:
        mine = os.dup(file)
    except OSError:
        return None
    if os.fstat(mine).st_ino != inode:
        os.close(mine)
        return None
    return socket.socket(fileno=mine)


def _peer_of(file: int, inode: int, port: int) -> Peer | None:
    """Return the other end of a connection to `port`; None for any other socket."""
    held = _held(file, inode)
    if held is None:
        return None
    with held:
        try:
            if held.family not in (socket.AF_INET, socket.AF_INET6) or held.getsockname()[1] != port:
                return None
            host, number, *_ = held.getpeername()
        except OSError:
            return None
    return _plain(host), number


def _shut(file: int, inode: int) -> bool:
    held = _held(file, inode)
    if held is None:
        return False
    with held:
        try:
            held.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True


@lru_cache(4096)
def _peer(name: str) -> Peer | None:
    """Return what gRPC's name of a connection says, such as `ipv4:192.0.2.1:50051`; None for other kinds."""
    kind, _, rest = unquote(name).partition(":")
    host, _, port = rest.rpartition(":")
    return (_plain(host.strip("[]")), int(port)) if kind in ("ipv4", "ipv6") else None


def _plain(host: str) -> str:
    """Return an address without its zone, and an IPv4 address as such if it is wrapped in IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def _source(host: str) -> str:
    address = ip_address(host)
    if not isinstance(address, IPv6Address):
        return host
    return str(IPv6Address(int(address) >> 64 << 64))
