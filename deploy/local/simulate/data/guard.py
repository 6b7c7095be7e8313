"""Keeps a hospital's records out of simulations, which nobody charges and whose noise protects nobody.

Guarantees: a file is refused if an agent's configuration names it under `data:`, or the folder that it lies in,
whatever leads to it: a symbolic link, a hard link, or a copy with the same bytes. So is a table most of whose rows
stand in a file that is named, in what a statement gives, or in what one of the agent's studies keeps (`likeness`). What
could not be compared is told. Configurations of this machine are looked for where they are likely: those that are given
or that the environment names; those of running agents, where one that may not be read refuses every file; YAML files in
`/etc/fedward`, the home and the working folder, the data's folder and the one above, and one folder below each of
these; and YAML files in the other folders above the data. A configuration elsewhere, of an agent that does not run, is
not found: for this, and for what `likeness` does not see, stands the word of whoever says `--public`, which the output
keeps (docs/decisions.md).
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.local.simulate.data.likeness import Columns, alike, as_cell, columns_of
from deploy.local.simulate.errors import SimulationError
from silo_agent.config import AgentConfig, NamedData, SqlSource, named_data
from silo_agent.data.sources import sql
from silo_agent.data.sources.opening import SUFFIXES
from silo_agent.data.sources.snapshot import unpack
from silo_agent.data.table import Table
from silo_agent.errors import SiloError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import kept_rows

VARIABLE: Final = "FEDWARD_AGENT_CONFIG"
"""The variable from which `fedward-silo` takes its configuration."""
_USUAL: Final = Path("/etc/fedward")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_OPTIONS: Final = ("-c", "--config")
_PROCESSES: Final = Path("/proc")
_MOST_BYTES: Final = 1 << 30
"""A table that is larger is compared as a whole and not by its rows."""


def require_no_agents_data(files: Iterable[Path], configurations: Iterable[Path] = ()) -> tuple[str, ...]:
    """Raise `SimulationError` if one of the files is an agent's data. Returns what could not be compared, as sentences.

    `configurations` are looked at beside those that are found; one that is no agent's raises `SimulationError` too.
    """
    given, asked = tuple(configurations), tuple(files)
    for path in given:
        if not named_data(path):
            msg = f"{path} is no agent's configuration, or names no data; give an agent.yaml or leave out --agent"
            raise SimulationError(msg)
    found = {one: named_data(one) for one in (*given, *_of_running_agents(), *likely_configurations(asked))}
    named = {configuration: data for configuration, data in found.items() if data}
    for configuration, data in named.items():
        for file in asked:
            if any(_same(file, own) for own in (*data.paths, *_files(data))):
                raise _refusal(file, f"is what {configuration} names under data")
    return _require_other_rows(asked, named) if named else ()


def _require_other_rows(asked: Iterable[Path], named: Mapping[Path, NamedData]) -> tuple[str, ...]:
    tables, unseen = {file: _table(file) for file in asked}, list[str]()
    for configuration, data in named.items():
        for said, own in _own_tables(configuration, data, unseen):
            for file, table in tables.items():
                if table is not None and alike(table, own):
                    raise _refusal(file, f"has most rows of {said}")
    unseen += [f"the rows of {file}" for file, table in tables.items() if table is None]
    return tuple(f"not compared: {one}" for one in dict.fromkeys(unseen))


def _refusal(file: Path, why: str) -> SimulationError:
    return SimulationError(
        f"{file} {why}: a hospital's records enter no simulation, whose results nobody charges; use public or made-up"
        " records, or run the study with the agent"
    )


def _own_tables(configuration: Path, data: NamedData, unseen: list[str]) -> Iterator[tuple[str, Columns]]:
    """The tables that an agent reads or keeps, with what they are. What cannot be looked at is added to `unseen`."""
    for path in data.paths:
        for file in _tables_in(path):
            said = f"{file}, which {configuration} names under data"
            table = _table(file)
            if table is None:
                unseen.append(said)
            else:
                yield said, table
    for study, source in data.databases.items():
        said = f"the database of {study}, which {configuration} names"
        result = _result(source)
        if result is None:
            unseen.append(said)
        else:
            yield said, result
    try:
        yield from ((f"what a study of {configuration} keeps", table) for table in _kept(configuration))
    except Exception as error:  # noqa: BLE001  # a key, a folder or a file that may not be read, or of another version
        unseen.append(f"the rows that studies of {configuration} keep ({type(error).__name__})")


def _files(data: NamedData) -> list[Path]:
    """The files of databases."""
    return [source.file for source in data.databases.values() if source.file is not None]


def _tables_in(path: Path) -> list[Path]:
    """The tables that an agent would read where its configuration points."""
    if path.is_dir():
        return [Path(entry.path) for entry in _entries(path) if entry.name.endswith(SUFFIXES)]
    return [path]


def _result(source: SqlSource) -> Columns | None:
    """What an agent's statement gives; None if it cannot be read, or if a server would have to be asked."""
    if source.file is None:
        return None
    try:
        names, rows = sql.columns(source), [row for part in sql.rows(source) for row in part.tuples()]
        return {name: [as_cell(row[place]) for row in rows] for place, name in enumerate(names)}
    except SiloError:
        return None


def _table(file: Path) -> Columns | None:
    """A file's columns; None if it cannot be read as a table."""
    try:
        return columns_of(file) if file.stat().st_size <= _MOST_BYTES else None
    except Exception:  # noqa: BLE001  # not readable, or no table
        return None


def _kept(configuration: Path) -> Iterator[Columns]:
    """The rows that the agent's studies keep, opened with the silo's key."""
    settings = AgentConfig.load(configuration, whole=False)
    for content in kept_rows(StateFolder(settings.state), settings.key_holder):
        tables = list(unpack(content).tables)
        if tables:
            yield Table.joined("", tables, tables[0].columns).columns


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
    """Whether a file is what is named, lies in the folder that is named, or has the same bytes as a file of either."""
    with suppress(OSError):
        if file.resolve().is_relative_to(named.resolve()) or file.samefile(named):
            return True
    own = [path for path in named.rglob("*") if path.is_file()] if named.is_dir() else [named]
    return any(_same_bytes(file, one) for one in own)


def _same_bytes(file: Path, other: Path) -> bool:
    with suppress(OSError):
        return file.samefile(other) or (file.stat().st_size > 0 and filecmp.cmp(file, other, shallow=False))
    return False
