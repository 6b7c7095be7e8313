"""The hostile member inside the roster of a study: what each of its acts costs the three honest silos.

Wanted is for every act that the study ends with a model, that no honest silo is lost, and that it takes at most the
time of the same study with everybody honest, the hostile silo's budget of slowness, and one attempt more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.attacks.hostile.member import PHASES
from bench.attacks.hostile.scene import (
    MEMBER,
    SILOS,
    Load,
    Watched,
    attacker,
    data,
    enrol,
    federation_of,
    neutral,
    study,
    watched,
)
from bench.places import OUT
from bench.table import Criterion
from coordinator.core.state import Phase
from deploy.local.folders import empty
from deploy.local.parties import FederationPaths

ALL: Final = tuple(sorted((*SILOS, MEMBER)))
ROUNDS: Final = 4
"""Training rounds. Round 0 and the metrics come besides."""
LIMITS: Final = dict.fromkeys(("offer", "keys", "train", "open", "solve"), 5.0)
"""Seconds of every phase: more than an honest silo takes on a busy machine, few enough for many rows."""
FLOOD_SECONDS: Final = 57.0
"""In which all attacks have had their turn once, 1.5 seconds each."""
RARE: Final = frozenset({Phase.VOID, Phase.SHARE, Phase.CATCH_UP, Phase.JUDGE, Phase.EXAMINE, Phase.RECOUNT})
"""Phases that a study whose silos are all there does not have."""


@dataclass(frozen=True)
class RosterRun:
    """One run of the study."""

    name: str
    act: str = "behaves"
    phase: str = ""
    mode: str = "local"
    floods: bool = False


ROWS: Final = (
    *(RosterRun(f"silent in every {phase}", "silent", phase) for phase in (*PHASES, Phase.GATHER) if phase not in RARE),
    RosterRun("silent in every gather, distributed noise", "silent", Phase.GATHER, "distributed"),
    RosterRun("answers just before each deadline", "late"),
    RosterRun("uploads random residues", "spoils"),
    RosterRun("uploads random residues, distributed noise", "spoils", mode="distributed"),
    RosterRun("deals wrong shares", "deals wrongly"),
    RosterRun("accuses falsely with a key", "accuses"),
    RosterRun("accuses falsely without evidence", "accuses without evidence"),
    RosterRun("floods calls", floods=True),
)


def figures(core: int, words: Sequence[str] = ()) -> tuple[list[Criterion], dict[str, Any]]:
    """Run the honest studies and every row whose name contains one of the words. Return the table and what was seen.

    All studies run one after another in one federation, whose processes are started once.
    """
    rows = [row for row in ROWS if not words or any(word in row.name for word in words)]
    folder = OUT / "abuse-inside"
    empty(folder)
    enrol(FederationPaths(folder / "federation"))
    honest = {
        mode: RosterRun(f"everybody honest, {mode} noise", mode=mode) for mode in sorted({row.mode for row in rows})
    }
    order = [*honest.values(), *rows]
    federation = federation_of(folder, _study(0, order[0]), data(folder, ALL))
    federation.names = tuple(str(_study(number, row)["name"]) for number, row in enumerate(order))
    plan: dict[str, Any] = {"config": str(federation.config(MEMBER)), "limits": LIMITS, "acts": {}}
    federation.hostile = folder / "hostile.json"
    _write(federation.hostile, plan)
    seen: dict[str, Watched] = {}
    with federation:
        for number, row in enumerate(order):
            federation.study_file = folder / f"study-{number}.yaml"
            federation.study_file.write_text(yaml.safe_dump(_study(number, row)), encoding="utf-8")
            federation.approve()
            plan["acts"][federation.study.digest] = {"name": row.act, "phase": row.phase}
            _write(federation.hostile, plan)
            print(f"inside: {row.name}", flush=True)
            load: Load = attacker(folder, core, FLOOD_SECONDS) if row.floods else neutral(core)
            seen[row.name], _ = watched(federation, load)
            # A run that is cut short has told what it has seen.
            print(_line(row.name, seen[row.name], seen.get(honest[row.mode].name)), flush=True)
    lines = [_line(one.name, seen[one.name]) for one in honest.values()]
    lines += [_line(row.name, seen[row.name], seen[honest[row.mode].name]) for row in rows]
    return lines, {name: vars(one) for name, one in seen.items()}


def _study(number: int, row: RosterRun) -> dict[str, object]:
    """The study of a row."""
    return study(ROUNDS, silos=ALL, mode=row.mode, deadlines=LIMITS, max_attempts=8, name=f"abuse-{number}")


def _write(file: Path, plan: dict[str, Any]) -> None:
    """Put a plan in place at once: the hostile agent may read it at any time."""
    fresh = file.with_name(file.name + ".new")
    fresh.write_text(json.dumps(plan), encoding="utf-8")
    fresh.replace(file)


def _line(name: str, seen: Watched, honest: Watched | None = None) -> Criterion:
    """Judge one run."""
    lost = sorted(silo for silo, state in seen.members.items() if silo != MEMBER and state == "left")
    ended = seen.state == "finished" and not lost
    slow = seen.slow_seconds.get(MEMBER, 0.0)
    measured = f"{seen.seconds:.0f} s, {seen.state}, {MEMBER} {seen.members.get(MEMBER, 'unknown')}, slow {slow:.0f} s"
    measured += f", lost: {', '.join(lost)}" if lost else ""
    if honest is None:
        return Criterion(f"inside: {name}", "ends, nobody is lost", measured, ended)
    most = honest.seconds + seen.budget + honest.longest_round
    wanted = f"at most {most:.0f} s ({honest.seconds:.0f} + {seen.budget:.0f} + {honest.longest_round:.0f})"
    return Criterion(f"inside: {name}", wanted, measured, ended and seen.seconds <= most)
