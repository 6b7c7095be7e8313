import contextlib
import csv
import signal
import socket
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import numpy as np
import pytest
from typer.testing import CliRunner

from policies.documents.policy import load_policy
from policies.errors import LedgerMissingError
from policies.ledger.ledger import Ledger
from policies.refusals import Refused
from protos.messages import Place, Work
from protos.steps import Task
from silo_agent import assembly
from silo_agent.assembly import run_agent
from silo_agent.cli import main
from silo_agent.config import AgentConfig, SqlSource
from silo_agent.data.reader import read_records
from silo_agent.data.table import Written
from silo_agent.gate import Gate
from silo_agent.learning.personal.process import Job
from silo_agent.protocol.calls.client import AskedToStop
from silo_agent.protocol.ledgers.witnessing import Witness
from silo_agent.storage.approvals import approvals, approve, made, withdraw
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import keep, offered
from silo_agent.storage.retention import today
from silo_agent.storage.state import Ending, State
from support.ledgers import NORTH
from support.local_coordinator import LocalCoordinator
from support.local_federation import write_patients
from support.people import author_in
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _own_signals():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def config(quick_path, homes):
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    write_patients(quick_path / "north.csv", np.random.default_rng(1), np.eye(2), patients=20)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", "policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv"}}
    (quick_path / "state").mkdir()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", NORTH)
    approve(StateFolder(quick_path / "state"), tiny_study(), made(tiny_study(), "tiny", NOW))
    return AgentConfig.load(write_yaml(quick_path / "agent.yaml", {**document, **credential}))


@pytest.fixture
def coordinator(monkeypatch, authority):
    """The agent under test talks to this instead of the network; each script entry is one piece of work."""
    coordinator = LocalCoordinator(tiny_study(), author=author_in(authority))
    client = coordinator.connect("north")
    client.heartbeat = client.close = lambda: None
    real = client.poll

    def poll():
        if not client.work:
            raise AskedToStop
        return real()

    client.poll = poll
    monkeypatch.setattr(assembly, "Client", lambda *_, **__: client)
    return coordinator


def test_an_agent_from_its_configuration_takes_a_seat_with_its_certificates_name(config, coordinator):
    client = coordinator.clients["north"]
    client.work.extend([Work(Task.WAIT), Work(Task.DECIDE, coordinator.place(0))])
    assert run_agent(config) == []
    assert client.answers[0].member.silo == "north"


def test_a_study_that_the_configuration_gives_no_file_for_is_refused(config, coordinator):
    study = tiny_study(name="other")
    coordinator.studies[study.digest] = study.canonical()
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, LocalCoordinator(study).place(0)))
    run_agent(config)
    assert client.answers[0].refusal == "no_data"


def test_one_missing_file_stops_that_study_and_nothing_else(config, coordinator, quick_path):
    other = tiny_study(name="other")
    coordinator.studies[other.digest] = other.canonical()
    both = config.model_copy(update={"data": {**config.data, "other": quick_path / "gone.csv"}})
    client = coordinator.clients["north"]
    approve(StateFolder(config.state), other, made(other, "other", NOW))
    client.work.extend([Work(Task.DECIDE, LocalCoordinator(other).place(0)), Work(Task.DECIDE, coordinator.place(0))])
    run_agent(both)
    refused, seated = client.answers
    assert (refused.refusal, refused.explanation) == ("no_data", "this silo has no data for the study")
    assert seated.member.silo == "north"


def test_a_study_goes_on_with_the_rows_that_it_began_with_after_its_file_is_gone(config, coordinator, quick_path):
    client, place = coordinator.clients["north"], coordinator.place(0)
    client.work.append(Work(Task.DECIDE, place))
    run_agent(config)
    (quick_path / "north.csv").unlink()
    client.work.append(Work(Task.DECIDE, Place(place.study, 0, 2)))
    run_agent(config)
    assert [(answer.refusal, answer.member.silo) for answer in client.answers] == [("", "north"), ("", "north")]


