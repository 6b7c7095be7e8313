"""The part of `protos.tracing` that needs OpenTelemetry's libraries (extra `tracing`): spans as it knows them, sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext, TraceFlags

SEND_SECONDS: Final = 2.0
"""How long spans are gathered before they are sent."""
_ANSWER_SECONDS: Final = 5.0
_MOST: Final = 2048
_NANO: Final = 1_000_000_000


class SpanSender:
    """Sends spans from a thread of its own; it drops them while nobody answers."""

    def __init__(self, url: str, service: str, name: str, tell: Callable[[str], object]) -> None:
        """As `protos.tracing.Spans`."""
        logger = logging.getLogger("opentelemetry")
        logger.handlers, logger.propagate = [_Hearing(tell)], False
        self._ids = RandomIdGenerator()
        self._resource = Resource(
            {"service.name": service, "service.instance.id": name, "service.version": version("fedward")}
        )
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces", timeout=_ANSWER_SECONDS),
            max_queue_size=_MOST,
            schedule_delay_millis=SEND_SECONDS * 1000,
            export_timeout_millis=_ANSWER_SECONDS * 1000,
        )

    def send(self, name: str, trace: int, root: int, times: tuple[float, float], said: Mapping[str, str | int]) -> None:
        """Send a span that lies under `root`. `times`: begin and end, in seconds since the epoch."""
        self._send(name, _context(trace, self._ids.generate_span_id()), _context(trace, root), times, said)

    def send_root(
        self, name: str, trace: int, root: int, times: tuple[float, float], said: Mapping[str, str | int]
    ) -> None:
        """Send the span `root` itself."""
        self._send(name, _context(trace, root), None, times, said)

    def _send(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[float, float],
        said: Mapping[str, str | int],
    ) -> None:
        begin, end = (round(one * _NANO) for one in times)
        self._processor.on_end(
            ReadableSpan(
                name,
                context,
                parent=parent,
                resource=self._resource,
                attributes=dict(said),
                start_time=begin,
                end_time=end,
            )
        )

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # the library's


def _context(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class _Hearing(logging.Handler):
    """Hands what the library logs to the program's own log."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())
