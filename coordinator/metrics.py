"""All metrics of the coordinator, by name. Labels are bounded. Nothing here knows a value that was sealed.

The label `study` is the beginning of a digest, as at a silo.
"""

from __future__ import annotations

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from crypto.pki.joining.renewal import Times

PHASE_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000)


class CoordinatorMetrics:
    """The coordinator's metrics on their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.build = Gauge(
            "fedward_coordinator_build_info",
            "1 for the version of FedWard and of Python that runs.",
            ["version", "python"],
            registry=self.registry,
        )
        self.build.labels(version("fedward"), platform.python_version()).set(1)
        self.studies = Gauge("fedward_coordinator_studies", "Studies by state.", ["state"], registry=self.registry)
        self.info = Gauge(
            "fedward_coordinator_study_info",
            "1 for each study: which name belongs to the beginning of a digest.",
            ["study", "name"],
            registry=self.registry,
        )
        self.certificate_ends = Gauge(
            "fedward_coordinator_certificate_expires_timestamp_seconds",
            "When the coordinator's certificate expires (Unix time).",
            registry=self.registry,
        )
        self.lists_end = Gauge(
            "fedward_coordinator_revocation_lists_stale_timestamp_seconds",
            "When the first revocation list is stale (Unix time); 0 without lists.",
            registry=self.registry,
        )
        self.round = Gauge("fedward_coordinator_round", "Current round of a study.", ["study"], registry=self.registry)
        self.waiting = Gauge(
            "fedward_coordinator_waiting_silos", "Silos the current phase waits for.", ["study"], registry=self.registry
        )
        self.away = Gauge(
            "fedward_coordinator_silos_away",
            "Silos of a study of which nothing is heard.",
            ["study"],
            registry=self.registry,
        )
        self.slow = Gauge(
            "fedward_coordinator_silo_slow_seconds",
            "Seconds for which a study has waited for a silo beyond what was neutral.",
            ["study", "silo"],
            registry=self.registry,
        )
        self.silent = Gauge(
            "fedward_coordinator_silo_lost_attempts",
            "Attempts that ended at a silo's silence, as far as they are remembered.",
            ["study", "silo"],
            registry=self.registry,
        )
        self.attempts = Counter(
            "fedward_coordinator_attempts_total",
            "Attempts at rounds that ended, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self.lost = Counter(
            "fedward_coordinator_lost_total",
            "Silos that a round went on without, by the phase in which they were lost.",
            ["phase"],
            registry=self.registry,
        )
        self.phase_seconds = Histogram(
            "fedward_coordinator_phase_seconds",
            "How long phases last.",
            ["phase"],
            buckets=PHASE_BUCKETS,
            registry=self.registry,
        )
        self.received = Counter(
            "fedward_coordinator_received_bytes_total", "Sealed bytes received.", ["kind"], registry=self.registry
        )
        self.sent = Counter(
            "fedward_coordinator_sent_bytes_total", "Sealed bytes sent.", ["kind"], registry=self.registry
        )
        self.refused = Counter(
            "fedward_coordinator_refused_calls_total",
            "Calls refused, by status code and caller (role and name of the certificate).",
            ["code", "caller"],
            registry=self.registry,
        )
        self.closed = Counter(
            "fedward_coordinator_closed_connections_total",
            "Connections closed at the door, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self.clock_turns = Counter(
            "fedward_coordinator_clock_turns_total",
            "Turns of the clock that ends phases: if they stop, no time passes for any study.",
            registry=self.registry,
        )
        self.active = Gauge(
            "fedward_coordinator_active",
            "1 for the coordinator that has the lease of the database; 0 for one that stands by.",
            registry=self.registry,
        )
        self.draining = Gauge(
            "fedward_coordinator_draining", "1 while no further round begins, of any study.", registry=self.registry
        )
        self.short = Gauge(
            "fedward_coordinator_short",
            "What this machine lacks now: 1 for all studies together, and 1 for each study whose sum cannot be made.",
            registry=self.registry,
        )
        self.shortages = Counter(
            "fedward_coordinator_shortages_total",
            "Times that this machine began to lack something, by what: files, memory, disk, database, other.",
            ["lack"],
            registry=self.registry,
        )
        self.failed_handshakes = Counter(
            "fedward_coordinator_failed_handshakes_total",
            "TLS handshakes that failed: no certificate, one of another authority, or no TLS at all.",
            registry=self.registry,
        )
        self.last_seen = Gauge(
            "fedward_coordinator_silo_last_seen_seconds",
            "When a silo was last heard, in seconds since the epoch.",
            ["silo"],
            registry=self.registry,
        )

        for outcome in ("committed", "aborted"):  # an increase is seen only from a figure that was there before
            self.attempts.labels(outcome)

    def tell_times(self, times: Times) -> None:
        """Show until when certificate and lists count."""
        self.certificate_ends.set(times.certificate.timestamp())
        self.lists_end.set(0 if times.lists is None else times.lists.timestamp())
