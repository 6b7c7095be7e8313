"""Spans of rounds for OpenTelemetry, sent to a collector of the own house (extra `tracing`; docs/metrics.md, "Traces").

A trace is one attempt at a round. Coordinator and silos compute its ids from the attempt's place, so their spans join
wherever somebody brings them together, and no word of it goes over FedWard's wire.

Guarantees: without an address nothing is made or sent. A span says public words alone: study, round, attempt, phase or
task, tensor, outcome. Nothing waits for a collector: spans are sent by a thread of their own, and dropped while none
answers. How long a silo's task lasts follows from its records, as in its metrics: its collector stays in the hospital.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from protos.messages import Place

if TYPE_CHECKING:
    from protos.span_sending import SpanSender

_SHORT: Final = 12
_ROOT: Final = "attempt"


class Spans:
    """The spans of one program."""

    def __init__(
        self, url: str | None, service: str, name: str, tell: Callable[[str], object] = lambda _: None
    ) -> None:
        """`url` is that of a collector that takes OTLP over HTTP; None for no spans at all.

        `service` is the program's name, `name` that of its certificate. `tell` hears why spans cannot be sent. Raises
        OSError, with a sentence, if the extra is not installed.
        """
        self._sender: SpanSender | None = None
        if url is None:
            return
        try:
            from protos.span_sending import SpanSender  # noqa: PLC0415  # an extra, which most do without
        except ImportError as error:
            msg = f"`traces` needs the extra `tracing` ({error.name} is not installed): pip install 'fedward[tracing]'"
            raise OSError(msg) from None
        self._sender = SpanSender(url, service, name, tell)

    def attempt(self, place: Place, begin: float, end: float, outcome: str) -> None:
        """Make the span of a whole attempt, under which all others lie. Times are in seconds since the epoch."""
        if self._sender is not None:
            self._sender.send_root(_ROOT, *ids_of(place), (begin, end), {**_where(place), "fedward.outcome": outcome})

    def part(self, place: Place, name: str, begin: float, end: float, tensor: str | None = None) -> None:
        """Make the span of a phase or a task of an attempt."""
        if self._sender is not None:
            said = _where(place) if tensor is None else {**_where(place), "fedward.tensor": str(tensor)}
            self._sender.send(str(name), *ids_of(place), (begin, end), said)

    @contextmanager
    def during(self, place: Place, name: str, tensor: str | None = None) -> Iterator[None]:
        """Make the span of a part that lasts as long as the block, also if the block raises."""
        begin, since = time.time(), time.monotonic()
        try:
            yield
        finally:
            self.part(place, name, begin, begin + time.monotonic() - since, tensor)

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        if self._sender is not None:
            self._sender.close()


NO_SPANS: Final = Spans(None, "", "")
"""For a program whose spans nobody wants."""


def ids_of(place: Place) -> tuple[int, int]:
    """The ids of an attempt's trace (128 bits) and of its span (64 bits), which nobody has to tell another."""
    digest = hashlib.sha256(f"fedward trace {place.study} {place.round} {place.attempt}".encode()).digest()
    return int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])


def _where(place: Place) -> dict[str, str | int]:
    return {"fedward.study": place.study[:_SHORT], "fedward.round": place.round, "fedward.attempt": place.attempt}
