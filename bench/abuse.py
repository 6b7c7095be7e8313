"""One hostile member against a coordinator while a study of three honest silos runs.

The same study runs twice, each with all its parties as processes of their own over mutual TLS on loopback. First beside
a neutral load, a process that keeps one core busy. Then beside the hostile member, which keeps the same core busy with
attacks in turns (`bench.hostile`), each as fast as that core can. The attacker has a valid certificate and is not one
of the study's silos. `python -m bench.abuse SECONDS ROUNDS` sets for how long it attacks at least, and how long the
study is; the defaults are those of the figures that are wanted.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console

from bench.hostile import calls, frames
from bench.hostile.target import ATTACKS
from bench.table import OUT, Figure, judge
from coordinator.errors import OperatorError
from deploy.local.federation import Federation
from deploy.local.folders import empty
from deploy.local.parties import COORDINATOR, Enrolment, Place, configure_coordinator
from deploy.local.processes import FederationError
from deploy.local.watching import bars, watch

LISTED = (calls, frames)
"""The modules whose attacks are listed, which importing them has done."""
SILOS = ("birch", "cedar", "maple")
MEMBER, OTHER, STRANGER = "mallory", "trent", "outsider"
PATIENTS, FEATURES = 400, 8
SECONDS, ROUNDS = 300.0, 90
BASELINE_SECONDS, SLOWER = 180.0, 1.5
GROWTH_MIB, STATUS_SECONDS, LOG_MIB = 256, 10.0, 64
LIMIT = 3600.0
MEBI = 1 << 20
POLICY = """\
version: 3
contact: bench
data_set: {id: "{data_set}", unit: patient, identified_by: [patient], holdout: 0.25}
budget: {epsilon: 8.0, delta: 1.0e-5, relation: add_remove, expires: 2099-12-31}
min_silos: 3
noise_modes: [local]
colluders: 1
encoder_sealing: ring
smallest_domain: 0
limits: {study_epsilon: 8.0, round_epsilon: 8.0, rounds: 200, charged_attempts: 3, architectures: [mlp],
         encoder_weights: 500000, representation: 16, sampling_rate: 0.1, clip: 1.0}
