"""A real Prometheus scrapes a coordinator, agents and an authority: every metric arrives, every alert fires once.

The faults are real ones: programs are killed, databases locked, disks small, certificates short, callers strangers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.errors import OperatorError
from crypto.pki.authority import root
from crypto.pki.authority.asking import PASSPHRASE_VARIABLE
from crypto.pki.certificates import Credential
from deploy.local.federation import Federation
from deploy.local.parties import AUTHOR, COORDINATOR, configure_coordinator
from deploy.local.processes import run
from deploy.monitoring.dashboards import ALL
from policies.documents.policy import load_policy
from policies.ledger.events import Fault
from protos.messages import Place
from protos.tracing import ids_of
from silo_agent.gate import open_ledger
from silo_agent.storage import approvals
from silo_agent.storage.folders import StateFolder
from support import prometheus
from support.collector import Collector
from support.online import Online
from support.small_cohort import policy_document, study_document, write_sites, write_yaml

pytestmark = [pytest.mark.slow, prometheus.needed]
ROOT = Path(__file__).parents[2]
SECONDS = 600
WAITS, RANGES = 1200.0, 20.0
SILOS = NORTH, SOUTH, WEST, EAST = ("north", "south", "west", "east")
OPERATOR = "operator"
BRIEF = study_document(
    silos=[NORTH, WEST, EAST],
    personal=None,
    deadlines={"offer": 5, "keys": 600, "train": 600, "open": 600, "solve": 600},
    max_attempts=9,
)
LITTLE = 2.1
"""Epsilon of south's whole budget, of which the first study takes nine tenths and more. It is in no other."""


class Watched:
    """A federation whose processes a Prometheus scrapes. Its agents go on when a study is over."""

    def __init__(self, folder, disks):
        self.folder, self.disks = folder, disks
        study = write_yaml(folder / "study.yaml", study_document(silos=list(SILOS), personal=None, max_attempts=9))
        budget, limits = (policy_document()[name] for name in ("budget", "limits"))
        little = policy_document(
            budget={**budget, "epsilon": LITTLE}, limits={**limits, "study_epsilon": LITTLE, "round_epsilon": LITTLE}
        )
        large = policy_document(budget={**budget, "epsilon": 20.0})
        policies = {silo: yaml.safe_dump(little if silo == SOUTH else large) for silo in SILOS}
        sites = write_sites(folder / "data", silos=SILOS)
        self.federation = Federation(folder / "federation", study, sites, policies)
        self.ports, self.asking, self.collector = {}, None, None

    @property
    def place(self):
        return self.federation.place

    @property
    def database(self):
        return self.place.party(COORDINATOR) / "data" / "coordinator.sqlite3"

    def prepare(self):
        self.federation.prepare()
        secret = {PASSPHRASE_VARIABLE: self.federation._passphrase}
        home = self.place.party(OPERATOR)
        run("fedward-coordinator", "enrol", home, "--role", "operator", "--name", OPERATOR)
        self._sign(home, "operator", OPERATOR, secret)
        (home / "authority.pem").write_bytes((self.place.authority / "authority.pem").read_bytes())
        # West's certificate ends soon, and south's lists are stale soon.
        west = self.place.party(WEST)
        (west / "certificate.pem").unlink()
        self._sign(west, "silo", WEST, secret, "--days", "1", "--data-set", self.federation.policy_of(WEST).data_set.id)
        lists = root.publish(self.place.authority, 0.3, passphrase=self.federation._passphrase.encode())
        (self.place.party(SOUTH) / "crls.pem").write_bytes(lists)
        configure_coordinator(self.place)
        document = yaml.safe_load(self.place.coordinator_file.read_text())
        changes = {"spool": str(self.disks / "spool"), "traces": self.collector.url}
        write_yaml(self.place.coordinator_file, {**document, **changes})

    def _sign(self, home, role, name, secret, *words):
        given = ("--role", role, "--name", name, "--out", home / "certificate.pem")
        run("fedward-authority", "sign", self.place.authority, home / "request.csr", *given, *words, env=secret)

    def start(self):
        self.federation.start_coordinator()
        self.federation.configure()
        state = self.place.state(NORTH)
        shutil.move(state, self.disks / "state")
        state.symlink_to(self.disks / "state")
        document = yaml.safe_load(self.place.author_file.read_text())
        write_yaml(self.place.party(OPERATOR) / "operator.yaml", document)
        for silo in SILOS:
            file = self.federation.config(silo)
            write_yaml(file, {**yaml.safe_load(file.read_text()), "traces": self.collector.url})
            self.start_silo(silo)
        self.ports[COORDINATOR] = self.federation.metrics_port(COORDINATOR)

    def start_silo(self, silo):
        log = self.federation.log(silo)
        log.unlink(missing_ok=True)
        self.federation.parties.start(silo, log, "fedward-silo", "run", "-c", self.federation.config(silo), threads=1)
        self.ports[silo] = self.federation.metrics_port(silo)

    def kill(self, name):
        process = self.federation.processes.pop(name)
        process.kill()
        process.wait()

    def targets(self):
        return {
            "fedward-coordinator": [f"127.0.0.1:{self.ports[COORDINATOR]}"],
            "fedward-silo": [f"127.0.0.1:{self.ports[silo]}" for silo in SILOS],
            "fedward-authority": [f"127.0.0.1:{self.ports['authority']}"],
        }

    @contextlib.contextmanager
    def as_person(self, name):
        client = CoordinatorClient(OperatorConfig.load(self.place.party(name) / "operator.yaml"))
        try:
            yield client
        finally:
            client.close()

    def begin(self, study, name):
        """Create and start a further study, which nobody has approved yet."""
        file = write_yaml(self.folder / f"{name}.yaml", {**study, "name": name})
        author = ("-o", self.place.author_file)
        run("fedward-coordinator", "study", "create", file, *author)
        run("fedward-coordinator", "study", "start", name, *author)
        return dataclasses.replace(self.federation, study_file=file).study

    def status(self, study):
        with self.federation.author() as author:
            return author.status(study.digest)

    def approve(self, silo, study, data):
        folder = StateFolder(self.place.state(silo))
        approvals.approve(folder, study, approvals.made(study, data, datetime.now(UTC)))

    def stop(self):
        self.federation.stop()


