"""What gRPC's core says, in the coordinator's log and metrics: here shows who never gets through the door."""

from __future__ import annotations

import structlog

from coordinator.door.log_limit import LogLimit
from coordinator.metrics import CoordinatorMetrics
from protos.core_log import CoreLine

log = structlog.get_logger()


class CoreLog:
    """Logs the lines, few in a minute, and counts all failed handshakes."""

    def __init__(self, metrics: CoordinatorMetrics) -> None:
        self._metrics, self._log_limit = metrics, LogLimit()

    def tell(self, line: CoreLine) -> None:
        """Take a line. gRPC does not say in it whose connection it was."""
        event = "grpc"
        if line.failed_handshake:
            event = "a TLS handshake failed"
            self._metrics.failed_handshakes.inc()
        if self._log_limit.allows(event):
            getattr(log, line.level)(event, where=line.where, why=line.text)
