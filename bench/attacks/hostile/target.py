"""Who is attacked, the list of attacks, and the two clients that they have: gRPC's own, and frames by hand."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from bench.attacks.hostile.wire import Wire
from crypto.pki.certificates import Credential
from crypto.pki.tls import channel_credentials
from protos import codec
from protos.messages import Place
from protos.v1 import operator_pb2_grpc, silo_pb2_grpc

OUTSTANDING = 64
"""Calls that an attack by calls has in flight."""
LOCAL = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Codes that the caller's own library may give, of which the coordinator need not know."""


@dataclass
class Target:
    """Who is attacked, and as whom."""

    port: int
    folder: Path
    other: Path
    """A certificate of another silo, whose key the attacker does not have."""
    stranger: Path
    """A certificate of another authority."""
    study: str
    until: float = 0.0
    tried: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """Calls that the coordinator itself refused, by code."""

    @property
    def on(self) -> bool:
        """Whether the attack goes on."""
        return time.monotonic() < self.until

    def place(self) -> Any:
        """The first place of the study that runs."""
        return codec.to_wire(Place(self.study, 0, 1))


Attack = Callable[[Target], Iterator[None]]
"""Yields after each try, which is counted. It is closed when its time is over."""
ATTACKS: dict[str, Attack] = {}


def attack(make: Attack) -> Attack:
    """List an attack under its name."""
    ATTACKS[make.__name__] = make
    return make


class Callers:
    """gRPC's own client, with many calls in flight."""

    def __init__(self, target: Target) -> None:
        self._target, self._flying = target, deque[Any]()
        credential = Credential.load(*(target.folder / f"{n}.pem" for n in ("certificate", "key", "authority")))
        options = (("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1))
        self.channel = grpc.secure_channel(f"127.0.0.1:{target.port}", channel_credentials(credential), options=options)
        self.silo = silo_pb2_grpc.SiloServiceStub(self.channel)
        self.operator = operator_pb2_grpc.OperatorServiceStub(self.channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for call in self._flying:
            call.cancel()
        self.channel.close()

    def raw(self, path: str) -> Any:
        """Return a method that takes and gives bytes."""
        return self.channel.unary_unary(path, lambda request: request, lambda reply: reply)

    def go(self, call: Any, request: Any, *, cancel: bool = False, **options: Any) -> None:
        """Begin a call. Wait for the oldest one if many are in flight."""
        future = call.future(request, timeout=30, **options)
        if cancel:
            future.cancel()
            return
        self._flying.append(future)
        while len(self._flying) >= OUTSTANDING and self._target.on:
            done = [one for one in self._flying if one.done()]
            for one in done:
                self._flying.remove(one)
                code = one.code()
                if code is not grpc.StatusCode.OK and code not in LOCAL:
                    self._target.refused[code.name] += 1
            if not done:
                time.sleep(0.001)


def by_calls(make: Callable[[Target, Callers], Iterator[None]]) -> Attack:
    """Give an attack a client."""

    def run(target: Target) -> Iterator[None]:
        with Callers(target) as callers:
            yield from make(target, callers)

    run.__name__ = make.__name__
    return attack(run)


def by_frames(make: Callable[[Target, Wire], Iterator[None]]) -> Attack:
    """Give an attack a connection of HTTP/2, and a new one whenever it is closed."""

    def run(target: Target) -> Iterator[None]:
        while target.on:
            with suppress(OSError), Wire(target.port, target.folder) as connection:
                connection.begin()
                yield from make(target, connection)

    run.__name__ = make.__name__
    return attack(run)


def open_wires(target: Target, stack: ExitStack, number: int, **options: Any) -> list[Wire]:
    """Open connections of HTTP/2 that end with `stack`."""
    wires = []
    for _ in range(number):
        with suppress(OSError):
            made = stack.enter_context(Wire(target.port, target.folder))
            made.begin(**options)
            wires.append(made)
    return wires
