"""How many studies ask a silo, by what becomes of them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from silo_agent.oversight.asking_figures import FRESH_SECONDS, AskingFigures, verdict
from silo_agent.storage import approvals, offered
from silo_agent.storage.approvals import Approval
from silo_agent.storage.offered import WAITS, Offered
from support.states import keyed
from support.studies import tiny_study

EXAM, OTHER = tiny_study(name="exam"), tiny_study(name="other")
NOW = datetime(2026, 11, 29, tzinfo=UTC)
NO_DATA, DELTA = (WAITS, "nobody lets it use data"), ("delta", "too large")
GIVEN, DECLINED = Approval("exam", "ward", ""), Approval("exam", None, "", declined=True)


@pytest.mark.parametrize(
    ("said", "decided", "expected"),
    [
        (None, None, "undecided"),
        ((), None, "allowed"),
        ((NO_DATA,), None, "waiting"),
        ((NO_DATA,), GIVEN, "no_data"),
        ((DELTA,), None, "refused"),
        ((NO_DATA, DELTA), None, "refused"),
        ((DELTA,), GIVEN, "refused"),
        (None, GIVEN, "allowed"),
        ((), GIVEN, "allowed"),
        ((NO_DATA,), DECLINED, "declined"),
        ((), Approval("exam", None, ""), "declined"),
    ],
)
def test_a_verdict_follows_from_the_policys_reasons_and_peoples_decision(said, decided, expected):
    assert verdict(Offered("exam", EXAM.digest, "", said=said), decided) == expected


@pytest.fixture
def state(tmp_path):
    opened = keyed(tmp_path / "state")
    yield opened
    opened.close()


class Monitor:
    def __init__(self, state):
        self.time, self.registry = 0.0, CollectorRegistry()
        self.registry.register(AskingFigures(state, lambda: self.time))

    def asking(self, verdict):
        return self.registry.get_sample_value("fedward_silo_studies_asking", {"verdict": verdict})

    def later(self):
        self.time += FRESH_SECONDS


def test_studies_are_counted_until_they_are_over(state):
    approvals.upgrade(state.files, {}, [], NOW)
    monitor = Monitor(state)
    assert [monitor.asking(one) for one in ("waiting", "allowed")] == [0, 0]
    for study in (EXAM, OTHER):
        offered.keep(state.files, study, NOW)
        offered.judged(state.files, study.digest, (NO_DATA,))
    assert monitor.asking("waiting") == 0, "the folder is not read at every scrape"
    monitor.later()
    assert monitor.asking("waiting") == 2
    approvals.approve(state.files, EXAM, approvals.made(EXAM, "ward", NOW))
    state.add_study(EXAM.digest, EXAM.canonical())
    (state.files.study(EXAM.digest).path).mkdir(parents=True, exist_ok=True)
    offered.judged(state.files, EXAM.digest, ())
    monitor.later()
    assert (monitor.asking("waiting"), monitor.asking("allowed")) == (1, 1)
    offered.judged(state.files, EXAM.digest, (NO_DATA,))
    monitor.later()
    assert (monitor.asking("no_data"), monitor.asking("allowed")) == (1, 0)
    state.finish(EXAM.digest, "finished: ", NOW.date())
    monitor.later()
    assert (monitor.asking("no_data"), monitor.asking("allowed"), monitor.asking("waiting")) == (0, 0, 1)


def test_what_cannot_be_read_leaves_its_own_metric_out(state):
    state.files.approvals.write_bytes(b"{")
    monitor = Monitor(state)
    assert monitor.asking("waiting") is None
    assert monitor.registry.get_sample_value("fedward_silo_state_free_bytes") > 0


def test_a_scrape_does_not_wait_for_a_state_that_is_locked(state, monkeypatch):
    monitor, go_on = Monitor(state), threading.Event()
    approvals.upgrade(state.files, {}, [], NOW)
    assert monitor.asking("waiting") == 0
    monkeypatch.setattr(state, "studies", lambda: go_on.wait(60) and [])
    offered.keep(state.files, EXAM, NOW)
    offered.judged(state.files, EXAM.digest, (NO_DATA,))
    monkeypatch.setattr("silo_agent.oversight.asking_figures.PATIENCE_SECONDS", 0.01)
    monitor.later()
    assert monitor.asking("waiting") == 0, "the figures of before"
    threads = threading.active_count()
    monitor.later()
    assert monitor.asking("waiting") == 0
    assert threading.active_count() == threads, "one looks at a time"
    go_on.set()
    while any(one.name == "figures" for one in threading.enumerate()):
        pass
    assert monitor.asking("waiting") == 1