@contextlib.contextmanager
def small_disk(folder):
    """A small file system of its own, as a real full disk is; without the right to mount one, the test is skipped."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m,mode=0700", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def serving_authority(folder):
    """The issuing authority as a process, whose root's list ends soon; gives its port of metrics."""
    online = Online(folder)
    online.publish(days=9)
    program = Path(sys.executable).parent / "fedward-authority"
    process = subprocess.Popen(
        [
            program,
            "serve",
            online.issuing,
            "--host",
            "localhost",
            "--listen",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
        ],
        env={**os.environ, PASSPHRASE_VARIABLE: ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield json.loads(process.stderr.readline())["metrics_port"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@contextlib.contextmanager
def locked(database):
    """Another program holds a SQLite database."""
    with contextlib.closing(sqlite3.connect(database, timeout=120, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


class Noted:
    """All alerts that have fired so far, looked at by a thread."""

    def __init__(self, monitor):
        self._monitor, self.seen, self._stop = monitor, set(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        while not self._stop.wait(0.5):
            with contextlib.suppress(OSError):
                self.seen |= self._monitor.firing()

    def until(self, *names):
        end = time.monotonic() + SECONDS
        while not set(names) <= self.seen:
            assert time.monotonic() < end, f"{set(names) - self.seen} did not fire; {sorted(self.seen)} did"
            time.sleep(0.2)

    def close(self):
        self._stop.set()
        self._thread.join()


def until(condition, what):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def spoil(spool, stop):
    """A disk that changes bytes: every sum in the spool is another one than was added."""
    spoilt = set()
    while not stop.wait(0.02):
        for path in spool.rglob("_sum.sealed"):
            if path not in spoilt:
                with contextlib.suppress(OSError), path.open("r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    last = file.read(1)
                    file.seek(-1, os.SEEK_END)
                    file.write(bytes([last[0] ^ 1]))
                    spoilt.add(path)


def metrics_of_the_page():
    page = (ROOT / "docs" / "metrics.md").read_text()
    return [line.split("`")[1] for line in page.splitlines() if line.startswith("| `fedward_")]


def a_study_runs_and_what_is_short_small_or_old_is_told(watched, monitor, noted):
    watched.federation.begin()
    study = watched.federation.study
    until(lambda: watched.status(study).state == "finished", "the study did not end")
    exposed = monitor.get("metadata")
    for name in metrics_of_the_page():
        assert name.removesuffix("_total") in exposed or name in exposed, name
    for program in ("coordinator", "silo", "authority"):
        assert monitor.query(f"fedward_{program}_build_info")
        assert monitor.query(f'process_resident_memory_bytes{{job="fedward-{program}"}}')
    for dashboard in ALL:
        for query in dashboard.queries:
            monitor.query(query.replace("$study", ".*"))
    noted.until("FedwardSpoolFull", "FedwardStateDiskFull", "FedwardCertificateEnds", "FedwardListsStale")
    noted.until("FedwardAuthorityConcerns", "FedwardBudgetLow")


def its_rounds_are_traces_of_everybody(watched, _monitor, _noted):
    study = watched.federation.study
    place = Place(study.digest, 1, 1)
    trace, top = ids_of(place)

    def services(found):
        return {one.instance for one in found if one.trace == trace}

    spans = watched.collector.until(lambda found: services(found) == {COORDINATOR, *SILOS})
    mine = [one for one in spans if one.trace == trace]
    whole = next(one for one in mine if one.span == top)
    assert (whole.name, whole.said["fedward.outcome"]) == ("attempt", "committed")
    assert {one.parent for one in mine if one is not whole} == {top}
    phases = {one.name for one in mine if one.service == "fedward-coordinator"}
    assert phases >= {"attempt", "offer", "gather", "add", "open", "solve"}
    tasks = {one.name for one in mine if one.instance == NORTH}
    assert tasks >= {"decide", "contribute"}
    assert all(0 <= one.seconds <= whole.seconds for one in mine if one.service == "fedward-coordinator")


def people_and_strangers_do_what_they_may_not(watched, _monitor, noted):
    with watched.as_person(AUTHOR) as author, pytest.raises(OperatorError, match="may not"):
        author.drain()
    for _ in range(25):
        with socket.create_connection(("127.0.0.1", watched.federation.port), timeout=60) as stranger:
            stranger.sendall(b"\x16\x03\x01\x00\x05hello")
            stranger.recv(99)
    with watched.as_person(OPERATOR) as operator:
        operator.drain()
    noted.until("FedwardCallsRefused", "FedwardHandshakesFail", "FedwardDraining")
    with watched.as_person(OPERATOR) as operator:
        operator.drain(undo=True)


def a_study_asks_and_finds_no_data(watched, _monitor, noted):
    watched.asking = watched.begin(BRIEF, "asking")
    noted.until("FedwardApprovalWaits", "FedwardSiloWithoutData", "FedwardStudyWaits")
    data = watched.folder / "data" / f"{NORTH}.csv"
    data.rename(watched.folder / "moved.csv")
    watched.approve(NORTH, watched.asking, "small")
    until(lambda: "are not there" in watched.federation.log(NORTH).read_text(), "north did not miss its data")
    noted.until("FedwardDataMissing")
    (watched.folder / "moved.csv").rename(data)


def other_programs_hold_the_databases(watched, _monitor, noted):
    with locked(watched.place.state(NORTH) / "state.sqlite3"):
        noted.until("FedwardAgentShort")
    late = {**BRIEF, "deadlines": {**BRIEF["deadlines"], "offer": 15}}
    watched.begin(late, "late")
    with locked(watched.database):  # the offer's end cannot be stored
        noted.until("FedwardClockStopped", "FedwardMachineShort", "FedwardDatabaseErrors")


def a_disk_changes_a_byte_of_every_sum(watched, _monitor, noted):
    stop = threading.Event()
    spoiling = threading.Thread(target=spoil, args=(watched.disks / "spool", stop), daemon=True)
    spoiling.start()
    for silo in BRIEF["silos"]:
        watched.approve(silo, watched.asking, "small")
    noted.until("FedwardDisputes", "FedwardAttemptsFail")
    stop.set()
    spoiling.join()


def somebody_rewrites_the_audit_log(watched, _monitor, noted):
    with contextlib.closing(sqlite3.connect(watched.database, timeout=120)) as connection:
        connection.execute("DELETE FROM audit WHERE number = (SELECT max(number) FROM audit)")
        connection.commit()
    watched.begin(BRIEF, "after")
    noted.until("FedwardAuditLogBroken")


def an_agent_dies_and_another_finds_a_fault_in_its_ledger(watched, monitor, noted):
    watched.kill(WEST)
    noted.until("FedwardTargetDown", "FedwardSiloAway")
    watched.kill(NORTH)
    home = watched.place.party(NORTH)
    credential = Credential.load(*(home / f"{name}.pem" for name in ("certificate", "key", "authority")))
    ledger = open_ledger(watched.place.state(NORTH) / "ledger.sqlite3", load_policy(home / "policy.yaml"), credential)
    ledger.note_fault(Fault(watched.federation.study.digest, 1, 1, "heads"))
    ledger.close()
    watched.start_silo(NORTH)
    monitor.retarget(watched.targets())
    noted.until("FedwardFault")


def the_coordinator_dies(watched, _monitor, noted):
    watched.kill(COORDINATOR)
    noted.until("FedwardNobodyActive", "FedwardAgentAlone")


ACTS = (
    a_study_runs_and_what_is_short_small_or_old_is_told,
    its_rounds_are_traces_of_everybody,
    people_and_strangers_do_what_they_may_not,
    a_study_asks_and_finds_no_data,
    other_programs_hold_the_databases,
    a_disk_changes_a_byte_of_every_sum,
    somebody_rewrites_the_audit_log,
    an_agent_dies_and_another_finds_a_fault_in_its_ledger,
    the_coordinator_dies,
)


def test_every_metric_arrives_every_query_is_answered_and_every_alert_fires(tmp_path):
    with contextlib.ExitStack() as stack:
        watched = Watched(tmp_path, stack.enter_context(small_disk(tmp_path / "disk")))
        watched.collector = stack.enter_context(Collector())
        watched.prepare()
        watched.ports["authority"] = stack.enter_context(serving_authority(tmp_path / "online"))
        stack.callback(watched.stop)
        watched.start()
        served = prometheus.Prometheus(tmp_path / "prometheus", watched.targets(), waits=WAITS, ranges=RANGES)
        monitor = stack.enter_context(served)
        noted = Noted(monitor)
        stack.callback(noted.close)
        for act in ACTS:
            act(watched, monitor, noted)
        rules = [rule for group in monitor.get("rules")["groups"] for rule in group["rules"]]
        assert noted.seen == {rule["name"] for rule in rules if rule["type"] == "alerting"}
