"""Plant a seeded sample of faults into modules and rooms, one at a time, and see whether their tests find them.

A module is a file or a few, with 100 faults. A room is a folder, with 150 faults that its files share by how many
statements they have. `modules.yaml` names both. For a module it says which tests: its own, and its neighbours' if those
pass. For a file of a room they are those of the same name, and those of its folder if these pass (`rooms`). Before
anything is planted, all of them must pass, and they must fail if the file cannot be imported: so it is the copy that is
tested. A fault is found if a test fails, or if the tests take five times as long as they did. `equivalent.yaml` has the
faults that no test can or need find, each with its reason. The run succeeds if 90 % of the faults of each module and
room are found and every other one has a reason. The seed is the date unless one is given, so that every day draws other
faults. With `--remember`, faults that were found before in this very file are not planted again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Self

import yaml

from bench.mutants.making import Key, Mutant, planted, sample
from bench.mutants.rooms import Campaign, own_tests, read_campaign, share
from bench.mutants.running import Copy
from bench.places import OUT, ROOT
from bench.table import Criterion, judge

HERE: Final = Path(__file__).parent
MEMORY: Final = OUT / "mutants-found.json"
LEAST: Final = 0.9
SAMPLE: Final = 100
ROOM_SAMPLE: Final = 150
LEAST_SECONDS: Final = 20.0
SLOWER: Final = 5.0


class UntestedError(Exception):
    """The tests cannot say anything about a file: they fail without a fault, or do not read it."""


@dataclass(frozen=True)
class MutantVerdict:
    """What became of one fault."""

    mutant: Mutant
    outcome: str
    """`killed`, `late`, `survived`, or `not run` if the time was up."""
    seconds: float
    by: str
    """The test that failed."""
    why: str | None
    """Why no test finds it, if that is written down."""


def main() -> int:
    """Run what was asked for, print the table and the survivors, and judge."""
    asked = _arguments()
    print(f"seed {asked.seed}", flush=True)
    campaign = read_campaign(HERE / "modules.yaml")
    reasons = read_reasons(HERE / "equivalent.yaml")
    everything = not (asked.modules or asked.rooms or asked.files)
    verdicts: dict[str, list[MutantVerdict]] = {}
    with tempfile.TemporaryDirectory(prefix="fedward-mutants-") as folder:
        copies = [Copy(ROOT, Path(folder) / str(number)) for number in range(asked.workers)]
        with MutantBench(copies, reasons, campaign.everywhere, remember=asked.remember) as bench:
            root = copies[0].root  # the working tree may be edited meanwhile
            bench.give(asked.hours)
            for name in campaign.modules if everything else asked.modules:
                module = campaign.modules[name]
                mutants = sample(root, module.files, asked.sample or SAMPLE, asked.seed)
                verdicts[name] = bench.judged(name, module.files, (*module.stages, campaign.everywhere), mutants)
            for path in asked.files:
                mutants = sample(root, [path], asked.sample or SAMPLE, asked.seed)
                verdicts[path] = bench.judged(path, [path], campaign.stages_of(root, path), mutants)
            for name in campaign.rooms if everything else asked.rooms:
                bench.give(asked.hours)
                verdicts[f"room {name}"] = _room(bench, campaign, root, name, asked)
    figures = [figure_of(name, each) for name, each in verdicts.items()]
    details = {name: [asdict(verdict) for verdict in each] for name, each in verdicts.items()}
    print(f"\nseed {asked.seed}")
    return judge("mutants", figures, details)


def _room(
    bench: MutantBench, campaign: Campaign, root: Path, name: str, asked: argparse.Namespace
) -> list[MutantVerdict]:
    """Judge a sample of a room's faults, file by file."""
    verdicts: list[MutantVerdict] = []
    shared = share(root, campaign.files_of(root, name), asked.sample or ROOM_SAMPLE, asked.seed)
    print(f"room {name}: {sum(map(len, shared.values()))} faults in {len(shared)} files", flush=True)
    for path, mutants in shared.items():
        if not own_tests(root, path) and path not in campaign.tests:
            print(f"{path} has no test file of its own: those of its folder stand for it", flush=True)
        verdicts += bench.judged(path, [path], campaign.stages_of(root, path), mutants)
    return verdicts


