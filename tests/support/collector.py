"""A collector of OpenTelemetry: it takes spans over HTTP, and reads them with the standard's own messages."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """What came."""

    service: str
    instance: str
    name: str
    trace: int
    span: int
    parent: int
    seconds: float
    said: dict[str, Any]


class Collector:
    """It listens on loopback while the block lasts."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Taking(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.spans += _read(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *words: object) -> None:  # noqa: A002  # its name there
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def until(self, enough: Callable[[list[Span]], bool], seconds: float = 120.0) -> list[Span]:
        """Wait for enough spans."""
        end = time.monotonic() + seconds
        while not enough(self.spans):
            assert time.monotonic() < end, self.spans
            time.sleep(0.05)
        return self.spans


def _read(request: ExportTraceServiceRequest) -> list[Span]:
    found = []
    for group in request.resource_spans:
        resource = {one.key: one.value.string_value for one in group.resource.attributes}
        for scope in group.scope_spans:
            for one in scope.spans:
                said = {each.key: each.value.string_value or int(each.value.int_value) for each in one.attributes}
                ids = (int.from_bytes(part) for part in (one.trace_id, one.span_id, one.parent_span_id))
                seconds = (one.end_time_unix_nano - one.start_time_unix_nano) / 1e9
                found.append(
                    Span(resource["service.name"], resource["service.instance.id"], one.name, *ids, seconds, said)
                )
    return found
