"""Keeps a hospital's records out of simulations, which are neither charged nor noised for good.

Guarantees: a file that an agent's configuration on this machine names under `data:` is refused, whatever leads to it: a
symbolic link, a hard link or a copy with the same bytes. Configurations are looked for where they are likely: those
that are given or that the environment names, those of agents that run, `/etc/fedward`, and every YAML file in the
working folder, in the folders above the data, and one folder below each of these. A hospital whose agent runs on
another machine is not protected by this, nor are records that somebody has changed: the researcher's word, `--public`,
stands for those, and the output keeps it (docs/decisions.md).
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.local.simulate.errors import SimulationError
from silo_agent.config import named_data

VARIABLE: Final = "FEDWARD_AGENT_CONFIG"
"""The variable from which `fedward-silo` takes its configuration."""
_USUAL: Final = Path("/etc/fedward")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OPTIONS: Final = ("-c", "--config")
_PROCESSES: Final = Path("/proc")


def require_no_agents_data(files: Iterable[Path], configurations: Iterable[Path] = ()) -> None:
    """Raise `SimulationError` if an agent's configuration names one of the files.

    `configurations` are looked at beside those that are found; one that is no agent's raises `SimulationError` too.
    """
    given, asked = tuple(configurations), tuple(files)
    for path in given:
        if not named_data(path):
            msg = f"{path} is no agent's configuration, or names no data; give an agent.yaml or leave out --agent"
            raise SimulationError(msg)
    for configuration in dict.fromkeys([*given, *likely_configurations(asked)]):
        for named in named_data(configuration):
            for file in asked:
                if _same(file, named):
                    msg = (
                        f"{file} is what {configuration} names under data: a hospital's records enter no simulation,"
                        " whose results nobody charges; use public or made-up records, or run the study with the agent"
                    )
                    raise SimulationError(msg)


def likely_configurations(files: Iterable[Path]) -> Iterator[Path]:
    """Files on this machine that may be an agent's configuration."""
    if os.environ.get(VARIABLE):
        yield Path(os.environ[VARIABLE])
    yield from _of_running_agents()
    folders = [_USUAL, Path.cwd()]
    for file in files:
        for path in (Path(os.path.abspath(file)), file.resolve()):  # noqa: PTH100  # a link's own folder counts too
            folders += path.parents
    for folder in dict.fromkeys(folders):
        yield from _documents(folder)
        for below in _entries(folder):
            with suppress(OSError):
                if below.is_dir():
                    yield from _documents(Path(below.path))


def _documents(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        with suppress(OSError):
            if entry.name.endswith(_SUFFIXES) and entry.is_file():
                yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _of_running_agents() -> Iterator[Path]:
    """Configurations that running processes name in their command lines, where the system shows these."""
    for entry in _entries(_PROCESSES):
        if not entry.name.isdigit():
            continue
        with suppress(OSError, UnicodeDecodeError):
            words = (_PROCESSES / entry.name / "cmdline").read_bytes().decode().split("\0")
            if not any("fedward-silo" in word or "silo_agent" in word for word in words):
                continue
            home = (_PROCESSES / entry.name / "cwd").resolve()
            for option, value in zip(words, [*words[1:], ""], strict=True):
                if option in _OPTIONS and value:
                    yield home / value
                elif option.startswith("--config="):
                    yield home / option.removeprefix("--config=")


def _same(file: Path, named: Path) -> bool:
    """Whether two paths lead to one file, or to files with the same bytes."""
    with suppress(OSError):
        if file.resolve() == named.resolve() or file.samefile(named):
            return True
        return file.stat().st_size > 0 and filecmp.cmp(file, named, shallow=False)
    return False
