"""Attacks by connections, and by frames of HTTP/2 that gRPC's own client would never send."""

from __future__ import annotations

import gzip
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import grpc

from bench.attacks.hostile import wire
from bench.attacks.hostile.target import Callers, Target, attack, by_frames, open_wires
from bench.attacks.hostile.wire import Wire, call_headers, frame, message
from protos.v1 import silo_pb2

MEBI = 1 << 20


@attack
def silent_uploads(target: Target) -> Iterator[None]:
    """Uploads that never send their header."""
    with ExitStack() as stack:
        wires = open_wires(target, stack, 8)
        while wires:
            for one in wires:
                one.call("Upload")
                yield
            time.sleep(0.001)
            wires = [one for one in wires if one.drain()] or open_wires(target, stack, 8)


@attack
def bare_connections(target: Target) -> Iterator[None]:
    """TCP and nothing more."""
    held: deque[socket.socket] = deque(maxlen=2000)
    while True:
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", target.port), 5.0, ("127.0.0.2", 0)))
        yield


# --- connections ----------------------------------------------------------------------------------------------------
@attack
def half_open_tls(target: Target) -> Iterator[None]:
    """Half of a TLS client's first message."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 100
    held: deque[Wire] = deque(maxlen=1000)
    while True:
        with suppress(OSError):
            held.append(Wire(target.port, None))
            held[-1].send(hello)
        yield


@attack
def tls_storm(target: Target) -> Iterator[None]:
    """Whole handshakes, and nothing after them."""
    while True:
        with suppress(OSError):
            Wire(target.port, target.folder).close()
        yield


@attack
def another_authority(target: Target) -> Iterator[None]:
    """Handshakes with the certificate of another authority."""
    while True:
        with suppress(OSError), Wire(target.port, target.stranger) as connection:
            connection.begin()
            connection.call("Heartbeat", b"")
            connection.receive()
        yield


@attack
def idle_after_tls(target: Target) -> Iterator[None]:
    """Connections that are kept after the handshake."""
    held: deque[Wire] = deque(maxlen=500)
    while True:
        with suppress(OSError):
            held.append(Wire(target.port, target.folder))
        yield


@attack
def noise(target: Target) -> Iterator[None]:
    """Bytes that mean nothing, before and after the handshake."""
    while True:
        for folder in (None, target.folder):
            with suppress(OSError), Wire(target.port, folder) as connection:
                connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + os.urandom(20_000))
            yield


@attack
def reconnect_storm(target: Target) -> Iterator[None]:
    """A new client for each call."""
    while True:
        with Callers(target) as callers, suppress(grpc.RpcError):
            callers.silo.Join(silo_pb2.JoinRequest(protocol=5, agent_version="x"), timeout=5)
        yield


# --- frames ---------------------------------------------------------------------------------------------------------
@attack
def calls_without_message(target: Target) -> Iterator[None]:
    """Headers of calls whose message never comes."""
    with ExitStack() as stack:
        wires = open_wires(target, stack, 8)
        while wires:
            for one in wires:
                with suppress(OSError):
                    one.call("Poll")
                yield
            time.sleep(0.001)
            wires = [one for one in wires if one.drain()] or open_wires(target, stack, 8)


@by_frames
def header_flood(_: Target, connection: Wire) -> Iterator[None]:
    """Calls with 60 KiB of metadata."""
    extra = tuple((f"x-{number}", "y" * 3000) for number in range(5))
    while True:
        connection.call("Heartbeat", b"", extra)
        yield
        if not connection.drain():
            return


@by_frames
def continuations_without_end(_: Target, connection: Wire) -> Iterator[None]:
    """A header block that never ends."""
    connection.send(frame(wire.HEADERS, 0, 1, call_headers(wire.SILO_SERVICE + "Poll")))
    piece = frame(wire.CONTINUATION, 0, 1, wire.literal("x", "y" * 16_000))
    while True:
        connection.send(piece)
        yield


@by_frames
def rapid_reset(_: Target, connection: Wire) -> Iterator[None]:
    """Calls that are taken back as soon as they are made."""
    while True:
        batch = b""
        for _number in range(50):
            stream = connection.stream()
            batch += frame(wire.HEADERS, wire.END_HEADERS, stream, call_headers(wire.SILO_SERVICE + "Poll"))
            batch += frame(wire.RST, 0, stream, struct.pack(">I", 8))
        connection.send(batch)
        yield
        if not connection.drain():
            return


@by_frames
def pings(_: Target, connection: Wire) -> Iterator[None]:
    """Pings, each of which must be answered."""
    batch = frame(wire.PING, 0, 0, b"12345678") * 100
    while True:
        connection.send(batch)
        yield
        if not connection.drain():
            return


@by_frames
def settings(_: Target, connection: Wire) -> Iterator[None]:
    """Settings, each of which must be acknowledged."""
    batch = frame(wire.SETTINGS, 0, 0, b"\x00\x04\x00\x01\x00\x00") * 100
    while True:
        connection.send(batch)
        yield
        if not connection.drain():
            return


@by_frames
def windows(_: Target, connection: Wire) -> Iterator[None]:
    """Window updates and priorities, of no use to anybody."""
    batch = (frame(wire.WINDOW, 0, 0, b"\x00\x00\x00\x01") + frame(wire.PRIORITY, 0, 1, b"\x00\x00\x00\x00\x10")) * 50
    while True:
        connection.send(batch)
        yield
        if not connection.drain():
            return


@by_frames
def empty_data(_: Target, connection: Wire) -> Iterator[None]:
    """Frames of data without data."""
    stream = connection.call("Upload")
    batch = frame(wire.DATA, 0, stream) * 200
    while True:
        connection.send(batch)
        yield
        if not connection.drain():
            return


@attack
def never_read(target: Target) -> Iterator[None]:
    """Answers that must not be sent, because the window stays closed."""
    with ExitStack() as stack:
        request = silo_pb2.JoinRequest(protocol=5, agent_version="x").SerializeToString()
        while target.on:
            for one in open_wires(target, stack, 8, settings=b"\x00\x04\x00\x00\x00\x00"):
                for _ in range(32):
                    with suppress(OSError):
                        one.call("Join", request)
                    yield
            time.sleep(0.2)
            stack.close()


@by_frames
def lying_lengths(_: Target, connection: Wire) -> Iterator[None]:
    """A message that says that four gibibytes follow."""
    while True:
        stream = connection.call("Confirm")
        connection.send(frame(wire.DATA, 0, stream, message(b"x" * 100, length=0xFFFFFFFF)))
        yield
        if not connection.drain():
            return


@by_frames
def compressed_bombs(_: Target, connection: Wire) -> Iterator[None]:
    """Ten kilobytes that become ten megabytes."""
    bomb = message(gzip.compress(bytes(10 * MEBI), 9), compressed=1)
    while True:
        stream = connection.call("Confirm", extra=(("grpc-encoding", "gzip"),))
        connection.send(frame(wire.DATA, wire.END_STREAM, stream, bomb))
        yield
        if not connection.drain():
            return
