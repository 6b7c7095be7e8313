"""Every metric of the agent, by name. Budgets, phases and refusals; never a norm, a loss or a count of patients."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)


class Metrics:
    """The agent's metrics on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.epsilon_spent = Gauge(
            "fedward_silo_epsilon_spent", "Epsilon spent on the data set over all studies.", registry=self.registry
        )
        self.epsilon_left = Gauge(
            "fedward_silo_epsilon_left", "Epsilon left of the policy's budget.", registry=self.registry
        )
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
        self.connected = Gauge("fedward_silo_connected", "1 while the coordinator answers.", registry=self.registry)
