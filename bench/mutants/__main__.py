"""Plant a seeded sample of faults into each module, one at a time, and see whether its tests find them.

`modules.yaml` says which tests: a module's own, and its neighbours' if those pass. Before anything is planted, all of
them must pass, and they must fail if the module cannot be imported: so it is the copy that is tested. A fault is found
if a test fails, or if the tests take five times as long as they did. `equivalent.yaml` has the faults that
no test can or need find, each with its reason. The run succeeds if 90 % of each module's faults are found and every
other one has a reason. With `--remember`, faults that were found before in this very module are not planted again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Self

import yaml

from bench.mutants.making import Key, Mutant, planted, sample
from bench.mutants.running import Copy
from bench.table import OUT, Figure, judge

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
MEMORY: Final = OUT / "mutants-found.json"
LEAST: Final = 0.9
LEAST_SECONDS: Final = 20.0
SLOWER: Final = 5.0


@dataclass(frozen=True)
class Verdict:
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
    modules: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "modules.yaml").read_text("utf-8"))
    chosen = {name: each for name, each in modules.items() if not asked.modules or name in asked.modules}
    reasons = read_reasons(HERE / "equivalent.yaml")
    until = time.monotonic() + 3600 * asked.hours
    verdicts: dict[str, list[Verdict]] = {}
    with tempfile.TemporaryDirectory(prefix="fedward-mutants-") as folder:
        bench = Bench([Copy(ROOT, Path(folder) / str(number)) for number in range(asked.workers)], until)
        with bench:
            for name, each in chosen.items():
                verdicts[name] = bench.judged(name, each, reasons, asked)
                _print_survivors(verdicts[name])
    figures = [figure_of(name, each) for name, each in verdicts.items()]
    details = {name: [asdict(verdict) for verdict in each] for name, each in verdicts.items()}
    print(f"\nseed {asked.seed}, at most {asked.sample} faults a module")
    return judge("mutants", figures, details)


class Bench:
    """Copies that work side by side."""

    def __init__(self, copies: Sequence[Copy], until: float) -> None:
        self._copies = copies
        self._until = until
        self._free: SimpleQueue[Copy] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for copy in self._copies:
            copy.__exit__(None, None, None)

    def judged(
        self, name: str, module: Mapping[str, Any], reasons: Mapping[Key, str], asked: argparse.Namespace
    ) -> list[Verdict]:
        """Judge a sample of one module's faults: by its own tests, and by its neighbours' if those pass."""
        paths, stages = module["files"], [each for each in (module["tests"], module.get("neighbours")) if each]
        root = self._copies[0].root  # the working tree may be edited meanwhile
        mutants = sample(root, paths, asked.sample, asked.seed)
        state = _state_of(root, paths, stages)
        known = _remembered(state) if asked.remember else {}
        clean = [self._clean(name, paths, tests) for tests in stages]
        timed = list(zip(stages, (max(LEAST_SECONDS, SLOWER * seconds) for seconds in clean), strict=True))
        took = " and ".join(f"{seconds:.1f}" for seconds in clean)
        print(f"{name}: {len(mutants)} faults, the tests take {took} s", flush=True)

        def judge_one(mutant: Mutant) -> Verdict:
            why = reasons.get(mutant.key)
            if mutant.key in known:
                return Verdict(mutant, "killed", 0.0, known[mutant.key], why)
            if why is not None and asked.remember:
                return Verdict(mutant, "survived", 0.0, "", why)
            if time.monotonic() > self._until:
                return Verdict(mutant, "not run", 0.0, "", why)
            copy = self._free.get()
            try:
                runs = copy.test_with(mutant.path, planted(copy.root, mutant), timed)
            finally:
                self._free.put(copy)
            outcome = {"passed": "survived", "failed": "killed", "late": "late"}[runs[-1].outcome]
            return Verdict(mutant, outcome, sum(run.seconds for run in runs), runs[-1].failed, why)

        with ThreadPoolExecutor(len(self._copies)) as pool:
            found = list(pool.map(judge_one, mutants))
        _remember(state, found)
        return found

    def _clean(self, name: str, paths: Sequence[str], tests: Sequence[str]) -> float:
        """Seconds without a fault. Raises SystemExit unless tests pass, and fail with a module that cannot be read."""
        copy = self._free.get()
        try:
            clean = copy.test(tests, 3600.0)
            if clean.outcome != "passed":
                sys.exit(f"{name}: the tests do not pass as it is ({clean.failed})\n{copy.told()}")
            for path in paths:
                if copy.test_with(path, "raise ImportError\n", [(tests, 3600.0)])[-1].outcome != "failed":
                    sys.exit(f"{name}: the tests pass without {path}; they read another copy of it")
        finally:
            self._free.put(copy)
        return clean.seconds


def figure_of(name: str, verdicts: Sequence[Verdict]) -> Figure:
    """The line of one module."""
    outcomes = [verdict.outcome for verdict in verdicts]
    killed, late, survived = (outcomes.count(outcome) for outcome in ("killed", "late", "survived"))
    unexplained = sum(1 for verdict in verdicts if verdict.outcome == "survived" and verdict.why is None)
    skipped = outcomes.count("not run")
    text = f"{killed} killed, {late} late, {survived} survived ({unexplained} without a reason)"
    enough = killed + late >= LEAST * len(verdicts)
    met = enough and not unexplained and not skipped
    return Figure(name, f">= {LEAST:.0%} of {len(verdicts)}", text + (f", {skipped} not run" if skipped else ""), met)


def read_reasons(path: Path) -> dict[Key, str]:
    """Why some faults are not found, by file and changed lines."""
    held = yaml.safe_load(path.read_text("utf-8")) or {}
    return {
        (file, entry.get("in", ""), entry["before"], entry["after"]): entry["why"]
        for file, entries in held.items()
        for entry in entries
    }


def _print_survivors(verdicts: Sequence[Verdict]) -> None:
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


def _remember(state: str, verdicts: Sequence[Verdict]) -> None:
    OUT.mkdir(exist_ok=True)
    held = json.loads(MEMORY.read_text("utf-8")) if MEMORY.exists() else {}
    known = {verdict.mutant.key: verdict.by for verdict in verdicts if verdict.outcome == "killed"}
    held[state] = [(*key, by) for key, by in (_remembered(state) | known).items()]
    MEMORY.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("modules", nargs="*", help="names in modules.yaml; all of them if none is given")
    arguments.add_argument("--sample", type=int, default=100, help="faults for each module")
    arguments.add_argument("--seed", type=int, default=14)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--hours", type=float, default=6.0)
    arguments.add_argument("--remember", action="store_true", help="do not run again what was found or has a reason")
    return arguments.parse_args()


if __name__ == "__main__":
    sys.exit(main())
