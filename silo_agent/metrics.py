"""All metrics of the agent, by name: budgets, phases and refusals, but never a norm, a loss or a count of patients."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from crypto.pki.joining.renewal import Times

SECONDS_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


class AgentMetrics:
    """The agent's metrics on their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.build = Gauge(
            "fedward_silo_build_info",
            "1 for the version of FedWard and of Python that runs.",
            ["version", "python"],
            registry=self.registry,
        )
        self.build.labels(version("fedward"), platform.python_version()).set(1)
        self.epsilon_spent = Gauge(
            "fedward_silo_epsilon_spent", "Epsilon spent on the data set over all studies.", registry=self.registry
        )
        self.epsilon_left = Gauge(
            "fedward_silo_epsilon_left", "Epsilon left of the policy's budget.", registry=self.registry
        )
        self.info = Gauge(
            "fedward_silo_study_info",
            "1 for each study that has begun: which name belongs to the beginning of a digest.",
            ["study", "name"],
            registry=self.registry,
        )
        self.study_spent = Gauge(
            "fedward_silo_study_epsilon_spent",
            "Epsilon that a study cost alone, by the beginning of its digest.",
            ["study"],
            registry=self.registry,
        )
        self.study_left = Gauge(
            "fedward_silo_study_epsilon_left",
            "Epsilon left of what the policy allows any one study.",
            ["study"],
            registry=self.registry,
        )
        self.tensor_spent = Gauge(
            "fedward_silo_tensor_epsilon_spent",
            "Epsilon that a study's releases of one tensor cost alone.",
            ["study", "tensor"],
            registry=self.registry,
        )
        self.tensor_left = Gauge(
            "fedward_silo_tensor_epsilon_left",
            "Epsilon left of the share that the policy gives a study's releases of one tensor.",
            ["study", "tensor"],
            registry=self.registry,
        )
        self.short = Gauge(
            "fedward_silo_short",
            "1 while the agent waits because this machine cannot read or write the agent's own files now.",
            registry=self.registry,
        )
        self.fault = Gauge(
            "fedward_silo_fault",
            "1 while a fault stands in the ledger that nobody has cleared: noise alone is sent, and no study begins.",
            registry=self.registry,
        )
        self.audit_broke = Gauge(
            "fedward_silo_coordinator_audit_log_broken",
            "1 if the coordinator's audit log did not go on from what this silo had followed.",
            registry=self.registry,
        )
        self._verified: float | None = None
        self.verification_age = Gauge(
            "fedward_silo_ledger_verification_age_seconds",
            "Seconds since the whole ledger was last verified.",
            registry=self.registry,
        )
        self.verification_age.set_function(self._age)
        self.charges = Counter("fedward_silo_charges_total", "Entries charged to the ledger.", registry=self.registry)
        self.refusals = Counter(
            "fedward_silo_refusals_total", "Studies refused, by reason.", ["reason"], registry=self.registry
        )
        self.round = Gauge("fedward_silo_round", "Last committed round of a study.", ["study"], registry=self.registry)
        self.task_seconds = Histogram(
            "fedward_silo_task_seconds",
            "How long tasks take.",
            ["task"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.compute_seconds = Histogram(
            "fedward_silo_compute_seconds",
            "How long contributions take to compute, training included, without sealing.",
            ["tensor"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.sent = Counter(
            "fedward_silo_sent_bytes_total", "Sealed bytes uploaded, by kind.", ["kind"], registry=self.registry
        )
        self.received = Counter(
            "fedward_silo_received_bytes_total", "Sealed bytes downloaded, by kind.", ["kind"], registry=self.registry
        )
        self.disputes = Counter(
            "fedward_silo_disputes_total", "Tasks that the silo disputed, by task.", ["task"], registry=self.registry
        )
        self.removals = Counter(
            "fedward_silo_removals_total",
            "Studies that the policy's retention has begun to remove.",
            registry=self.registry,
        )
        self.certificate_ends = Gauge(
            "fedward_silo_certificate_expires_timestamp_seconds",
            "When the silo's certificate expires (Unix time).",
            registry=self.registry,
        )
        self.lists_end = Gauge(
            "fedward_silo_revocation_lists_stale_timestamp_seconds",
            "When the first revocation list is stale (Unix time); 0 without lists.",
            registry=self.registry,
        )
        self.connected = Gauge("fedward_silo_connected", "1 while the coordinator answers.", registry=self.registry)

    def verified(self) -> None:
        """Note that the whole ledger was verified just now."""
        self._verified = monotonic()

    def _age(self) -> float:
        """Seconds since the last verification, by a clock that nobody can set; infinite before the first."""
        return math.inf if self._verified is None else monotonic() - self._verified

    def tell_times(self, times: Times) -> None:
        """Show until when certificate and lists count."""
        self.certificate_ends.set(times.certificate.timestamp())
        self.lists_end.set(0 if times.lists is None else times.lists.timestamp())
