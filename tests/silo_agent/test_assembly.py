import signal

import numpy as np
import pytest

from policies.errors import LedgerMissingError
from policies.ledger import Ledger
from protos.messages import Task, Work
from silo_agent import assembly
from silo_agent.assembly import run_agent
from silo_agent.client import Stopped
from silo_agent.config import AgentConfig
from support.local_coordinator import LocalCoordinator
from support.local_federation import write_patients
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study


@pytest.fixture(autouse=True)
def _own_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def config(quick_path, homes):
    write_yaml(quick_path / "policy.yaml", policy_document("ward"))
    write_patients(quick_path / "north.csv", np.random.default_rng(1), np.eye(2), patients=20)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", "policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv"}}
    (quick_path / "state").mkdir()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", data_set="ward", holdout=0.2, delta=1e-5)
    return AgentConfig.load(write_yaml(quick_path / "agent.yaml", {**document, **credential}))


@pytest.fixture
def coordinator(monkeypatch):
    """The agent under test talks to this instead of the network; each script entry is one piece of work."""
    coordinator = LocalCoordinator(tiny_study())
    client = coordinator.connect("north")
    client.heartbeat = client.close = lambda: None
    real = client.poll

    def poll():
        if not client.work:
            raise Stopped
        return real()

    client.poll = poll
    monkeypatch.setattr(assembly, "Client", lambda *_: client)
    return coordinator


def test_an_agent_from_its_configuration_takes_a_seat_with_its_certificates_name(config, coordinator):
    client = coordinator.clients["north"]
    client.work.extend([Work(Task.WAIT), Work(Task.DECIDE, coordinator.place(0))])
    assert run_agent(config) == []
    assert client.answers[0].member.silo == "north"


def test_a_study_that_the_configuration_gives_no_file_for_is_refused(config, coordinator):
    study = tiny_study(name="other")
    coordinator.canonical[study.digest] = study.canonical()
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, LocalCoordinator(study).place(0)))
    run_agent(config)
    assert client.answers[0].refusal == "no_data"


def test_it_ends_with_the_study_where_it_is_asked_to_and_lets_go_of_everything(config, coordinator):
    client = coordinator.clients["north"]
    for _ in range(2):
        client.work.append(Work(Task.FINISH, coordinator.place(0), why="enough", outcome="aborted"))
        (ended,) = run_agent(config, until_finished=True)
        assert ended[1] == "aborted: enough"
    with Ledger.open(config.state / "ledger.sqlite3", data_set="ward", holdout=0.2, budget_epsilon=4.0, delta=1e-5):
        pass


def test_a_wish_to_stop_is_heard(config, coordinator):
    client = coordinator.clients["north"]

    def poll():
        signal.raise_signal(signal.SIGTERM)
        return Work(Task.WAIT)

    client.poll = poll
    assert run_agent(config) == []


def test_without_a_ledger_nothing_starts(config, coordinator):
    (config.state / "ledger.sqlite3").unlink()
    with pytest.raises(LedgerMissingError):
        run_agent(config)
