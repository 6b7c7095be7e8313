"""Silos that are away for long, coordinators that are paused and restarted: real processes.

The coordinator's clock moves on by a time limit when a test says so: a busy machine is late for nothing.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from deploy.local.processes import run
from policies.ledger.ledger import read_ledger
from protos.status import StudyStatus
from support import moving_clock
from support.moving_clock import LIMITS
from support.party_federation import SECONDS
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _moving_clock(monkeypatch):
    for name, value in moving_clock.PRELUDE.items():
        monkeypatch.setenv(name, value)


def jump(federation: Federation) -> None:
    """Every time limit passes at the coordinator."""
    moving_clock.jump(federation.processes[COORDINATOR].pid)


def let_time_pass(federation: Federation) -> None:
    """Wait until the coordinator's clock had two more turns, so that what a jump of time does is done."""
    after = turns(federation) + 2
    end = time.monotonic() + SECONDS
    while turns(federation) < after:
        assert time.monotonic() < end, "no time passes"
        time.sleep(0.02)


def turns(federation: Federation) -> float:
    """How many turns the coordinator's clock had."""
    url = f"http://127.0.0.1:{federation.metrics_port(COORDINATOR)}/metrics"
    with urllib.request.urlopen(url, timeout=300) as page:
        lines = page.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("fedward_coordinator_clock_turns_total "))


def build(folder: Path, **changes: object) -> Federation:
    document = study_document(**changes)
    document["privacy"] = {**document["privacy"], "colluders": 0}
    study = write_yaml(folder / "study.yaml", document)
    policy = policy_document(min_silos=2, noise_modes=["local"], colluders=0)
    federation = Federation(folder / "federation", study, write_sites(folder / "data"), yaml.safe_dump(policy))
    prepare(federation)
    return federation


def follow(federation: Federation, until: object) -> StudyStatus:
    end = time.monotonic() + SECONDS
    with federation.author() as author:
        while time.monotonic() < end:
            status = author.status(federation.study.digest)
            if until(status):  # type: ignore[operator]  # a test's condition
                return status
            time.sleep(0.05)
    pytest.fail(f"not reached: {status}\n" + "\n".join(map(federation.log_tail, SILOS)))


def without(federation: Federation, silo: str, until: Callable[[StudyStatus], bool]) -> StudyStatus:
    """Let the limit pass of every phase that waits for this silo alone; in which one it fell is chance."""
    passed: set[tuple[int, str]] = set()

    def look(status: StudyStatus) -> bool:
        stand = (status.attempt, status.phase)
        if status.state == "running" and status.waiting_for == (silo,) and stand not in passed:
            passed.add(stand)
            jump(federation)
        return until(status)

    return follow(federation, look)


def kill(federation: Federation, party: str) -> None:
    process = federation.processes.pop(party)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def start_coordinator_again(federation: Federation) -> None:
    file = federation.place.party(COORDINATOR) / "coordinator.yaml"
    write_yaml(file, {**yaml.safe_load(file.read_text()), "port": federation.port})
    federation.log(COORDINATOR).unlink()
    federation.start_coordinator()


def ended(status: StudyStatus) -> bool:
    return status.state in ("finished", "ended", "aborted")


def joined(federation: Federation) -> set[str]:
    """Silos that have called the coordinator since it began."""
    lines = federation.log(COORDINATOR).read_text().splitlines()
    entries = [json.loads(line) for line in lines if line[:1] == "{"]
    return {entry["silo"] for entry in entries if entry["event"] == "joined"}


def away(status: StudyStatus) -> set[str]:
    return {member.silo for member in status.members if member.state == "away"}


def charged(federation: Federation, silo: str) -> list[tuple[int, str]]:
    _, entries = read_ledger(federation.place.party(silo) / "state" / "ledger.sqlite3")
    return [(entry.debit.round, tensor) for entry in entries for tensor in entry.debit.costs]


def the_same_model(federation: Federation) -> None:
    name = f"model-{federation.study.rounds}.safetensors"
    assert len({(federation.state(silo) / name).read_bytes() for silo in SILOS}) == 1


def test_a_silo_that_was_away_for_rounds_comes_back_and_catches_up(tmp_path):
    heads = {"pooled_rounds": 1, "domain_rounds": 6, "pooled_noise": 12.0, "domain_noise": 12.0}
    federation = build(tmp_path, min_silos=2, deadlines=LIMITS, heads=heads)
    with federation:
        federation.begin()
        follow(federation, lambda status: status.round == 1)
        kill(federation, "south")
        missed = without(federation, "south", lambda status: status.round >= 3 or ended(status))
        assert not ended(missed), missed.why
        assert away(missed) == {"south"}
        with federation.author() as author:
            # Six short rounds might be over before a process has started.
            author.pause(federation.study.digest)
            federation.start_silo("south")
            follow(federation, lambda status: not away(status))
            author.resume(federation.study.digest)
        status = follow(federation, ended)
        assert status.state == "finished", status.why
        assert {member.state for member in status.members} == {"active"}
        federation.wait_for_silos()
    the_same_model(federation)
    assert any(t.phase == "catch_up" for t in status.times)
    rounds = {silo: {number for number, _ in charged(federation, silo)} for silo in SILOS}
    assert rounds["north"] == rounds["west"] == set(range(9))
    assert rounds["south"] < set(range(9)), "what it missed it is not charged"
    assert len(charged(federation, "south")) == len(set(charged(federation, "south")))


@pytest.mark.campaign
def test_too_few_silos_make_a_study_wait_and_not_end(tmp_path):
    federation = build(tmp_path, min_silos=3, deadlines=LIMITS)
    with federation:
        federation.begin()
        follow(federation, lambda status: status.round == 1)
        kill(federation, "south")
        waiting = without(federation, "south", lambda status: status.state == "waiting" or ended(status))
        assert waiting.state == "waiting", waiting.why
        assert "south" in waiting.why
        jump(federation)
        let_time_pass(federation)
        assert follow(federation, lambda _: True).attempt == waiting.attempt, "waiting uses up no attempt"
        federation.start_silo("south")
        status = follow(federation, ended)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
    the_same_model(federation)


def test_a_paused_study_stands_still_also_over_a_restart_of_everybody(tmp_path):
    federation = build(tmp_path, min_silos=3, deadlines=LIMITS)
    with federation:
        operator = ("-o", federation.place.author_file)
        federation.begin()
        follow(federation, lambda status: status.round == 1)
        run("fedward-coordinator", "study", "pause", federation.study.digest, *operator)
        paused = follow(federation, lambda status: status.state == "paused")
        jump(federation)
        for party in (COORDINATOR, *SILOS):
            kill(federation, party)
        start_coordinator_again(federation)
        for silo in SILOS:
            federation.start_silo(silo)
        operator = ("-o", federation.place.author_file)
        follow(federation, lambda _: len(joined(federation)) == len(SILOS))
        jump(federation)
        let_time_pass(federation)
        still = follow(federation, lambda _: True)
        assert (still.state, still.round, still.attempt) == ("paused", paused.round, paused.attempt)
        run("fedward-coordinator", "study", "resume", federation.study.digest, *operator)
        status = follow(federation, ended)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
    the_same_model(federation)
    assert {t.attempt for t in status.times} == {1}
    for silo in SILOS:
        assert len(charged(federation, silo)) == len(set(charged(federation, silo)))