split: {encoder: 1.0, heads: 1.0, counts: 1.0, metrics: 1.0}
publish: []
retention_days: 365
studies: null
approvers: null
"""


def study(rounds: int) -> dict[str, object]:
    """The study: small sums, so that the rounds are many and most of their time is the protocol's."""
    return {
        "version": 1,
        "name": "abuse",
        "purpose": "Measure what one hostile member costs the others.",
        "silos": list(SILOS),
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
        "privacy": {"delta": 1e-5, "mode": "local", "colluders": 1, "count_noise": 90.0, "max_patients": 1000},
        "max_attempts": 5,
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


def main() -> int:
    """Run the study twice, judge, and write `bench/out/abuse.json`."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS  # the second argument
    core = max(os.sched_getaffinity(0))
    neutral, _, _ = _run(OUT / "abuse-neutral", rounds, core, seconds=0.0)
    attacked, told, counted = _run(OUT / "abuse", rounds, core, seconds=seconds)
    return judge("abuse", _figures(neutral, attacked, told, counted, full=seconds >= SECONDS), {
        "rounds": rounds, "seconds": seconds, "neutral": vars(neutral), "attacked": vars(attacked),
        "attacks": told, "counted": counted,
    })  # fmt: skip


def _figures(
    neutral: Watched, attacked: Watched, told: dict[str, dict[str, float]], counted: dict[str, float], *, full: bool
) -> list[Figure]:
    seen, ratio = sum(told["refused"].values()), attacked.seconds / neutral.seconds
    growth = attacked.most_mib - neutral.most_mib
    idle = [name for name in ATTACKS if not told["tried"].get(name)]
    shown = f"{attacked.slowest_status:.1f} s, {attacked.failed_statuses} of {attacked.statuses} failed"
    figures = [
        Figure("the study beside a neutral load", "ends", f"{neutral.state}, {neutral.seconds:.0f} s",
               neutral.state == "finished" and (not full or neutral.seconds >= BASELINE_SECONDS)),
        Figure("the study under attack", "ends", f"{attacked.state}, {attacked.seconds:.0f} s",
               attacked.state == "finished"),
        Figure("its time, of the neutral load's", f"at most {SLOWER}", f"{ratio:.2f}", ratio <= SLOWER),
        Figure("attacks tried", f"all {len(ATTACKS)}", f"{len(ATTACKS) - len(idle)}", not idle and not told["faults"]),
        Figure("coordinator's memory above the neutral load's", f"at most {GROWTH_MIB} MiB",
               f"{growth:.0f} MiB (most {attacked.most_mib:.0f}, at the end {attacked.last_mib:.0f})",
               growth <= GROWTH_MIB),
        Figure("refused calls in the metrics, under the certificate", f"at least {seen:,.0f}, those the member saw",
               f"{sum(counted.values()):,.0f}", sum(counted.values()) >= seen > 0),
        Figure("an operator's status", f"within {STATUS_SECONDS:g} s, none fails", shown,
               attacked.slowest_status <= STATUS_SECONDS and not attacked.failed_statuses),
        Figure("coordinator's log", f"at most {LOG_MIB} MiB", f"{attacked.log_mib:.1f} MiB",
               attacked.log_mib <= LOG_MIB),
    ]  # fmt: skip
    for name, rate in told["rates"].items():
        print(f"  {name}: {told['tried'][name]:,} tries, {rate:,.0f} a second")
    if told["faults"]:
        print(f"  faults of attacks: {told['faults']}")
    return figures


def _run(
    folder: Path, rounds: int, core: int, *, seconds: float
) -> tuple[Watched, dict[str, dict[str, float]], dict[str, float]]:
    """Run the study once. With `seconds`, beside the hostile member; return what it said and what was counted."""
    empty(folder)
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(study(rounds)), encoding="utf-8")
    federation = Federation(folder / "federation", study_file, _data(folder), POLICY)
    _enrol(federation, folder)
    seen, told, counted = Watched(), {}, {}
    with federation, bars(Console()) as progress:
        federation.begin()
        load = _attacker(federation, folder, core, seconds) if seconds else _neutral(core)
        with load as began, _watching(federation, seen):
            begun = time.monotonic()
            try:
                seen.state = watch(federation, progress, limit=LIMIT).state
            except (FederationError, OperatorError) as error:
                seen.state = f"failed: {error}"
            seen.seconds = time.monotonic() - begun
            while time.monotonic() < began + seconds:
                time.sleep(0.5)
        counted = _counted(federation)
    if seconds:
        told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    seen.log_mib = federation.log(COORDINATOR).stat().st_size / MEBI
    return seen, told, counted


def _data(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(1)
    files = {}
    for silo in SILOS:
        files[silo] = folder / f"{silo}.csv"
        with files[silo].open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["patient", "group", *(f"x{i}" for i in range(FEATURES)), "ill"])
            for number in range(PATIENTS):
                x = np.clip(rng.normal(size=FEATURES) / 3, -1, 1)
                writer.writerow([number, "ab"[number % 2], *np.round(x, 3), int(x[0] > 0)])
    return files


def _enrol(federation: Federation, folder: Path) -> None:
    """Enrol the parties, the hostile member, another silo that never runs, and a silo of another authority."""
    own = {silo: federation.policy_of(silo).data_set.id for silo in SILOS}
    Enrolment(federation.place, "the bench's own").enrol({**own, MEMBER: MEMBER, OTHER: OTHER})
    Enrolment(Place(folder / "elsewhere"), "the bench's own").enrol({STRANGER: STRANGER})
    configure_coordinator(federation.place)


@contextmanager
def _neutral(core: int) -> Iterator[float]:
    command = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with _process([sys.executable, "-c", command]) as began:
        yield began


@contextmanager
def _attacker(federation: Federation, folder: Path, core: int, seconds: float) -> Iterator[float]:
    plan = {
        "port": federation.port,
        "folder": str(federation.place.party(MEMBER)),
        "other": str(federation.place.party(OTHER)),
        "stranger": str(folder / "elsewhere" / STRANGER),
        "study": federation.study.digest,
        "seconds": seconds / len(ATTACKS),
        "core": core,
        "out": str(folder / "told.json"),
    }
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    with _process([sys.executable, "-m", "bench.hostile", str(folder / "plan.json")]) as began:
        yield began


@contextmanager
def _process(command: list[str]) -> Iterator[float]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
    try:
        yield time.monotonic()
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _watching(federation: Federation, seen: Watched) -> Iterator[None]:
    """Look at the coordinator's process and ask for the study's status, until the end."""
    over = threading.Event()

    def look() -> None:
        own = Path(f"/proc/{federation.processes[COORDINATOR].pid}")
        with federation.operator() as operator:
            while not over.wait(0.5):
                seen.last_mib = int((own / "statm").read_text().split()[1]) * resource.getpagesize() / MEBI
                seen.most_mib = max(seen.most_mib, seen.last_mib)
                seen.most_files = max(seen.most_files, len(list((own / "fd").iterdir())))
                began = time.monotonic()
                try:
                    seen.attempts = max(seen.attempts, operator.status(federation.study.digest).attempt)
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


if __name__ == "__main__":
    sys.exit(main())