def test_a_running_agent_reads_nothing_of_whoever_withdraws(config, coordinator, monkeypatch):
    """As the command does it, in a process of its own, while the agent waits for work; and after a restart."""
    client, place, made = coordinator.clients["north"], coordinator.place(0), []
    real, poll, seen = assembly.Learner, client.poll, []
    monkeypatch.setattr(assembly, "Learner", lambda *given, **named: made.append(real(*given, **named)) or made[-1])

    def people():
        return {name for cohort in ("training", "evaluation") for name in made[-1].cohort(cohort).identities}

    def withdrawing():
        if made:
            seen.append(people())
            gone = sorted(seen[-1])[0 if len(seen) % 2 else -1]
            command = ["data", "withdraw", gone, "-c", str(config.policy.parent / "agent.yaml")]
            assert CliRunner().invoke(main.app, command).exit_code == 0
            assert people() == seen[-1] - {gone}
            seen.append(people())
        return poll()

    client.poll = withdrawing
    for attempts in ((1, 2), (3,)):
        made.clear()
        client.work.extend(Work(Task.DECIDE, Place(place.study, 0, attempt)) for attempt in attempts)
        run_agent(config)
    assert [len(one) for one in seen] == [20, 19, 19, 18, 18, 17]


def test_an_agent_that_cannot_tell_who_has_withdrawn_does_not_start(config, coordinator):
    StateFolder(config.state).withdrawn.write_bytes(b"sealed by another key")
    with pytest.raises(StateError, match="enter every withdrawal again"):
        run_agent(config)
    assert not coordinator.clients["north"].answers


def test_a_study_begins_once_somebody_approves_its_text_and_never_by_its_name(config, coordinator):
    """Its name is that of an approved study, and that of data in agent.yaml."""
    study = tiny_study(purpose="Another study of the same name.")
    coordinator.studies[study.digest] = study.canonical()
    client, place = coordinator.clients["north"], LocalCoordinator(study).place(0)
    client.work.append(Work(Task.DECIDE, place))
    run_agent(config)
    folder = StateFolder(config.state)
    assert [one.digest for one in offered(folder)] == [study.digest]
    approve(folder, study, made(study, "tiny", NOW))
    client.work.append(Work(Task.DECIDE, place))
    run_agent(config)
    refused, seated = client.answers
    assert (refused.refusal, refused.explanation) == ("no_data", "this silo has no data for the study")
    assert (seated.refusal, seated.member.silo) == ("", "north")


def test_the_text_of_a_study_that_the_policy_refuses_is_kept_for_people(config, coordinator):
    study = tiny_study(name="greedy", silos=["south", "west", "east"])
    coordinator.studies[study.digest] = study.canonical()
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, LocalCoordinator(study).place(0)))
    run_agent(config)
    assert client.answers[0].refusal == "not_invited"
    assert [one.digest for one in offered(StateFolder(config.state))] == [study.digest]


def test_a_running_agent_sees_that_an_approval_was_taken_back(config, coordinator):
    """At the next offer; test_gate.py shows it for the next charge."""
    client, place, folder = coordinator.clients["north"], coordinator.place(0), StateFolder(config.state)
    poll = client.poll

    def later():
        if len(client.answers) == 1:
            withdraw(folder, {place.study: "tiny"}, NOW)
        if len(client.answers) == 2:
            approve(folder, tiny_study(), made(tiny_study(), "tiny", datetime.now(UTC)))
        return poll()

    client.poll = later
    client.work.extend(Work(Task.DECIDE, Place(place.study, 0, attempt)) for attempt in (1, 2, 3))
    run_agent(config)
    assert [answer.refusal for answer in client.answers] == ["", "no_data", ""]


def test_the_gate_of_an_agent_asks_the_list_of_approvals_before_a_charge(config, coordinator, monkeypatch):
    made = []
    monkeypatch.setattr(assembly, "Gate", lambda *args, **named: made.append(named) or Gate(*args, **named))
    run_agent(config)
    policy, (named,) = load_policy(config.policy), made
    named["require_approved"](tiny_study(), policy)
    withdraw(StateFolder(config.state), {tiny_study().digest: "tiny"}, NOW)
    with pytest.raises(Refused, match="not_approved"):
        named["require_approved"](tiny_study(), policy)


