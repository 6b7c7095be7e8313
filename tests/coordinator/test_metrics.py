"""Every metric by name, exposed over HTTP by a server that runs; no label that could carry a secret."""

from __future__ import annotations

import re
import urllib.request

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from coordinator.metrics import CoordinatorMetrics
from coordinator.telemetry.current import families as families_of_the_moment

NAMES = {
    "fedward_coordinator_build_info": ("version", "python"),
    "fedward_coordinator_attempts": ("outcome",),
    "fedward_coordinator_failed_handshakes": (),
    "fedward_coordinator_lost": ("phase",),
    "fedward_coordinator_phase_seconds": ("phase",),
    "fedward_coordinator_received_bytes": ("kind",),
    "fedward_coordinator_refused_calls": ("code", "caller"),
    "fedward_coordinator_closed_connections": ("reason",),
    "fedward_coordinator_certificate_expires_timestamp_seconds": (),
    "fedward_coordinator_revocation_lists_stale_timestamp_seconds": (),
    "fedward_coordinator_round": ("study",),
    "fedward_coordinator_sent_bytes": ("kind",),
    "fedward_coordinator_clock_turns": (),
    "fedward_coordinator_active": (),
    "fedward_coordinator_draining": (),
    "fedward_coordinator_short": (),
    "fedward_coordinator_shortages": ("lack",),
    "fedward_coordinator_silo_last_seen_seconds": ("silo",),
    "fedward_coordinator_silo_lost_attempts": ("study", "silo"),
    "fedward_coordinator_silo_slow_seconds": ("study", "silo"),
    "fedward_coordinator_silos_away": ("study",),
    "fedward_coordinator_studies": ("state",),
    "fedward_coordinator_study_info": ("study", "name"),
    "fedward_coordinator_waiting_silos": ("study",),
}


def test_the_names_and_labels_are_these():
    made = [metric for metric in vars(CoordinatorMetrics()).values() if not isinstance(metric, CollectorRegistry)]
    assert {metric._name: metric._labelnames for metric in made} == NAMES


def test_a_running_server_exposes_them_all(server, scene):
    scene.play(lambda status: status.round == 1)
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=300) as reply:
        text = reply.read().decode()
    families = {f.name: f for f in text_string_to_metric_families(text) if not f.name.endswith("_created")}
    current = {one.name for one in families_of_the_moment()}
    process = {name for name in families if name.startswith("process_")}
    assert "process_resident_memory_bytes" in process
    assert set(families) == set(NAMES) | current | process
    unseen = {name for name, family in families.items() if not family.samples}
    untroubled = {
        "fedward_coordinator_lost",
        "fedward_coordinator_refused_calls",
        "fedward_coordinator_closed_connections",
        "fedward_coordinator_shortages",
        "fedward_coordinator_phase_left_seconds",
    }
    assert unseen <= untroubled, "every other metric is fed"
    labels = {value for family in families.values() for sample in family.samples for value in sample.labels.values()}
    bounded = re.compile(r"[a-z0-9.+_-]{1,63}|\+Inf|[A-Z_]+")
    assert all(bounded.fullmatch(label) for label in labels)


def test_two_coordinators_in_one_process_do_not_share_them():
    one, two = CoordinatorMetrics(), CoordinatorMetrics()
    one.attempts.labels("committed").inc()
    assert two.registry.get_sample_value("fedward_coordinator_attempts_total", {"outcome": "committed"}) == 0
