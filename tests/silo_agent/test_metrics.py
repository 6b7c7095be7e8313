from datetime import UTC, datetime

from prometheus_client import generate_latest

from crypto.pki.joining.renewal import Times
from silo_agent.metrics import AgentMetrics

FORBIDDEN = ("norm", "loss", "auc", "patients", "weight", "path", "explanation")
LABELS = {"reason", "study", "name", "task", "tensor", "kind", "le", "version", "python"}


def touched():
    metrics = AgentMetrics()
    metrics.refusals.labels("budget_spent").inc()
    metrics.round.labels("0123456789ab").set(3)
    metrics.info.labels("0123456789ab", "heart").set(1)
    metrics.task_seconds.labels("open").observe(0.2)
    metrics.compute_seconds.labels("hessian").observe(0.2)
    metrics.sent.labels("ckks").inc(7)
    metrics.received.labels("sum").inc(7)
    metrics.disputes.labels("adopt").inc()
    metrics.epsilon_spent.set(1.5)
    for gauge in (metrics.study_spent, metrics.study_left):
        gauge.labels("0123456789ab").set(1.25)
    for gauge in (metrics.tensor_spent, metrics.tensor_left):
        gauge.labels("0123456789ab", "heads").set(0.75)
    metrics.removals.inc()
    metrics.connected.set(1)
    metrics.tell_times(Times(datetime.fromtimestamp(2e9, UTC), None))
    return metrics


def test_every_name_is_the_silos_and_every_label_is_known():
    found = list(touched().registry.collect())
    families = [family for family in found if not family.name.startswith("process_")]
    assert len(families) == 24
    assert any(family.name == "process_resident_memory_bytes" for family in found)
    for family in families:
        assert family.name.startswith("fedward_silo_")
        assert family.documentation.endswith(".")
        assert not any(word in family.name for word in FORBIDDEN)
        for sample in family.samples:
            assert set(sample.labels) <= LABELS


def test_what_is_scraped_says_what_was_counted():
    scraped = generate_latest(touched().registry).decode()
    for line in (
        'fedward_silo_refusals_total{reason="budget_spent"} 1.0',
        'fedward_silo_round{study="0123456789ab"} 3.0',
        'fedward_silo_study_epsilon_spent{study="0123456789ab"} 1.25',
        'fedward_silo_tensor_epsilon_left{study="0123456789ab",tensor="heads"} 0.75',
        "fedward_silo_epsilon_spent 1.5",
        'fedward_silo_task_seconds_count{task="open"} 1.0',
        "fedward_silo_removals_total 1.0",
        "fedward_silo_connected 1.0",
        "fedward_silo_certificate_expires_timestamp_seconds 2e+09",
        "fedward_silo_revocation_lists_stale_timestamp_seconds 0.0",
    ):
        assert line in scraped.splitlines()


def test_two_agents_in_one_process_do_not_share_numbers():
    touched()
    assert AgentMetrics().registry.get_sample_value("fedward_silo_epsilon_spent") == 0


def test_the_age_of_the_last_verification_runs_on_a_clock_that_nobody_sets(monkeypatch):
    metrics, now = AgentMetrics(), [100.0]
    monkeypatch.setattr("silo_agent.metrics.monotonic", lambda: now[0])

    def age():
        return metrics.registry.get_sample_value("fedward_silo_ledger_verification_age_seconds")

    assert age() == float("inf")
    metrics.verified()
    now[0] += 60
    assert age() == 60
    metrics.verified()
    assert age() == 0