def test_other_silos_ledgers_are_judged_by_the_studies_that_this_one_knows(config, coordinator, monkeypatch):
    made = []
    monkeypatch.setattr(assembly, "Witness", lambda *args: made.append(args) or Witness(*args))
    coordinator.clients["north"].work.append(Work(Task.DECIDE, coordinator.place(0)))
    run_agent(config)
    (state, _, known), study = made[0], coordinator.study
    assert (state, known.studies_of("south")) == (config.state, ([study], []))


def test_a_study_that_version_06_began_goes_on_and_a_name_that_it_approved_gives_nothing(config, coordinator):
    folder, later = StateFolder(config.state), tiny_study(name="later")
    folder.approvals.write_text('{"later": "tiny"}')
    state = State(config.state)
    state.add_study(coordinator.study.digest, coordinator.study.canonical())
    state.close()
    coordinator.studies[later.digest] = later.canonical()
    client = coordinator.clients["north"]
    client.work.extend([Work(Task.DECIDE, coordinator.place(0)), Work(Task.DECIDE, LocalCoordinator(later).place(0))])
    run_agent(config)
    assert [answer.refusal for answer in client.answers] == ["", "no_data"]
    assert dict(approvals(folder).unbound) == {"later": "tiny"}


def test_an_agent_whose_list_of_approvals_is_gone_does_not_start(config, coordinator):
    run_agent(config)
    folder, study = StateFolder(config.state), tiny_study(name="other")
    keep(folder, study, NOW)
    folder.approvals.unlink()
    with pytest.raises(StateError, match=r"approvals\.json is gone"):
        run_agent(config)


def test_a_study_whose_records_cannot_be_reached_waits_and_begins_once_they_can(config, coordinator, quick_path):
    """Also in the same process: an export that is not written yet, a database that is down."""
    folder = quick_path / "export"
    folder.mkdir()
    away = SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1")
    client, place, name = coordinator.clients["north"], coordinator.place(0), coordinator.study.name
    client.work.append(Work(Task.DECIDE, place))
    run_agent(config.model_copy(update={"data": {}, "databases": {name: away}}))
    poll = client.poll

    def later():
        if len(client.answers) == 2:
            (quick_path / "north.csv").rename(folder / "north.csv")
        return poll()

    client.poll = later
    client.work.extend([Work(Task.DECIDE, place), Work(Task.DECIDE, place)])
    run_agent(config.model_copy(update={"data": {name: folder}}))
    assert [answer.refusal for answer in client.answers] == ["no_data", "no_data", ""]


@pytest.mark.parametrize("named", [True, False])
def test_a_study_ends_although_its_data_are_gone(config, coordinator, quick_path, named):
    """Also if agent.yaml no longer names them. The agent that recalls the study goes on."""
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, coordinator.place(0)))
    run_agent(config)
    assert client.answers[0].member.silo == "north"
    (quick_path / "north.csv").unlink()
    without = config if named else config.model_copy(update={"data": {"other": quick_path / "other.csv"}})
    client.work.append(Work(Task.FINISH, coordinator.place(0), why="all rounds", outcome="finished"))
    assert [why for _, why in run_agent(without, until_finished=True)] == ["finished: all rounds"]


def test_the_learner_and_the_personal_model_read_the_same_database(config, coordinator, quick_path, monkeypatch):
    with closing(sqlite3.connect(quick_path / "ward.sqlite3")) as database:
        database.execute("CREATE TABLE ill (patient, 'group', age, lactate, ill)")
        rows = list(csv.reader((quick_path / "north.csv").open(encoding="utf-8")))[1:]
        database.executemany("INSERT INTO ill VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    source = SqlSource(url=f"sqlite:///{quick_path}/ward.sqlite3", statement="SELECT * FROM ill")
    told = []
    monkeypatch.setattr(assembly, "PersonalStarter", lambda job: told.append(job(tiny_study())) or Mock())
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, coordinator.place(0)))
    run_agent(config.model_copy(update={"data": {}, "databases": {"tiny": source}}))
    assert client.answers[0].member.silo == "north"
    (job,) = told
    assert Job.parse(job.text()) == replace(job, key=None), "its key stands in no argument"
    assert job.told() == job.key.hex().encode() + b"\n"
    assert job.data_set.source == source
    read = read_records(source, tiny_study().data).whole()
    from_file = read_records(quick_path / "north.csv", tiny_study().data).whole()
    assert np.array_equal(read.inputs, from_file.inputs)
    assert np.array_equal(read.labels, from_file.labels)


