"""Keeps a place free in the service, whoever holds connections and however slowly they send.

The service has few threads, and a connection holds one of them while its request comes, be it a byte in ten seconds.
Guarantees: whoever comes finds a thread. If all but a few are held, the oldest connection of the address that has most
of them is cut, so that nobody loses one to an address that has fewer.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address


@dataclass(frozen=True)
class _Guest:
    file: int
    inode: int
    source: str

    def held(self) -> socket.socket | None:
        """Return an object of our own for the connection; None if it was closed, and its number is another's by now."""
        try:
            mine = os.dup(self.file)
        except OSError:
            return None
        if os.fstat(mine).st_ino != self.inode:
            os.close(mine)
            return None
        return socket.socket(fileno=mine)

    def cut(self) -> None:
        held = self.held()
        if held is not None:
            with held:
                try:
                    held.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return

    def gone(self) -> bool:
        held = self.held()
        if held is not None:
            held.close()
        return held is None


class Door:
    """The open connections of one service. One thread lets them in."""

    def __init__(self, most: int) -> None:
        """`most` connections stay open at once."""
        self._most = most
        self._guests: list[_Guest] = []
        """The oldest first."""

    def enter(self, connection: socket.socket) -> None:
        """Let a connection in, and cut another if there are too many."""
        guests = [one for one in self._guests if not one.gone()]
        file = connection.fileno()
        guests.append(_Guest(file, os.fstat(file).st_ino, _source(connection)))
        while len(guests) > self._most:
            held = Counter(one.source for one in guests)
            crowd = max(held.values())
            oldest = next(one for one in guests if held[one.source] == crowd)
            oldest.cut()
            guests.remove(oldest)
        self._guests = guests


def _source(connection: socket.socket) -> str:
    """The address, or of IPv6 the network of 64 bits."""
    try:
        address = ip_address(str(connection.getpeername()[0]).partition("%")[0])
    except (OSError, ValueError, IndexError):
        return ""
    if not isinstance(address, IPv6Address):
        return str(address)
    return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
