"""A connection to the coordinator as an attacker makes it: TLS by the standard library, HTTP/2 frames by hand.

gRPC's own client obeys the protocol. This one says whatever it is told to, as fast as one core can.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from pathlib import Path
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 1, 4
SILO_SERVICE = "/fedward.v1.SiloService/"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: str, value: str) -> bytes:
    """Return a header as a literal that is not indexed, without Huffman (RFC 7541, section 6.2.2)."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _number(len(raw), 7) + raw


def _number(value: int, bits: int) -> bytes:
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    out, rest = [most], value - most
    while rest >= 128:  # seven bits a byte
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes([*out, rest])


def call_headers(method: str, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the header block of a gRPC call; `method` is a full path."""
    pairs = (
        (":method", "POST"),
        (":scheme", "https"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *extra,
    )
    return b"".join(literal(*pair) for pair in pairs)


def message(payload: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """Return a gRPC message: a flag, a length (which may lie), the bytes."""
    return struct.pack(">BI", compressed, len(payload) if length is None else length) + payload


class Wire:
    """One connection; `source` is the address that it comes from."""

    def __init__(self, port: int, folder: Path | None, source: str = "127.0.0.2", seconds: float = 5.0) -> None:
        self.plain = socket.create_connection(("127.0.0.1", port), timeout=seconds, source_address=(source, 0))
        self.plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.secure: ssl.SSLSocket | None = None
        if folder is not None:
            try:
                self.secure = self._context(folder).wrap_socket(self.plain, server_hostname="localhost")
            except OSError:
                self.plain.close()
                raise
        self._stream = -1

    @staticmethod
    def _context(folder: Path) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(folder / "authority.pem"))
        context.check_hostname = False  # the bench's coordinator is certified for its address alone
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        context.set_alpn_protocols(["h2"])
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it without saying goodbye."""
        with contextlib.suppress(OSError):
            (self.secure or self.plain).close()

    def begin(self, settings: bytes = b"") -> None:
        """Send the preface and the first settings."""
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, raw: bytes) -> None:
        """Send bytes as they are."""
        (self.secure or self.plain).sendall(raw)

    def receive(self, most: int = 1 << 16) -> bytes:
        """Return some bytes; empty if the other end has closed."""
        return (self.secure or self.plain).recv(most)

    def drain(self) -> bool:
        """Read what is there without waiting. Return False if the other end has closed."""
        end = self.secure or self.plain
        end.setblocking(False)  # noqa: FBT003  # the socket's interface
        try:
            while data := end.recv(1 << 16):
                del data
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                end.settimeout(5.0)
        return False

    def stream(self) -> int:
        """Return the number of the next stream."""
        self._stream += 2
        return self._stream

    def call(self, method: str, payload: bytes | None = None, extra: tuple[tuple[str, str], ...] = ()) -> int:
        """Begin a call, with its message if there is one. Return the number of its stream."""
        number = self.stream()
        raw = frame(HEADERS, END_HEADERS, number, call_headers(SILO_SERVICE + method, extra))
        if payload is not None:
            raw += frame(DATA, END_STREAM, number, message(payload))
        self.send(raw)
        return number