def test_it_reads_the_file_as_its_policy_says(config, coordinator, monkeypatch):
    """The learner of heads and the process of the personal model are told alike."""
    document = policy_document("north-ward") | {"version": 4}
    data_set = {**document["data_set"], "file": {"delimiter": ",", "columns": []}}
    limits = {**document["limits"], "memory_mib": 64}
    spelling = {"missing": ["?"], "codes": {"group": {"A": "a"}}}
    write_yaml(config.policy, document | {"data_set": data_set, "limits": limits, "spelling": spelling})
    told = []
    monkeypatch.setattr(assembly, "PersonalStarter", lambda job: told.append(job(tiny_study())) or Mock())
    real = assembly.Learner
    monkeypatch.setattr(assembly, "Learner", lambda *given, **named: told.append(given[1]) or real(*given, **named))
    client = coordinator.clients["north"]
    client.work.append(Work(Task.DECIDE, coordinator.place(0)))
    run_agent(config)
    assert client.answers[0].member is not None
    job, of_learner = told
    assert job.data_set == of_learner
    assert of_learner.written == Written(",", (), ("?",), {"group": {"A": "a"}})


def test_it_ends_with_the_study_where_it_is_asked_to_and_lets_go_of_everything(config, coordinator):
    client = coordinator.clients["north"]
    for _ in range(2):
        client.work.append(Work(Task.FINISH, coordinator.place(0), why="enough", outcome="aborted"))
        (ended,) = run_agent(config, until_finished=True)
        assert ended[1] == "aborted: enough"
    with Ledger.open(config.state / "ledger.sqlite3", NORTH, budget_epsilon=4.0):
        pass


def test_a_wish_to_stop_is_heard(config, coordinator):
    client = coordinator.clients["north"]

    def poll():
        signal.raise_signal(signal.SIGTERM)
        return Work(Task.WAIT)

    client.poll = poll
    assert run_agent(config) == []


def test_systemd_hears_that_the_agent_has_started_and_stops(config, coordinator, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert run_agent(config) == []
        heard.setblocking(False)
        said = []
        with contextlib.suppress(BlockingIOError):
            while True:
                said.append(heard.recv(200))
        assert [one for one in said if not one.startswith(b"STATUS=")] == [b"READY=1", b"STOPPING=1"]
        assert any(one.startswith(b"STATUS=certificate until") for one in said)


def ended(config, *days):
    """Studies that ended so many days ago, each with a personal model; that they are over was noticed yesterday."""
    state, now = State(config.state), today()
    for number in days:
        study = f"{number:064x}"
        state.add_study(study, b"{}")
        state.finish(study, "finished: done", now - timedelta(number))
        state.keep_ending(Ending(study, now - timedelta(number), noticed=now - timedelta(1)))
        (state.study_folder(study) / "personal.safetensors").write_bytes(b"private")
    state.close()


def test_what_the_policy_in_force_does_not_keep_any_longer_is_gone_before_the_agent_speaks(config, coordinator):
    ended(config, 364, 366, 367)
    client = coordinator.clients["north"]
    join, seen = client.join, []

    def joined(version):
        seen.extend(path.parent.name for path in config.state.rglob("personal.safetensors"))
        return join(version)

    client.join = joined
    run_agent(config)
    assert seen == [f"{364:064x}"]


def test_the_daily_look_begins_with_the_agent_and_ends_with_it(config, coordinator, monkeypatch):
    ended(config, 367)
    looked = threading.Event()
    monkeypatch.setattr(assembly.Retention, "look", lambda _: looked.set())
    real = assembly.Retaining
    monkeypatch.setattr(assembly, "Retaining", lambda *parts: real(*parts, seconds=0.001))
    client = coordinator.clients["north"]

    def poll():
        looked.clear()
        assert looked.wait(300)
        raise AskedToStop

    client.poll = poll
    run_agent(config)
    assert "retention" not in {thread.name for thread in threading.enumerate()}


def test_without_a_ledger_nothing_starts(config, coordinator):
    (config.state / "ledger.sqlite3").unlink()
    with pytest.raises(LedgerMissingError):
        run_agent(config)
