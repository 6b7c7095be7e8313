"""A study over the wire: one coordinator process with mutual TLS and SQLite, and `light_silos` in this process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import yaml

from bench.places import ROOT
from bench.speed.light_silos import LightSilo
from crypto.pki.authority import root
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.tls import channel_credentials
from deploy.local.processes import script
from policies.documents.study import Study
from protos.v1 import operator_pb2, operator_pb2_grpc, silo_pb2, silo_pb2_grpc

MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder of a name of its own is made there
HOSTS: Final = ("localhost", "127.0.0.1")
TICK: Final = 1 / os.sysconf("SC_CLK_TCK")
TOGETHER: Final = 16
"""Silos that connect at once: a coordinator lets one address open 32 connections that have shown no certificate yet."""
BEAT_SECONDS: Final = 0.2
LIMIT: Final = 900.0
WAITED: Final = 30.0
"""Seconds: longer than a call for work is held."""


@dataclass(frozen=True)
class WireCost:
    """What a study cost its coordinator."""

    silos: int
    finished: bool
    cpu: float
    """Seconds, of all rounds together."""
    written: float
    """MB that the process wrote."""
    notes: float
    """MB of notes that silos sent."""
    fetched: float
    """MB that silos fetched of each other's notes, and of sums."""
    threads: int
    """At most."""
    memory: float
    """MiB at most."""
    seconds: float
    heartbeat: float
    """The slowest, in seconds."""
    operator: float
    """The slowest call of an operator, in seconds."""
    faults: tuple[str, ...]


def study_of(silos: int) -> Study:
    """A study of three rounds with every kind of sum, of which an eighth of the silos may be missing, as in a draft."""
    document: dict[str, Any] = {
        "version": 1,
        "name": "silos",
        "purpose": "Measure what many silos cost their coordinator.",
        "silos": [f"silo-{number:03}" for number in range(silos)],
        "min_silos": silos - silos // 8,
        "data": {
            "patient": "patient",
            "label": {"column": "ill", "positive": [1], "negative": [0]},
            "domain": [{"column": "group", "values": ["a", "b"], "names": ["a", "b"]}],
            "features": [{"kind": "number", "column": name, "minimum": 0, "maximum": 1} for name in ("x", "y")],
        },
        "model": {"hidden": [3], "representation": 2, "seed": 1},
        "heads": {"pooled_rounds": 1, "domain_rounds": 1, "pooled_noise": 90.0, "domain_noise": 90.0},
        "encoder": {"steps": 2, "sampling_rate": 0.1, "batch_size": 8, "learning_rate": 0.1, "noise": 9.0},
        "evaluation": {"bins": 4, "noise": 90.0},
        "privacy": {"delta": 1e-5, "mode": "local", "colluders": 1, "count_noise": 90.0, "max_patients": 1000},
        "deadlines": dict.fromkeys(("offer", "keys", "train", "open", "solve"), 600.0),
    }
    return Study.model_validate(document)


def cost_over_the_wire(silos: int) -> WireCost:
    """Run the study to its end, or for `LIMIT` seconds."""
    with _created(study_of(silos)) as there:
        watch, began = there.watch(), time.monotonic()
        there.call.StartStudy(there.request)
        watch.start()
        there.begin()
        for member in there.members:
            member.join(max(began + LIMIT - time.monotonic(), 0.0))
        seconds = time.monotonic() - began
        there.stop.set()
        watch.end()
        status = there.call.GetStudyStatus(there.request)
        ended = status.state == "finished"
        notes = sum(one.bytes for one in status.uploads if one.kind not in ("ckks", "ring32", "ring64"))
    faults = tuple(member.fault for member in there.members if member.fault)
    fetched = sum(member.fetched for member in there.members) / 1e6
    return WireCost(silos, ended, notes=notes / 1e6, fetched=fetched, seconds=seconds, faults=faults, **watch.seen())


def cost_of_waiting(silos: int) -> WireCost:
    """So many silos that wait for a study to begin, for `WAITED` seconds after the last of them has come."""
    with _created(study_of(silos)) as there:
        there.begin()
        time.sleep(BEAT_SECONDS)
        watch = there.watch()
        watch.start()
        time.sleep(WAITED)
        watch.end()
        here = sum(member.is_alive() for member in there.members)
        there.stop.set()
    faults = tuple(member.fault for member in there.members if member.fault)
    return WireCost(silos, here == silos, notes=0.0, fetched=0.0, seconds=WAITED, faults=faults, **watch.seen())


