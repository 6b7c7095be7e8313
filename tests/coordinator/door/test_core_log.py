"""What gRPC's core says is logged as it was said, few lines of each kind, and every failed handshake is counted."""

from structlog.testing import capture_logs

from coordinator.door.core_log import CoreLog
from coordinator.door.log_limit import LINES
from coordinator.metrics import CoordinatorMetrics
from protos.core_log import CoreLine


def test_a_line_keeps_its_level_its_place_and_its_text():
    metrics = CoordinatorMetrics()
    with capture_logs() as told:
        CoreLog(metrics).tell(CoreLine("error", "chttp2.cc:12", "settings frame received"))
    assert told == [
        {"event": "grpc", "log_level": "error", "where": "chttp2.cc:12", "why": "settings frame received"},
    ]
    assert metrics.registry.get_sample_value("fedward_coordinator_failed_handshakes_total") == 0


def test_failed_handshakes_are_all_counted_few_are_logged_and_they_hide_no_other_line():
    metrics = CoordinatorMetrics()
    core = CoreLog(metrics)
    with capture_logs() as told:
        for _ in range(3 * LINES):
            core.tell(CoreLine("info", "ssl.cc:3", "Handshake failed with error"))
        core.tell(CoreLine("warning", "a.cc:1", "other"))
    assert [one["event"] for one in told] == [*["a TLS handshake failed"] * LINES, "grpc"]
    assert metrics.registry.get_sample_value("fedward_coordinator_failed_handshakes_total") == 3 * LINES
