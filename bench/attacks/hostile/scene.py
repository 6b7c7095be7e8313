"""A study of a federation's processes beside something that keeps one core busy, and what is seen of it meanwhile."""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from rich.console import Console

from bench.attacks.hostile import calls, frames
from bench.attacks.hostile.target import ATTACKS
from bench.places import ROOT
from coordinator.errors import OperatorError
from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR, Enrolment, FederationPaths, configure_coordinator
from deploy.local.processes import FederationError
from deploy.local.watching import bars, watch
from protos.status import MemberStatus

LISTED = (calls, frames)
"""The modules whose attacks are listed, which importing them has done."""
SILOS: Final = ("birch", "cedar", "maple")
MEMBER, OTHER, STRANGER = "mallory", "trent", "outsider"
PATIENTS, FEATURES = 400, 8
LIMIT = 3600.0
MEBI = 1 << 20
POLICY: Final = """\
version: 3
contact: bench
data_set: {id: "{data_set}", unit: patient, identified_by: [patient], holdout: 0.25}
budget: {epsilon: 8.0, delta: 1.0e-5, relation: add_remove, expires: 2099-12-31}
min_silos: 3
noise_modes: [local, distributed]
colluders: 1
encoder_sealing: ring
smallest_domain: 0
limits: {study_epsilon: 8.0, round_epsilon: 8.0, rounds: 200, charged_attempts: 8, architectures: [mlp],
         encoder_weights: 500000, representation: 16, sampling_rate: 0.1, clip: 1.0}
split: {encoder: 1.0, heads: 1.0, counts: 1.0, metrics: 1.0}
publish: []
retention_days: 365
studies: null
approvers: null
"""
Load = Callable[[Federation], AbstractContextManager[float]]
"""What runs beside a study. It gives the time at which it began."""


def study(rounds: int, *, silos: tuple[str, ...] = SILOS, mode: str = "local", **changes: object) -> dict[str, object]:
    """The study: small sums, so that the rounds are many and most of their time is the protocol's."""
    return {
        "version": 1,
        "name": "abuse",
        "purpose": "Measure what one hostile member costs the others.",
        "silos": list(silos),
        "min_silos": 3,
        "data": {
            "patient": "patient",
            "label": {"column": "ill", "positive": [1], "negative": [0]},
            "domain": [{"column": "group", "values": ["a", "b"], "names": ["a", "b"]}],
            "features": [
                {"kind": "number", "column": f"x{i}", "minimum": -1, "maximum": 1} for i in range(FEATURES)
            ],
        },
        "model": {"hidden": [64], "representation": 8, "seed": 1},
        "heads": {"pooled_rounds": 1, "domain_rounds": rounds - 1, "pooled_noise": 900.0, "domain_noise": 900.0},
        "encoder": {"steps": 2, "sampling_rate": 0.05, "batch_size": 20, "learning_rate": 0.1, "noise": 20.0},
        "evaluation": {"bins": 4, "noise": 90.0},
        "privacy": {"delta": 1e-5, "mode": mode, "colluders": 1, "count_noise": 90.0, "max_patients": 1000},
        "max_attempts": 5,
        **changes,
    }  # fmt: skip


@dataclass
class Watched:
    """What was seen of the coordinator while a study ran."""

    seconds: float = 0.0
    state: str = ""
    attempts: int = 0
    most_mib: float = 0.0
    last_mib: float = 0.0
    most_files: int = 0
    log_mib: float = 0.0
    statuses: int = 0
    failed_statuses: int = 0
    slowest_status: float = 0.0
    longest_round: float = 0.0
    members: dict[str, str] = field(default_factory=dict)
    """State of each silo of the study as it was seen last."""
    slow_seconds: dict[str, float] = field(default_factory=dict)
    budget: float = 0.0
    """The seconds of waiting that each silo may cost."""


class Among(Federation):
    """A federation in which the agent of one silo may be hostile."""

    hostile: Path | None = None
    """The plan of `bench.attacks.hostile.member`. With one, agents run until they are stopped, for several studies."""
    names: tuple[str, ...] = ()
    """The names of these studies."""

    def configure(self) -> None:
        """Write every silo's configuration, with its data for all studies."""
        super().configure()
        for silo, file in self.data.items():
            config = yaml.safe_load(self.config(silo).read_text(encoding="utf-8"))
            config["data"] |= dict.fromkeys(self.names, str(file.resolve()))
            self.config(silo).write_text(yaml.safe_dump(config), encoding="utf-8")

    def start_silo(self, name: str) -> None:
        """Start one silo's agent, or the hostile one."""
        if self.hostile is None:
            super().start_silo(name)
        elif name == MEMBER:
            self._start(name, "python", "-m", "bench.attacks.hostile.member", self.hostile)
        else:
            self._start(name, "fedward-silo", "run", "-c", self.config(name))