class _Created:
    """A coordinator with a study that has not begun, and the study's silos, which have not begun to call either."""

    def __init__(self, study: Study, folder: Path, process: subprocess.Popen[bytes], port: int) -> None:
        self._pid, self._port, self._beats = process.pid, port, _enrolled(folder, Role.SILO, "beats")
        self.stop, address = threading.Event(), f"localhost:{port}"
        homes = [_enrolled(folder, Role.SILO, one) for one in study.silos]
        self.members = [LightSilo(address, _credential(home), study, home, self.stop) for home in homes]
        operator = _channel(port, _enrolled(folder, Role.OPERATOR, "ops"))
        self.call: Any = operator_pb2_grpc.OperatorServiceStub(operator)
        self.call.CreateStudy(operator_pb2.CreateStudyRequest(canonical=study.canonical()))
        self.request = operator_pb2.StudyRequest(study=study.digest)

    def begin(self) -> None:
        """Have all silos call, a few at a time."""
        for number, member in enumerate(self.members):
            member.start()
            if number % TOGETHER == TOGETHER - 1:
                time.sleep(1.0)

    def watch(self) -> _Watch:
        """Whoever looks at the coordinator from now on."""
        return _Watch(self._pid, self._port, self._beats, self.call, self.request)


@contextmanager
def _created(study: Study) -> Iterator[_Created]:
    with tempfile.TemporaryDirectory(prefix="fedward-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        root.init(folder / "authority", "Bench", 30)
        with _coordinator(folder, _enrolled(folder, Role.COORDINATOR, "hub")) as (process, port):
            yield _Created(study, folder, process, port)


class _Watch(threading.Thread):
    """Looks at the coordinator's process, and calls it as an idle silo and as an operator, until the end."""

    def __init__(self, pid: int, port: int, beats: Path, call: Any, study: operator_pb2.StudyRequest) -> None:
        super().__init__(daemon=True)
        self._pid, self._call, self._study = pid, call, study
        self._silo = silo_pb2_grpc.SiloServiceStub(_channel(port, beats))
        self._ended = threading.Event()
        self._before = self._look()
        self._last = self._before
        self._threads = self._heartbeat = self._operator = 0.0

    def run(self) -> None:
        """Call, and note the slowest."""
        while not self._ended.wait(BEAT_SECONDS):
            self._heartbeat = max(self._heartbeat, _timed(lambda: self._silo.Heartbeat(silo_pb2.HeartbeatRequest())))
            self._operator = max(self._operator, _timed(lambda: self._call.GetStudyStatus(self._study)))
            self._threads = max(self._threads, self._look()["threads"])

    def end(self) -> None:
        """Look for the last time."""
        self._ended.set()
        self.join()
        self._last = self._look()

    def seen(self) -> dict[str, Any]:
        """The fields of `WireCost` that were looked at."""
        spent = {name: self._last[name] - self._before[name] for name in ("cpu", "written")}
        slowest = {"heartbeat": self._heartbeat, "operator": self._operator}
        return spent | slowest | {"threads": int(self._threads), "memory": self._last["memory"]}

    def _look(self) -> dict[str, float]:
        folder = Path(f"/proc/{self._pid}")
        user, system = (folder / "stat").read_text("ascii").rpartition(")")[2].split()[11:13]
        text = (folder / "status").read_text("ascii") + (folder / "io").read_text("ascii")
        found = {name: float(number) for name, number in re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}
        cpu = (int(user) + int(system)) * TICK
        return {
            "cpu": cpu, "written": found["wchar"] / 1e6, "threads": found["Threads"], "memory": found["VmHWM"] / 1024
        }  # fmt: skip


@contextmanager
def _coordinator(folder: Path, hub: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A coordinator that serves, with its port. It is stopped at the end, by its own id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    names = ("certificate", "key", "authority")
    config = {name: f"{name}.pem" for name in names} | {"port": port, "metrics_port": 0, "data": "data"}
    (hub / "coordinator.yaml").write_text(yaml.safe_dump(config), encoding="ascii")
    log = folder / "coordinator.log"
    with log.open("wb") as file:
        words = [script("fedward-coordinator"), "serve", "-c", str(hub / "coordinator.yaml")]
        process = subprocess.Popen(words, stdout=file, stderr=file, cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while b"serving" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _enrolled(folder: Path, role: Role, name: str) -> Path:
    """A party's folder, with certificate and key."""
    hosts = HOSTS if role is Role.COORDINATOR else ()
    subject = Subject(Identity(role, name), f"{name}-ward" if role is Role.SILO else None)
    home = folder / f"{role.value}-{name}"
    request = create_request(home, subject, hosts).read_bytes()
    pem = root.sign(folder / "authority", request, subject=subject, days=20, hosts=hosts)
    (home / "certificate.pem").write_bytes(pem)
    (home / "authority.pem").write_bytes((folder / "authority" / "authority.pem").read_bytes())
    return home


def _credential(home: Path) -> Credential:
    return Credential.load(*(home / f"{name}.pem" for name in ("certificate", "key", "authority")))


def _channel(port: int, home: Path) -> grpc.Channel:
    return grpc.secure_channel(f"localhost:{port}", channel_credentials(_credential(home)))


def _timed(call: Any) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began
