"""One hostile member against a coordinator: beside a study of three honest silos, and inside the roster of one.

All parties are processes of their own over mutual TLS on loopback. Beside the study: it runs twice, first beside a
neutral load, a process that keeps one core busy, then beside the hostile member, which keeps the same core busy with
attacks in turns (`bench.attacks.hostile`), each as fast as that core can. The attacker has a valid certificate and is
not one of the study's silos. Inside the roster: a short study of three honest silos and the hostile one runs with
everybody honest, and then once for each thing that the hostile one may do (`bench.attacks.hostile.roster`), beside the
neutral load.

`python -m bench.attacks.abuse SECONDS ROUNDS` sets for how long it attacks at least, and how long the first study is;
the defaults are those of the figures that are wanted. `python -m bench.attacks.abuse inside [ROW ...]` runs the rows
inside the roster alone, or those whose names contain one of the words.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from bench.attacks.hostile import roster
from bench.attacks.hostile.scene import Watched, attacker, data, enrol, federation_of, neutral, run, study
from bench.attacks.hostile.target import ATTACKS
from bench.places import OUT
from bench.table import Criterion, judge
from deploy.local.folders import empty
from deploy.local.parties import FederationPaths

SECONDS, ROUNDS = 300.0, 120
BASELINE_SECONDS, SLOWER = 180.0, 1.5
GROWTH_MIB, STATUS_SECONDS, LOG_MIB = 256, 10.0, 64


def main() -> int:
    """Run all studies, judge, and write `bench/out/abuse.json`."""
    core = max(os.sched_getaffinity(0))
    if sys.argv[1:2] == ["inside"]:
        rows, runs = roster.figures(core, sys.argv[2:])
        return judge("abuse-inside", rows, {"inside": runs})
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS  # the second argument
    quiet, _, _ = _beside(OUT / "abuse-neutral", rounds, core, seconds=0.0)
    attacked, told, counted = _beside(OUT / "abuse", rounds, core, seconds=seconds)
    rows, runs = roster.figures(core)
    return judge("abuse", [*_figures(quiet, attacked, told, counted, full=seconds >= SECONDS), *rows], {
        "rounds": rounds, "seconds": seconds, "neutral": vars(quiet), "attacked": vars(attacked),
        "attacks": told, "counted": counted, "inside": runs,
    })  # fmt: skip


def _figures(
    neutral: Watched, attacked: Watched, told: dict[str, dict[str, float]], counted: dict[str, float], *, full: bool
) -> list[Criterion]:
    seen, ratio = sum(told["refused"].values()), attacked.seconds / neutral.seconds
    growth = attacked.most_mib - neutral.most_mib
    idle = [name for name in ATTACKS if not told["tried"].get(name)]
    shown = f"{attacked.slowest_status:.1f} s, {attacked.failed_statuses} of {attacked.statuses} failed"
    figures = [
        Criterion("the study beside a neutral load", f"ends, and lasts {BASELINE_SECONDS:g} s",
                  f"{neutral.state}, {neutral.seconds:.0f} s",
                  neutral.state == "finished" and (not full or neutral.seconds >= BASELINE_SECONDS)),
        Criterion("the study under attack", "ends", f"{attacked.state}, {attacked.seconds:.0f} s",
                  attacked.state == "finished"),
        Criterion("its time, of the neutral load's", f"at most {SLOWER}", f"{ratio:.2f}", ratio <= SLOWER),
        Criterion("attacks tried", f"all {len(ATTACKS)}", f"{len(ATTACKS) - len(idle)}",
                  not idle and not told["faults"]),
        Criterion("coordinator's memory above the neutral load's", f"at most {GROWTH_MIB} MiB",
                  f"{growth:.0f} MiB (most {attacked.most_mib:.0f}, at the end {attacked.last_mib:.0f})",
                  growth <= GROWTH_MIB),
        Criterion("refused calls in the metrics, under the certificate", f"at least {seen:,.0f}, those the member saw",
                  f"{sum(counted.values()):,.0f}", sum(counted.values()) >= seen > 0),
        Criterion("an operator's status", f"within {STATUS_SECONDS:g} s, none fails", shown,
                  attacked.slowest_status <= STATUS_SECONDS and not attacked.failed_statuses),
        Criterion("coordinator's log", f"at most {LOG_MIB} MiB", f"{attacked.log_mib:.1f} MiB",
                  attacked.log_mib <= LOG_MIB),
    ]  # fmt: skip
    for name, rate in told["rates"].items():
        print(f"  {name}: {told['tried'][name]:,} tries, {rate:,.0f} a second")
    if told["faults"]:
        print(f"  faults of attacks: {told['faults']}")
    return figures


def _beside(
    folder: Path, rounds: int, core: int, *, seconds: float
) -> tuple[Watched, dict[str, dict[str, float]], dict[str, float]]:
    """Run the study once. With `seconds`, beside the hostile member; return what it said and what was counted."""
    empty(folder)
    enrol(FederationPaths(folder / "federation"))
    federation = federation_of(folder, study(rounds), data(folder))
    load = attacker(folder, core, seconds) if seconds else neutral(core)
    seen, counted = run(federation, load, seconds=seconds)
    told = json.loads((folder / "told.json").read_text(encoding="utf-8")) if seconds else {}
    return seen, told, counted


if __name__ == "__main__":
    sys.exit(main())
