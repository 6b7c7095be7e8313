"""What it costs to start: commands that neither train nor count, and an agent until it is ready.

CPU seconds (user and system) of whole processes of this installation, the median of some runs: what a person waits for
on an idle machine, and what six agents of a demo pay six times.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import yaml

from bench.speed.round import POLICY, SILOS, STUDY, write_patients
from bench.table import Criterion, judge
from deploy.local.federation import Federation
from deploy.local.processes import script
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger
from policies.plan.release import plan

COMMAND_SECONDS, AGENT_SECONDS = 0.8, 4.0
RUNS = 5


def main() -> int:
    """Measure every command and an agent, and judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=RUNS)
    runs = arguments.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="fedward-startup-") as folder:
        measured = measure(Path(folder), runs)
    figures = []
    for name, seconds in measured.items():
        wanted = AGENT_SECONDS if name == AGENT else COMMAND_SECONDS
        typical = statistics.median(seconds)
        figures.append(Criterion(name, f"< {wanted:g} CPU s", f"{typical:.2f} CPU s", typical < wanted))
    return judge("startup", figures, measured)


AGENT = "an agent until it is ready"


def measure(folder: Path, runs: int) -> dict[str, list[float]]:
    """CPU seconds of every run by what was run."""
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    federation = Federation(folder / "federation", study_file, write_patients(folder), POLICY)
    federation.prepare()
    try:
        federation.start_coordinator()
        federation.configure()
        seconds = {AGENT: [agent_seconds(federation) for _ in range(runs)]}
    finally:
        federation.stop()
    charge(federation)
    config = federation.config(SILOS[0])
    policy = config.with_name("policy.yaml")
    for command in (("--help",), ("ledger", "show", "-c", config), ("policy", "check", policy)):
        name = " ".join(["fedward-silo", *(part for part in command if isinstance(part, str) and part != "-c")])
        seconds[name] = [command_seconds(command) for _ in range(runs)]
    return dict(reversed(seconds.items()))


def agent_seconds(federation: Federation) -> float:
    """Of one agent from its start until it says that it is ready."""
    silo = SILOS[0]
    federation.log(silo).unlink(missing_ok=True)
    federation.start_silo(silo)
    federation.await_ready(silo)
    used = psutil.Process(federation.processes[silo].pid).cpu_times()
    federation.processes[silo].terminate()
    federation.processes[silo].wait()
    del federation.processes[silo]
    return float(used.user + used.system)


def charge(federation: Federation) -> None:
    """Give the first silo's ledger releases that only a composition of sampled mechanisms adds up."""
    study, policy = Study.model_validate(STUDY), federation.policy_of(SILOS[0])
    path = federation.place.state(SILOS[0]) / "ledger.sqlite3"
    with Ledger.open(path, Genesis.of(policy), budget_epsilon=policy.budget.epsilon) as ledger:
        for number in range(plan(study).last + 1):
            ledger.charge(Debit(study.digest, policy.digest, number, 1, plan(study).round_costs(number)))


def command_seconds(command: Sequence[str | Path]) -> float:
    """Of one command from its start to its end."""
    return _spent(lambda: subprocess.run([script("fedward-silo"), *map(str, command)], check=True, capture_output=True))


def _spent(work: Callable[[], object]) -> float:
    """What the children that `work` waits for used."""
    before = os.times()
    work()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


if __name__ == "__main__":
    sys.exit(main())