def data(folder: Path, silos: tuple[str, ...] = SILOS) -> dict[str, Path]:
    """Write made-up patients of every silo."""
    rng = np.random.default_rng(1)
    files = {}
    for silo in silos:
        files[silo] = folder / f"{silo}.csv"
        with files[silo].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", "group", *(f"x{i}" for i in range(FEATURES)), "ill"])
            for number in range(PATIENTS):
                x = np.clip(rng.normal(size=FEATURES) / 3, -1, 1)
                writer.writerow([number, "ab"[number % 2], *np.round(x, 3), int(x[0] > 0)])
    return files


def enrol(place: FederationPaths) -> None:
    """Enrol the parties, the hostile member, another silo that never runs, and a silo of another authority."""
    silos = (*SILOS, MEMBER, OTHER)
    Enrolment(place, "the bench's own").enrol({silo: silo for silo in silos})
    Enrolment(FederationPaths(place.root / "elsewhere"), "the bench's own").enrol({STRANGER: STRANGER})
    configure_coordinator(place)


def federation_of(folder: Path, document: Mapping[str, Any], files: Mapping[str, Path]) -> Among:
    """Return a federation whose parties are enrolled in `folder / "federation"`."""
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(dict(document)), encoding="utf-8")
    return Among(folder / "federation", study_file, files, POLICY)


def run(federation: Federation, load: Load, *, seconds: float = 0.0) -> tuple[Watched, dict[str, float]]:
    """Run a federation's study to its end beside a load. Return what was seen, and which calls were refused."""
    with federation:
        seen, counted = watched(federation, load, seconds=seconds)
    seen.log_mib = federation.log(COORDINATOR).stat().st_size / MEBI
    return seen, counted


def watched(federation: Federation, load: Load, *, seconds: float = 0.0) -> tuple[Watched, dict[str, float]]:
    """Run a study of a running federation to its end beside a load, and for `seconds` at least."""
    seen = Watched()
    with bars(Console()) as progress:
        federation.begin()
        with load(federation) as began, _watching(federation, seen):
            begun = time.monotonic()
            try:
                status = watch(federation, progress, limit=LIMIT)
                seen.state = status.state
                _see(seen, status.members)
            except (FederationError, OperatorError) as error:
                seen.state = f"failed: {error}"
            seen.seconds = time.monotonic() - begun
            while time.monotonic() < began + seconds:
                time.sleep(0.5)
        return seen, _counted(federation)


def neutral(core: int) -> Load:
    """A process that keeps one core busy."""
    command = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    return lambda _: _process([sys.executable, "-c", command])


def attacker(folder: Path, core: int, seconds: float) -> Load:
    """The hostile member's attacks on that core, for `seconds` in all before they begin again."""

    def attack(federation: Federation) -> AbstractContextManager[float]:
        plan = {
            "port": federation.port,
            "folder": str(federation.place.party(MEMBER)),
            "other": str(federation.place.party(OTHER)),
            "stranger": str(federation.place.root / "elsewhere" / STRANGER),
            "study": federation.study.digest,
            "seconds": seconds / len(ATTACKS),
            "core": core,
            "out": str(folder / "told.json"),
        }
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        return _process([sys.executable, "-m", "bench.attacks.hostile", str(folder / "plan.json")])

    return attack


@contextmanager
def _process(command: list[str]) -> Iterator[float]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=ROOT)
    try:
        yield time.monotonic()
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _see(seen: Watched, members: tuple[MemberStatus, ...]) -> None:
    seen.members = {one.silo: one.state for one in members}
    seen.slow_seconds = {one.silo: max(one.slow_seconds, seen.slow_seconds.get(one.silo, 0.0)) for one in members}
    seen.budget = max((one.slow_budget for one in members), default=0.0)


@contextmanager
def _watching(federation: Federation, seen: Watched) -> Iterator[None]:
    """Look at the coordinator's process and ask for the study's status, until the end."""
    over = threading.Event()

    def look() -> None:
        own = Path(f"/proc/{federation.processes[COORDINATOR].pid}")
        number, since = 0, time.monotonic()
        with federation.author() as author:
            while not over.wait(0.5):
                seen.last_mib = int((own / "statm").read_text().split()[1]) * resource.getpagesize() / MEBI
                seen.most_mib = max(seen.most_mib, seen.last_mib)
                seen.most_files = max(seen.most_files, len(list((own / "fd").iterdir())))
                began = time.monotonic()
                try:
                    status = author.status(federation.study.digest)
                    seen.attempts = max(seen.attempts, status.attempt)
                    if status.round != number:
                        number, since = status.round, began
                    seen.longest_round = max(seen.longest_round, time.monotonic() - since)
                except OperatorError:
                    seen.failed_statuses += 1
                seen.statuses += 1
                seen.slowest_status = max(seen.slowest_status, time.monotonic() - began)

    thread = threading.Thread(target=look, name="watching")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _counted(federation: Federation) -> dict[str, float]:
    """Refused calls of the hostile member by code, from the coordinator's metrics."""
    url = f"http://127.0.0.1:{federation.metrics_port(COORDINATOR)}/metrics"
    with urllib.request.urlopen(url, timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    begin = f'fedward_coordinator_refused_calls_total{{caller="silo/{MEMBER}",code="'
    return {
        line.removeprefix(begin).partition('"')[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(begin)
    }
