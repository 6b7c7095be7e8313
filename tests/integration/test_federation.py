"""Real processes, real gRPC over mutual TLS, real databases: whole studies, and what happens when a silo dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml

from coordinator.errors import OperatorError
from crypto.entropy import SystemEntropy
from crypto.pki.identity import Role
from crypto.pki.reading import parse_certificate
from deploy.demo.recount import recount
from deploy.local import parties
from deploy.local.federation import Federation
from deploy.local.parties import AUTHOR, COORDINATOR
from deploy.local.processes import script
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Debit, Ledger
from policies.plan.cost import Cost
from silo_agent.config import AgentConfig
from silo_agent.storage.opening import open_state
from support.online import Online
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml

SECONDS = 600


def build(folder, *, policy=None, personal=None, **study):
    """Without personal models, whose processes have to load all libraries, where a test is not about them."""
    study_file = write_yaml(folder / "study.yaml", study_document(personal=personal, **study))
    federation = Federation(
        folder / "federation", study_file, write_sites(folder / "data"), yaml.safe_dump(policy or policy_document())
    )
    prepare(federation)
    return federation


def follow(federation, until, seconds=SECONDS):
    """The status once `until` holds of it."""
    deadline = time.monotonic() + seconds
    with federation.author() as author:
        while time.monotonic() < deadline:
            status = author.status(federation.study.digest)
            if until(status):
                return status
            time.sleep(0.05)
    pytest.fail(f"not reached within {seconds} s: {status}\n" + "\n".join(map(federation.log_tail, SILOS)))


def over(status):
    return status.state in ("finished", "ended", "aborted")


def ledger(federation, silo):
    command = [script("fedward-silo"), "ledger", "show", "--format", "json", "-c", federation.config(silo)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def debits(statement):
    """Its entries, but for the policy that was put into force at the start."""
    return [entry for entry in statement["entries"] if entry["kind"] == "debit"]


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as reply:
        return reply.read().decode()


@pytest.mark.parametrize(
    "mode",
    [pytest.param("local", marks=pytest.mark.slow), pytest.param("distributed", marks=pytest.mark.as_installed)],
)
def test_a_study_runs_to_its_end(tmp_path, mode):
    privacy = {"delta": 1e-5, "mode": mode, "colluders": 1, "count_noise": 20.0, "max_patients": 1000}
    federation = build(tmp_path, privacy=privacy, personal={"epochs": 1})
    with federation:
        federation.begin()
        follow(federation, lambda status: status.round >= 1)
        logs = [json.loads(line) for line in federation.log("north").read_text().splitlines() if line[:1] == "{"]
        port = next(entry["metrics_port"] for entry in logs if entry["event"] == "agent starts")
        assert 0 < float(metric(scrape(port), "fedward_silo_epsilon_spent")) < 4
        status = follow(federation, over)
        assert status.state == "finished", status.why
        assert {member.state for member in status.members} == {"active"}
        coordinator = scrape(federation.metrics_port(COORDINATOR))
        assert metric(coordinator, 'fedward_coordinator_attempts_total{outcome="committed"}') == "5.0"
        federation.wait_for_silos()
    models = {(federation.state(silo) / "model-3.safetensors").read_bytes() for silo in SILOS}
    results = {(federation.state(silo) / "results.json").read_bytes() for silo in SILOS}
    assert len(models) == len(results) == 1
    for silo in SILOS:
        statement = ledger(federation, silo)
        counted = recount(federation.state(silo) / "training.jsonl", 1e-5)
        assert counted == pytest.approx(statement["spent"], rel=0.01)
        assert 0 < statement["spent"] <= 4
        assert (federation.state(silo) / "personal.safetensors").exists()
        assert (federation.state(silo) / "choice.safetensors").stat().st_mode & 0o777 == 0o600


def metric(text, name):
    return next(line.split()[-1] for line in text.splitlines() if line.startswith(name))


@pytest.mark.slow
def test_a_silo_that_dies_goes_on_in_the_same_attempt(tmp_path):
    federation = build(tmp_path)
    with federation:
        federation.begin()
        follow(federation, lambda status: status.round == 1)
        kill_within_an_attempt(federation, "south")
        federation.start_silo("south")
        status = follow(federation, over)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
    assert {time.attempt for time in status.times} == {1}
    spent = {silo: ledger(federation, silo) for silo in SILOS}
    for statement in spent.values():
        charged = [(e["round"], tensor) for e in debits(statement) for tensor in e["costs"]]
        assert len(charged) == len(set(charged)), "a silo that was killed is not charged again"
    models = {(federation.state(silo) / "model-3.safetensors").read_bytes() for silo in SILOS}
    assert len(models) == 1


def kill_within_an_attempt(federation, silo):
    """Kill an agent while the others wait for it and after it has taken its seat."""
    process = federation.processes[silo]
    for _ in range(500):
        os.kill(process.pid, signal.SIGSTOP)
        status = follow(federation, lambda status: status.waiting_for == (silo,) or over(status))
        assert not over(status), "the study was over before the silo could be stopped"
        if status.phase != "offer":
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            return
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.1)
    pytest.fail(f"{silo} was always stopped in an offer")


@pytest.mark.slow
def test_a_study_that_asks_more_than_the_policy_allows_is_refused_by_name(tmp_path):
    small = policy_document()
    small["budget"] = {**small["budget"], "epsilon": 0.3}
    small["limits"] = {**small["limits"], "study_epsilon": 0.3}
    federation = build(tmp_path, policy=small)
    with federation:
        federation.begin()
        status = follow(federation, over)
        federation.wait_for_silos()
    assert status.state == "ended"
    assert {member.why.split(":")[0] for member in status.members} == {"epsilon_per_study"}
    assert "policy.limits.study_epsilon allows 0.3" in status.why
    assert ledger(federation, "north")["spent"] == 0


@pytest.mark.slow
def test_a_spent_budget_ends_one_silos_part_by_name_and_the_others_go_on(tmp_path):
    privacy = study_document()["privacy"] | {"colluders": 0}
    federation = build(tmp_path, policy=policy_document(min_silos=2, colluders=0), min_silos=2, privacy=privacy)
    federation.start_coordinator()
    try:
        federation.configure()
        # The agent was here before: a ledger that has charged anything is no first start.
        south = AgentConfig.load(federation.place.party("south") / "agent.yaml")
        open_state(south.state, south.credential(), SystemEntropy())[0].close()
        earlier = Debit("e" * 64, "d" * 64, 1, 1, {"heads": Cost("training", 1.0, 1.1, 1)})
        path = federation.place.party("south") / "state" / "ledger.sqlite3"
        with Ledger.open(
            path,
            Genesis(
                data_set="south",
                holdout=0.2,
                delta=1e-5,
                unit="patient",
                identified_by=("patient",),
                delimiter=",",
                columns=(),
            ),
            budget_epsilon=4.0,
        ) as spent:
            spent.charge(earlier)
        for silo in SILOS:
            federation.start_silo(silo)
        federation.begin()
        status = follow(federation, over)
        federation.wait_for_silos()
    finally:
        federation.stop()
    assert status.state == "finished", status.why
    whys = {member.silo: member.why for member in status.members}
    assert whys["south"].startswith("budget_spent: ")
    assert whys["north"] == whys["west"] == ""
    assert [entry["study"] for entry in debits(ledger(federation, "south"))] == ["e" * 64]
    assert "budget_spent" in federation.log("south").read_text()


@pytest.mark.slow
def test_a_file_that_lacks_a_column_is_the_hospitals_business_alone(tmp_path):
    federation = build(tmp_path)
    broken = federation.data["south"]
    header, *rows = broken.read_text().splitlines()
    last = header.split(",")[-1]
    broken.write_text("\n".join([header.removesuffix(last) + "elsewhere", *rows]) + "\n")
    with federation:
        federation.begin()
        status = follow(federation, over)
        federation.wait_for_silos()
    assert status.state == "ended"
    assert last not in status.why
    assert "south.csv" not in status.why
    log = federation.log("south").read_text()
    assert f"in '{last}'; fedward-silo data check says where" in log
    assert last not in federation.log(COORDINATOR).read_text()


@pytest.mark.slow
def test_a_record_that_does_not_fit_is_seen_inside_the_hospital_alone(tmp_path):
    federation = build(tmp_path)
    broken = federation.data["south"]
    lines = broken.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[3], "987.125", 1)
    broken.write_text("\n".join(lines) + "\n")
    with federation:
        federation.begin()
        status = follow(federation, over)
        federation.wait_for_silos()
    assert status.state == "finished", status.why
    assert {member.why for member in status.members} == {""}
    for party in (COORDINATOR, "south"):
        assert not [word for word in ("987.125", "row 4", "fit") if word in federation.log(party).read_text()]
    config = federation.place.party("south") / "agent.yaml"
    command = [script("fedward-silo"), "data", "check", federation.study_file, "-c", config]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("south.csv, row 4, column ")
    assert "found '987.125', expected a number in [" in done.stdout
    assert "and 1 would be left out" in done.stdout


@pytest.mark.slow
def test_an_author_of_another_authority_is_turned_away(tmp_path):
    ours, theirs = build(tmp_path / "ours"), replace(build(tmp_path / "theirs"), folder=tmp_path / "others")
    theirs.prepare()
    with ours:
        foreign = theirs.place.party(AUTHOR)
        config = json.loads((ours.place.party(AUTHOR) / "operator.yaml").read_text())
        write_yaml(foreign / "operator.yaml", config)
        command = [script("fedward-coordinator"), "study", "status", "-o", foreign / "operator.yaml"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "check that authority.pem is the same as the coordinator's" in done.stderr
        with ours.author() as author, pytest.raises(OperatorError, match=r"^0 studies match"):
            author.start("nothing")


ROLES = {COORDINATOR: Role.COORDINATOR, AUTHOR: Role.AUTHOR, **dict.fromkeys(SILOS, Role.SILO)}


@pytest.mark.slow
def test_a_study_goes_on_while_every_certificate_is_renewed_and_the_old_ones_are_revoked(tmp_path, monkeypatch):
    monkeypatch.setattr(parties, "LOOPBACK", "localhost")
    federation, online = build(tmp_path), Online(tmp_path / "online")
    for name, role in ROLES.items():
        home = federation.place.party(name)
        for path in (*home.glob("*.pem"), home / "request.csr"):
            path.unlink()
        online.enrol(role, name, home=home, data_set=name if role is Role.SILO else None)
    with federation:
        federation.begin()
        begun = follow(federation, lambda status: status.round >= 1)
        first = {name: certificate(federation, name) for name in ROLES}
        for name in ROLES:
            online.renew(federation.place.party(name))
        follow(federation, lambda status: status.round > begun.round or over(status))
        for old in first.values():
            online.authority.revoke(None, parse_certificate(old).serial_number, datetime.now(UTC), "renewed")
        for name in ROLES:
            online.bring_lists(federation.place.party(name))
        status = follow(federation, over)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
    assert {member.state for member in status.members} == {"active"}
    assert {time.attempt for time in status.times} == {1}, "no attempt was lost"
    for silo in SILOS:
        command = [script("fedward-silo"), "ledger", "verify", "-c", federation.config(silo)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def certificate(federation, name):
    return (federation.place.party(name) / "certificate.pem").read_bytes()
