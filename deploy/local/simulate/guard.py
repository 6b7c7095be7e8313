"""Keeps a hospital's records out of simulations, which nobody charges and whose noise protects nobody.

Guarantees: a file that a configuration of an agent names under `data:` is refused, whatever leads to it: a symbolic
link, a hard link or a copy with the same bytes. Configurations of this machine are looked for where they are likely:
those that are given or that the environment names; those of running agents, where one that may not be read refuses
every file; YAML files in `/etc/fedward`, the home and the working folder, the data's folder and the one above, and one
folder below each of these; and YAML files in the other folders above the data. A configuration elsewhere, of an agent
that does not run, is not found, and changed records are not recognised: for these stands the word of whoever says
`--public`, which the output keeps (docs/decisions.md).
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
    for configuration in dict.fromkeys([*given, *_of_running_agents(), *likely_configurations(asked)]):
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
    near, above = [_USUAL, Path.home(), Path.cwd()], list[Path]()
    for file in files:
        # A link's own folder counts too.
        for path in (Path(os.path.abspath(file)), file.resolve()):  # noqa: PTH100
            near += path.parents[:2]
            above += path.parents[2:]
    for folder in dict.fromkeys([*near, *above]):
        yield from _documents(folder)
    for folder in dict.fromkeys(near):
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
    """Configurations that running agents name in their command lines, where the system shows these.

    Raises `SimulationError` for one that may not be read.
    """
    for entry in _entries(_PROCESSES):
        if not entry.name.isdigit():
            continue
        process = _PROCESSES / entry.name
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any("fedward-silo" in word or "silo_agent" in word for word in words):
                for option, value in zip(words, [*words[1:], ""], strict=True):
                    if option in _OPTIONS:
                        yield from _readable(process, value)
                    elif option.startswith("--config="):
                        yield from _readable(process, option.removeprefix("--config="))
        except PermissionError:
            msg = (
                f"process {entry.name} is an agent whose configuration may not be read, so nobody can tell which files"
                " are its hospital's; simulate on another machine, or on made-up records"
            )
            raise SimulationError(msg) from None
        except OSError:  # the process has ended meanwhile
            continue


def _readable(process: Path, configuration: str) -> Iterator[Path]:
    """The configuration of a process, if there is such a file. Raises `PermissionError` if it may not be read."""
    path = Path(configuration)
    if not path.is_absolute():
        path = (process / "cwd").readlink() / path
    with suppress(FileNotFoundError, IsADirectoryError):
        path.open("rb").close()
        yield path


def _same(file: Path, named: Path) -> bool:
    """Whether two paths lead to one file, or to files with the same bytes."""
    with suppress(OSError):
        if file.resolve() == named.resolve() or file.samefile(named):
            return True
        return file.stat().st_size > 0 and filecmp.cmp(file, named, shallow=False)
    return False
