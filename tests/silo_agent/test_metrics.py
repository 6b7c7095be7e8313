from prometheus_client import generate_latest

from silo_agent.metrics import Metrics

FORBIDDEN = ("norm", "loss", "auc", "patients", "weight", "path", "explanation")
LABELS = {"reason", "study", "task", "tensor", "kind", "le"}


def touched():
    metrics = Metrics()
    metrics.refusals.labels("budget_spent").inc()
    metrics.round.labels("heart").set(3)
    metrics.task_seconds.labels("open").observe(0.2)
    metrics.compute_seconds.labels("hessian").observe(0.2)
    metrics.sent.labels("ckks").inc(7)
    metrics.received.labels("sum").inc(7)
    metrics.disputes.labels("adopt").inc()
    metrics.epsilon_spent.set(1.5)
    metrics.connected.set(1)
    return metrics


def test_every_name_is_the_silos_and_every_label_is_known():
    families = list(touched().registry.collect())
    assert len(families) == 11
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
        'fedward_silo_round{study="heart"} 3.0',
        "fedward_silo_epsilon_spent 1.5",
        'fedward_silo_task_seconds_count{task="open"} 1.0',
        "fedward_silo_connected 1.0",
    ):
        assert line in scraped.splitlines()


def test_two_agents_in_one_process_do_not_share_numbers():
    touched()
    assert Metrics().registry.get_sample_value("fedward_silo_epsilon_spent") == 0
