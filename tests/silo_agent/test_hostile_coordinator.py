"""A coordinator that says anything, over real TLS: the agent and its threads live on, and do honest work afterwards."""

from __future__ import annotations

import collections
import itertools
import threading
from random import Random

import pytest
from structlog.testing import capture_logs

from crypto.errors import CryptoError
from policies.errors import LedgerError, LedgerRolledBackError
from policies.plan.release import plan
from protos.messages import MessageError, Place, Tensor, UploadHeader, Work
from protos.steps import Task
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight import polling as pollings
from silo_agent.oversight.polling import Answering, Polling
from silo_agent.protocol.calls import client as clients
from silo_agent.protocol.calls.client import CallRefused, Client, ContentError, Heartbeat
from silo_agent.protocol.ledgers import witnessing as witnesses
from silo_agent.protocol.ledgers.audit_log import AuditFollower
from silo_agent.protocol.ledgers.cosigning import Cosigning
from silo_agent.protocol.ledgers.witnessing import Witnessing
from silo_agent.storage.folders import StateFolder
from support.contents import digest_of, listed
from support.epochs import fresh_epochs
from support.hostile_coordinator import SERVICE, HostileCoordinator
from support.small_cohort import policy_of_today
from support.studies import tiny_study
from support.unjudged import BelievingWitness

NAMED = (CallRefused, ContentError, MessageError, CryptoError, LedgerError)
"""What a call may raise, whatever is answered."""
POLLED = policy_of_today("south-ward", polls=3)
IN_TASKS = {"Countersign", "Upload", "UploadStatus", "Download"}
"""What is called only in the middle of an attempt."""


@pytest.fixture(params=["local", "distributed"])
def recorded(request, federate):
    """A study up to the middle of its training, what "south" was asked, and what it was asked of rounds to come."""
    coordinator, silos = federate(tiny_study(privacy={"mode": request.param}))
    works, ask = [], coordinator.ask

    def recording(silo, work):
        if silo == "south":
            works.append(work)
        ask(silo, work)

    coordinator.ask = recording
    for number in range(2):
        coordinator.run_round(number)
    works += [Work(Task.DECIDE, coordinator.place(number, 1)) for number in range(plan(coordinator.study).last + 1)]
    return coordinator, silos, works


def hostile_to(recorded, hub, seed, polls):
    coordinator, silos, works = recorded
    after = tiny_study(name="after")
    coordinator.studies[after.digest] = after.canonical()
    last = Work(Task.DECIDE, Place(after.digest, 0, 1))
    return HostileCoordinator(coordinator, hub, works, Random(seed), polls, last, silos["north"].credential)  # noqa: S311


