"""What the faults are planted into: modules and rooms, and for each file the tests that stand for it.

A room's files are found by patterns. The tests of a file are those that mirror it: `a/b/c.py` has
`tests/a/b/test_c.py`, and if those pass, all of its folder. Where there is no such test file, the folder's stand alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

import yaml

from bench.mutants.making import Mutant, faults, statements


@dataclass(frozen=True)
class Module:
    """Files, and the tests that stand for them."""

    files: tuple[str, ...]
    stages: tuple[tuple[str, ...], ...]
    """Arguments of pytest: the module's own tests, and its neighbours'."""


@dataclass(frozen=True)
class Campaign:
    """What `modules.yaml` says."""

    modules: Mapping[str, Module]
    rooms: Mapping[str, tuple[str, ...]]
    """The patterns of each room."""
    tests: Mapping[str, tuple[tuple[str, ...], ...]]
    """The tests of files for which their own do not stand alone."""
    everywhere: tuple[str, ...]
    """Tests that stand for every file as well: they read its text."""

    def files_of(self, root: Path, room: str) -> list[str]:
        """The files of a room, in order. A package's own file only names what is in it."""
        files = {path for pattern in self.rooms[room] for path in root.glob(pattern) if path.name != "__init__.py"}
        return sorted(str(path.relative_to(root)) for path in files)

    def stages_of(self, root: Path, path: str) -> Sequence[Sequence[str]]:
        """The tests that stand for a file: its own, those of its folder if these pass, and those of every file."""
        around = folder_tests(root, path)
        own = self.tests.get(path) or [own_tests(root, path) or around]
        if not path.endswith(".py"):
            return own
        return [*own, *([around] if around not in own else []), self.everywhere]


def read_campaign(path: Path) -> Campaign:
    """Read `modules.yaml`."""
    held = yaml.safe_load(path.read_text("utf-8"))
    modules = {name: Module(tuple(each["files"]), _stages(each)) for name, each in held["modules"].items()}
    tests = {each.files[0]: each.stages for each in modules.values() if len(each.files) == 1}
    tests |= {name: _stages(each) for name, each in held["tests"].items()}
    rooms = {name: tuple(patterns) for name, patterns in held["rooms"].items()}
    return Campaign(modules, rooms, tests, tuple(held["everywhere"]))


def own_tests(root: Path, path: str) -> list[str]:
    """The test file that mirrors a file; nothing if there is none."""
    file = Path(path)
    mirrored = Path("tests", *file.parent.parts, f"test_{file.stem}.py")
    return [str(mirrored)] if (root / mirrored).is_file() else []


def folder_tests(root: Path, path: str) -> list[str]:
    """The test files of the nearest folder that mirrors one around a file."""
    for folder in Path(path).parents:
        tests = sorted((root / "tests" / folder).glob("test_*.py"))
        if tests:
            return [str(each.relative_to(root)) for each in tests]
    msg = f"no folder around {path} has tests"
    raise FileNotFoundError(msg)


def share(root: Path, paths: Sequence[str], count: int, seed: int) -> dict[str, list[Mutant]]:
    """At most `count` faults, which the files share by how many statements they have, in the order of the files.

    A smaller sample is part of a larger one. Where a file gets its first fault within its share is drawn, so a file too
    small for a whole one has its turn on some days.
    """
    draw = random.Random(f"{seed} {' '.join(paths)}")  # noqa: S311 - a draw that anybody can repeat
    turns: list[tuple[float, str, float, Iterator[Mutant]]] = []
    for path in paths:
        step = 1 / max(1, statements((root / path).read_text("utf-8"), path))
        heappush(turns, (draw.random() * step, path, step, faults(root, [path], seed)))
    by_file: dict[str, list[Mutant]] = {path: [] for path in paths}
    while turns and sum(map(len, by_file.values())) < count:
        at, path, step, rest = heappop(turns)
        mutant = next(rest, None)
        if mutant is not None:
            by_file[path].append(mutant)
            heappush(turns, (at + step, path, step, rest))
    return {path: mutants for path, mutants in by_file.items() if mutants}


def _stages(entry: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(entry[name]) for name in ("tests", "neighbours") if entry.get(name))
