"""A federation of real processes on loopback, to each of which something may be done, and which begins again.

A party that is killed at a durable write begins again at once. A silo that is killed at a task comes back when the
others have gone on without it.
"""

from __future__ import annotations

import json
import pickle
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.errors import OperatorError
from crypto.authorship import sign_study
from policies.documents.document import parse_document
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger, read_ledger
from protos.status import StudyStatus
from silo_agent.learning.personal.process import wanted_round
from silo_agent.storage.approvals import approve, made
from silo_agent.storage.folders import StateFolder, StudyFolder
from support import moving_clock, party_process
from support.certificates import Authority, data_set_of, load
from support.crash_points import Crash
from support.party_process import Doom
from support.small_cohort import policy_document, write_sites, write_yaml
from support.spoiling import Spoiling
from support.task_points import TaskCrash

T = TypeVar("T")
HUB = "hub"
SECONDS = 600.0
"""Longer than any machine is busy: nothing that comes at all is waited for in vain."""


@dataclass
class PartyFederation:
    """One study; `doomed` says to whom what is done, and when."""

    root: Path
    study: Study
    credentials: Mapping[str, Path]
    """Folders with certificate, key and authority, by party: `credentials_of`."""
    doomed: Mapping[str, Doom] = field(default_factory=dict)
    apart: Mapping[str, Crash | None] = field(default_factory=dict)
    """Agents that have a process train their personal model; such a process may be doomed, and its agent with it."""
    gone: frozenset[str] = frozenset()
    """Who does not come back, once it was killed at a task and the others have gone on."""
    killed: set[str] = field(default_factory=set)
    """Who was killed and has begun again, or is gone."""
    given_time: set[str] = field(default_factory=set)
    """Who has been waited for as long as the study allows, by the coordinator's clock."""
    metrics: str = ""
    """What the coordinator showed when all agents had ended, unless it was killed."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self) -> StudyStatus:
        """The whole study: whoever is killed begins again. Returns its last status."""
        self._prepare()
        for name in (HUB, *self.study.silos):
            self._start(name)
        try:
            self._begin_study()
            return self._follow()
        finally:
            for name in self.processes:
                self._end(name)

    def writes(self, name: str, file: str = "writes") -> list[str]:
        """What a party wrote durably, in order. `file` is `PERSONAL_WRITES` for its personal model's process."""
        return (self.root / name / file).read_text().splitlines()

    def outcome(self) -> dict[str, object]:
        """All that must be the same however often somebody was killed."""
        found: dict[str, object] = {}
        for silo in self.study.silos:
            folder = self.root / silo / "state"
            results = folder / "studies" / self.study.digest
            model = f"model-{self.study.rounds}.safetensors"
            kept = sorted(path.name for path in results.glob("kept-*"))
            own = ("personal.safetensors", "choice.safetensors")
            for name in (model, *kept, *own, "results.json", "counts.json"):
                if (results / name).exists():
                    found[f"{silo} {name}"] = (results / name).read_bytes()
            _, entries = read_ledger(folder / "ledger.sqlite3")
            found[f"{silo} ledger"] = [(e.debit.round, e.debit.attempt, dict(e.debit.costs)) for e in entries]
            found[f"{silo} epsilon"] = entries[-1].epsilon
            lines = (results / "training.jsonl").read_text().splitlines()
            found[f"{silo} training log"] = sorted(lines)
        return found

    def difference(self, expected: dict[str, object]) -> dict[str, object]:
        """What is not as expected."""
        found = self.outcome()
        return {name: found.get(name) for name in expected if found.get(name) != expected[name]}

    def log(self, name: str) -> str:
        """The end of what a party logged."""
        path = self.root / name / "log.jsonl"
        return f"--- {name}\n" + "\n".join(path.read_text().splitlines()[-15:] if path.exists() else [])

    def entries(self, name: str, event: str) -> list[dict[str, Any]]:
        """What a party logged under a name."""
        lines = (self.root / name / "log.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in found if entry.get("event") == event]

    def given_up(self, silo: str) -> bool:
        """Whether the coordinator goes on without it, or has ended the attempt."""
        aside = any(silo in entry["silos"] for entry in self.entries(HUB, "silos set aside"))
        return aside or any(entry["outcome"] == "aborted" for entry in self.entries(HUB, "attempt over"))

    def operate(self, call: Callable[[CoordinatorClient], T]) -> T:
        """Have the operator do something."""
        operator = CoordinatorClient(OperatorConfig.load(self.root / "operator" / "operator.yaml"))
        try:
            return call(operator)
        finally:
            operator.close()

    def status(self) -> StudyStatus:
        """The study's, as the operator sees it."""
        return self.operate(lambda operator: operator.status(self.study.digest))

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait for something, longer than any machine is busy."""
        end = time.monotonic() + SECONDS
        while not until():
            assert time.monotonic() < end, "\n".join(map(self.log, (HUB, *self.study.silos)))
            time.sleep(0.05)

    # --- inside ---------------------------------------------------------------------------------------------------
    def _prepare(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        files = self._files()
        for name, source in self.credentials.items():
            folder = self.root / name
            folder.mkdir()
            for pem in ("certificate.pem", "key.pem", "authority.pem"):
                (folder / pem).write_bytes((source / pem).read_bytes())
                (folder / pem).chmod(0o600)
        pems = {"certificate": "certificate.pem", "key": "key.pem", "authority": "authority.pem"}
        hub = {**pems, "port": self.port, "metrics_port": 0, "data": "data"}
        write_yaml(self.root / HUB / "coordinator.yaml", hub)
        address = {"coordinator": f"127.0.0.1:{self.port}"}
        write_yaml(self.root / "operator" / "operator.yaml", {**pems, **address})
        for silo in self.study.silos:
            folder = self.root / silo
            (folder / "state").mkdir()
            text = self._policy(silo)
            (folder / "policy.yaml").write_text(text, encoding="utf-8")
            genesis = Genesis.of(parse_document(text, Policy, folder / "policy.yaml"))
            Ledger.create(folder / "state" / "ledger.sqlite3", genesis)
            agent = {**pems, **address, "policy": "policy.yaml", "state": "state", "threads": 1}
            if silo in self.apart:
                (folder / party_process.APART).write_text(pickle.dumps(self.apart[silo]).hex())
            write_yaml(folder / "agent.yaml", {**agent, "data": {self.study.name: str(files[silo])}})
            given = made(self.study, self.study.name, datetime.now(UTC))
            approve(StateFolder(folder / "state"), self.study, given)

    def _files(self) -> Mapping[str, Path]:
        """Each silo's records, which are made here."""
        return write_sites(self.root / "data", patients=40, silos=self.study.silos)

    def _policy(self, silo: str) -> str:
        """The text of a silo's policy."""
        return yaml.safe_dump(policy_document(data_set_of(silo)))

    def _start(self, name: str) -> None:
        """Start a party. Whoever was killed begins again unharmed; whoever is hostile stays so."""
        party, doom = "coordinator" if name == HUB else "silo", self.doomed.get(name)
        unharmed = name in self.processes and not isinstance(doom, Spoiling)
        self.processes[name] = party_process.start(party, self.root / name, None if unharmed else doom)

    def _begin_study(self) -> None:
        """The operator tries until the coordinator, which may die meanwhile, has done it."""
        signed = sign_study(load(self.root / "author"), self.study.digest, self.study.purpose)
        self._insist(lambda operator: operator.create(self.study.canonical(), signed), "ALREADY_EXISTS")
        self._insist(lambda operator: operator.start(self.study.digest), "only a created study can be started")

    def _insist(self, call: Callable[[CoordinatorClient], object], done: str) -> None:
        end = time.monotonic() + SECONDS
        while True:
            self._revive()
            try:
                self.operate(call)
            except OperatorError as error:
                if done in str(error):
                    return
                if time.monotonic() > end:
                    raise AssertionError(f"{error}\n{self.log(HUB)}") from error  # noqa: EM102, TRY003
                time.sleep(0.1)
            else:
                return

    def _follow(self) -> StudyStatus:
        end = time.monotonic() + SECONDS
        while any(self._exit_code(silo) is None for silo in self.study.silos) or self._revive():
            self._revive()
            for silo in self.apart:
                if self._exit_code(silo) is None and self._is_idle(silo):
                    self._end(silo)
            assert time.monotonic() < end, "\n".join(map(self.log, (HUB, *self.study.silos)))
            time.sleep(0.02)
        for silo in sorted(set(self.study.silos) - self.gone):
            code = self._exit_code(silo)
            assert code == 0, f"{silo} ended with {code}\n{self.log(silo)}"
        if HUB not in self.killed:
            port = self.entries(HUB, "serving")[0]["metrics_port"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as page:
                self.metrics = page.read().decode()
        return self.status()

    def _is_idle(self, silo: str) -> bool:
        """Whether an agent began again when its study was over, and has nothing left to train."""
        said = (self.root / silo / "log.jsonl").read_text()
        folder = StudyFolder(self.root / silo / "state" / "studies" / self.study.digest)
        return -1 < said.find('"study over"') < said.rfind('"agent starts"') and not wanted_round(folder)

    def _revive(self) -> bool:
        """Start again whoever was killed as planned, at once or when it is due; whether anybody was."""
        doomed = {*self.doomed, *(name for name, crash in self.apart.items() if crash)} - self.killed
        fallen = {name for name in doomed if self._exit_code(name) == -9}  # SIGKILL
        for name in fallen:
            if not isinstance(self.doomed.get(name), TaskCrash):
                self.killed.add(name)
                self._start(name)
            elif self.given_up(name):
                self.killed.add(name)
                if name not in self.gone:
                    self._bring_back(name)
            elif name not in self.given_time and self.status().waiting_for == (name,):
                self.given_time.add(name)
                moving_clock.jump(self.processes[HUB].pid)
        return bool(fallen)

    def _bring_back(self, silo: str) -> None:
        """Short rounds might be over before a process has started: the study stands still meanwhile."""
        try:
            self.operate(lambda operator: operator.pause(self.study.digest))
        except OperatorError:
            self._start(silo)  # the study is over
        else:
            self._start(silo)
            self.wait(lambda: self.gone.issuperset(one.silo for one in self.status().members if one.state == "away"))
            self.operate(lambda operator: operator.resume(self.study.digest))

    def _exit_code(self, name: str) -> int | None:
        return self.processes[name].poll()

    def _end(self, name: str) -> None:
        self.processes[name].terminate()
        end = time.monotonic() + 300
        while self._exit_code(name) is None:
            if time.monotonic() > end:
                self.processes[name].kill()
            time.sleep(0.02)


def credentials_of(authority: Authority, study: Study) -> dict[str, Path]:
    """Everybody's certificate, once for many federations."""
    parties = {HUB: "coordinator", "operator": "operator", "author": "author", **dict.fromkeys(study.silos, "silo")}
    return {name: authority.credential(role, name) for name, role in parties.items()}


def described(outcome: dict[str, object]) -> str:
    """For a failure's message: what differs, without the bytes."""
    return json.dumps({name: str(value)[:60] for name, value in outcome.items()}, indent=1)