class MutantBench:
    """Copies that work side by side."""

    def __init__(
        self, copies: Sequence[Copy], reasons: Mapping[Key, str], everywhere: Sequence[str], *, remember: bool
    ) -> None:
        """`everywhere`: tests that read a file as a text, and need not fail if it cannot be imported."""
        self._copies, self._everywhere = copies, everywhere
        self._reasons = reasons
        self._remember = remember
        self._until = math.inf
        self._took: dict[tuple[str, ...], float] = {}
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for copy in self._copies:
            copy.__exit__(None, None, None)

    def give(self, hours: float) -> None:
        """Let the time for what comes now begin: faults that it does not suffice for are not run."""
        self._until = time.monotonic() + 3600 * hours

    def judged(
        self, name: str, paths: Sequence[str], stages: Sequence[Sequence[str]], mutants: Sequence[Mutant]
    ) -> list[MutantVerdict]:
        """Judge faults by a module's own tests, and by its neighbours' if those pass, and print the survivors.

        None is run unless the tests pass without a fault, and fail with a file that cannot be read.
        """
        state = _state_of(self._copies[0].root, paths, stages)
        known = _remembered(state) if self._remember else {}
        try:
            clean = [self._clean(name, paths, tests) for tests in stages]
        except UntestedError as error:
            print(error, flush=True)
            return [MutantVerdict(mutant, "not run", 0.0, "", None) for mutant in mutants]
        timed = list(zip(stages, (max(LEAST_SECONDS, SLOWER * seconds) for seconds in clean), strict=True))
        took = " and ".join(f"{seconds:.1f}" for seconds in clean)
        print(f"{name}: {len(mutants)} faults, the tests take {took} s", flush=True)

        def judge_one(mutant: Mutant) -> MutantVerdict:
            why = self._reasons.get(mutant.key)
            if mutant.key in known:
                return MutantVerdict(mutant, "killed", 0.0, known[mutant.key], why)
            if why is not None and self._remember:
                return MutantVerdict(mutant, "survived", 0.0, "", why)
            if time.monotonic() > self._until:
                return MutantVerdict(mutant, "not run", 0.0, "", why)
            copy = self._free.get()
            try:
                runs = copy.test_with(mutant.path, planted(copy.root, mutant), timed)
            finally:
                self._free.put(copy)
            outcome = {"passed": "survived", "failed": "killed", "late": "late"}[runs[-1].outcome]
            return MutantVerdict(mutant, outcome, sum(run.seconds for run in runs), runs[-1].failed, why)

        with ThreadPoolExecutor(len(self._copies)) as pool:
            verdicts = list(pool.map(judge_one, mutants))
        _remember(state, verdicts)
        _print_survivors(verdicts)
        return verdicts

    def _clean(self, name: str, paths: Sequence[str], tests: Sequence[str]) -> float:
        """Seconds without a fault. Raises UntestedError."""
        copy, once = self._free.get(), tuple(tests)
        try:
            if once not in self._took:
                clean = copy.test(tests, 3600.0)
                if clean.outcome != "passed":
                    msg = f"{name}: the tests do not pass as it is ({clean.failed})\n{copy.told()}"
                    raise UntestedError(msg)
                self._took[once] = clean.seconds
            for path in paths if tests != self._everywhere else ():
                unreadable = "exit 1\n" if path.endswith(".sh") else "raise ImportError\n"
                if copy.test_with(path, unreadable, [(tests, 3600.0)])[-1].outcome != "failed":
                    msg = f"{name}: the tests pass without {path}; they read another copy of it"
                    raise UntestedError(msg)
        finally:
            self._free.put(copy)
        return self._took[once]


def figure_of(name: str, verdicts: Sequence[MutantVerdict]) -> Criterion:
    """The line of one module."""
    outcomes = [verdict.outcome for verdict in verdicts]
    killed, late, survived = (outcomes.count(outcome) for outcome in ("killed", "late", "survived"))
    unexplained = sum(1 for verdict in verdicts if verdict.outcome == "survived" and verdict.why is None)
    skipped = outcomes.count("not run")
    text = f"{killed} killed, {late} late, {survived} survived ({unexplained} without a reason)"
    enough = killed + late >= LEAST * len(verdicts)
    met = enough and not unexplained and not skipped
    return Criterion(
        name, f">= {LEAST:.0%} of {len(verdicts)}", text + (f", {skipped} not run" if skipped else ""), met
    )


def read_reasons(path: Path) -> dict[Key, str]:
    """Why some faults are not found, by file and changed lines."""
    held = yaml.safe_load(path.read_text("utf-8")) or {}
    return {
        (file, entry.get("in", ""), entry["before"], entry["after"]): entry["why"]
        for file, entries in held.items()
        for entry in entries
    }


def _print_survivors(verdicts: Sequence[MutantVerdict]) -> None:
    for verdict in verdicts:
        if verdict.outcome == "survived" and verdict.why is None:
            mutant = verdict.mutant
            print(f"  survived: {mutant.path}:{mutant.line} in {mutant.where or 'the module'} ({mutant.operator})")
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)


def _state_of(root: Path, paths: Sequence[str], tests: Sequence[Sequence[str]]) -> str:
    """A digest of the module and of the tests' names: tests that changed may find more, not less."""
    content = [(root / path).read_text("utf-8") for path in paths]
    return hashlib.sha256(json.dumps([content, tests]).encode()).hexdigest()


def _remembered(state: str) -> dict[Key, str]:
    held = json.loads(MEMORY.read_text("utf-8")) if MEMORY.exists() else {}
    return {(path, at, before, after): by for path, at, before, after, by in held.get(state, [])}


def _remember(state: str, verdicts: Sequence[MutantVerdict]) -> None:
    OUT.mkdir(exist_ok=True)
    held = json.loads(MEMORY.read_text("utf-8")) if MEMORY.exists() else {}
    known = {verdict.mutant.key: verdict.by for verdict in verdicts if verdict.outcome == "killed"}
    held[state] = [(*key, by) for key, by in (_remembered(state) | known).items()]
    MEMORY.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--modules", nargs="*", default=[], help="names in modules.yaml")
    arguments.add_argument("--rooms", nargs="*", default=[], help="names in modules.yaml")
    arguments.add_argument("--files", nargs="*", default=[], help="files by themselves; everything if nothing is named")
    arguments.add_argument("--sample", type=int, help=f"faults: {SAMPLE} a module or file, {ROOM_SAMPLE} a room")
    arguments.add_argument("--seed", type=int, default=int(f"{datetime.now(UTC):%Y%m%d}"), help="by default the date")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--hours", type=float, default=6.0, help="for each room, and for all modules together")
    arguments.add_argument("--remember", action="store_true", help="do not run again what was found or has a reason")
    return arguments.parse_args()


if __name__ == "__main__":
    sys.exit(main())
