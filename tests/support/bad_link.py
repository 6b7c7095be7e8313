"""A link as some hospitals have it: slow, with stalls and cuts, in the form of the proxy that agent.yaml names.

Every direction passes at most `RATE` bytes a second, over all connections together. After so many bytes, drawn from a
seed, nothing passes for a while; after so many others all connections are cut. `die` lets nothing pass any more and
tells nobody, as a line does that was pulled out.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.proxy import Connecting, Proxy

RATE = 125_000
"""Bytes a second: 1 Mbit/s."""
PIECE = 4096
BUFFER = 32 << 10
"""Of each socket, so that a sender notices how slow the link is."""
STALL_SECONDS = 4.0


class BadLink(Proxy):
    """`passed` counts bytes by direction, `stalls` and `cuts` what befell them."""

    def __init__(self, seed: int, *, stall_every: int, cut_every: int) -> None:
        super().__init__()
        self.RequestHandlerClass = Passing
        self._chance = random.Random(seed)  # noqa: S311  # a schedule, no secret
        self._every = {"stall": stall_every, "cut": cut_every}
        self._next = {kind: self._draw(kind) for kind in self._every}
        self._guard, self._free = threading.Lock(), {"up": 0.0, "down": 0.0}
        self._open: set[socket.socket] = set()
        self.passed = {"up": 0, "down": 0}
        self.stalls = self.cuts = 0
        self.dead = threading.Event()

    def _draw(self, kind: str) -> float:
        return self._every[kind] * self._chance.uniform(0.5, 1.5)

    def die(self) -> None:
        """Let nothing pass from now on."""
        self.dead.set()

    def pass_on(self, direction: str, size: int) -> None:
        """Wait until so many bytes may pass. Raises ConnectionResetError if the connections are cut."""
        with self._guard:
            begin = max(time.monotonic(), self._free[direction])
            self.passed[direction] += size
            whole = sum(self.passed.values())
            if whole >= self._next["stall"]:
                self.stalls += 1
                self._next["stall"] = whole + self._draw("stall")
                begin += STALL_SECONDS
            self._free[direction] = begin + size / RATE
            cut = whole >= self._next["cut"]
            if cut:
                self.cuts += 1
                self._next["cut"] = whole + self._draw("cut")
                gone, self._open = self._open, set()
        time.sleep(max(0.0, begin + size / RATE - time.monotonic()))
        if cut:
            for one in gone:
                cut_off(one)
            raise ConnectionResetError

    def hold(self, *sockets: socket.socket) -> None:
        """Count these among the connections that are cut together."""
        for one in sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        with self._guard:
            self._open.update(sockets)


def cut_off(one: socket.socket) -> None:
    """Reset a connection, without a word that it ends."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)


class Passing(Connecting):
    """One connection over the link."""

    server: BadLink

    def copy(self, source: socket.socket, sink: socket.socket) -> None:  # type: ignore[override]
        direction = "up" if source is self.connection else "down"
        self.server.hold(source, sink)
        with suppress(OSError):
            while data := source.recv(PIECE):
                if self.server.dead.is_set():
                    while source.recv(PIECE):
                        pass
                    return
                self.server.pass_on(direction, len(data))
                sink.sendall(data)
        cut_off(sink)
        cut_off(source)


@contextmanager
def bad_link(seed: int, *, stall_every: int, cut_every: int) -> Iterator[BadLink]:
    """Serve such a link."""
    with BadLink(seed, stall_every=stall_every, cut_every=cut_every) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