def live(recorded, hub, monkeypatch, tmp_path, *, seed, polls):
    """The silo's life with it, until it has answered an honest offer. Returns the coordinator and what was logged."""
    coordinator, silos, _ = recorded
    south, hostile = silos["south"], hostile_to(recorded, hub, seed, polls)
    monkeypatch.setattr(clients, "PAUSES", (0.001,))
    monkeypatch.setattr(witnesses, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(pollings, "PACE_SECONDS", 0.02)
    server, port = hostile.serve()
    stop = threading.Event()
    client = Client([f"localhost:{port}"], south.credential, "0" * 32, stop, lambda _: None, epochs=fresh_epochs())
    threads, ended = [], []
    try:
        coordinator.clients["south"] = client
        south.restart()
        south.agent._wait = lambda _: stop.wait(0.001)
        witnessing = Witnessing(client, BelievingWitness(tmp_path, south.credential), stop)
        following = AuditFollower(client, tmp_path / "audit-log.json", AgentMetrics())
        heartbeat = Heartbeat(client, 0.02, stop, following.look)
        folder = StateFolder(south.folder)
        answering = Answering(folder, south.credential.trust, "south")
        polling = Polling(client, answering, lambda: POLLED, stop)
        witnessing.start()
        heartbeat.start()
        polling.start()

        def run():
            try:
                south.agent.run(stop)
            except clients.AskedToStop:
                ended.append("stopped")
            except BaseException as fault:  # noqa: BLE001  # whatever it was, the test is to hear of it
                ended.append(repr(fault))

        with capture_logs() as said:
            agent = threading.Thread(target=run)
            agent.start()
            answered = hostile.answered.wait(300)
            threads = [thread.is_alive() for thread in (agent, witnessing._thread, heartbeat._thread, polling._thread)]
            stop.set()
            agent.join(60)
            witnessing.join()
        assert answered, (ended, said[-5:])
        assert threads == [True, True, True, True], ended
        assert ended in ([], ["stopped"])
    finally:
        stop.set()
        client.close()
        server.stop(None).wait()
    return hostile, said


def require_survived(hostile, said):
    assert hostile.seen >= {method.name for method in SERVICE.methods} - IN_TASKS
    assert hostile.changed > 30
    assert hostile.answers[-1].place.study == hostile.last.place.study
    assert all(len(str(value)) < 10_000 for line in said for value in line.values()), "nobody fills the log with a word"
    useless = [line["why"] for line in said if line["event"] == "the coordinator's answer is of no use"]
    assert all(one != following for one, following in itertools.pairwise(useless)), "each is said once"


def test_a_hostile_coordinator_ends_no_agent(recorded, hub, monkeypatch, tmp_path):
    require_survived(*live(recorded, hub, monkeypatch, tmp_path, seed=1, polls=60))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 5))
def test_a_coordinator_hostile_for_long_ends_no_agent(recorded, hub, monkeypatch, tmp_path, seed):
    require_survived(*live(recorded, hub, monkeypatch, tmp_path, seed=seed, polls=700))


@pytest.mark.parametrize("calls", [40, pytest.param(250, marks=pytest.mark.slow)])
def test_whatever_is_answered_a_call_raises_an_error_with_a_name(recorded, hub, monkeypatch, tmp_path, calls):
    """Those that an agent makes in the middle of an attempt, where every error is disputed by its name."""
    _, silos, works = recorded
    monkeypatch.setattr(clients, "PAUSES", (0.001,))
    hostile = hostile_to(recorded, hub, calls, 10**9)
    server, port = hostile.serve()
    client = Client(
        [f"localhost:{port}"],
        silos["south"].credential,
        "0" * 32,
        threading.Event(),
        lambda _: None,
        epochs=fresh_epochs(),
    )
    offered = [(work.place, work.tensor, part) for work in works for part in work.parts if work.place is not None]
    content, place, cosigning = b"sealed" * 40_000, works[0].place, Cosigning(client, silos["south"].gate)
    (tmp_path / "sealed").write_bytes(content)
    header = UploadHeader(place, "ckks", Tensor.COUNTS, "south", 9, len(content), digest_of(content))
    ends = collections.Counter()
    try:
        for number in range(calls):
            wanted, tensor, part = offered[number % len(offered)]
            for call in (
                lambda: client.download(wanted, tensor, [(part, tmp_path / "fetched")]),  # noqa: B023  # called at once
                lambda: client.upload(header, tmp_path / "sealed", listed(content)),
                lambda: cosigning.ask(place),
                cosigning.remember,
            ):
                try:
                    call()
                    ends["done"] += 1
                except NAMED as fault:
                    ends[type(fault).__name__] += 1
    finally:
        client.close()
        server.stop(None).wait()
    assert hostile.changed > calls / 2
    assert hostile.seen >= {*IN_TASKS, "LatestCountersignatures"}
    assert min(ends["done"], ends["CallRefused"], ends["ContentError"]) > 0
    assert silos["south"].gate.ledger.fault is None


def test_a_ledger_that_others_know_more_of_still_ends_the_start(federation):
    """What peers have signed is no word of the coordinator."""
    _, silos = federation
    north = silos["north"]

    def behind():
        msg = "older"
        raise LedgerRolledBackError(msg)

    north.agent._cosigning.remember = behind
    with pytest.raises(LedgerRolledBackError):
        north.agent.run(threading.Event())
