"""Public files as the records of virtual silos: a file for each silo, or one table parted by a column.

A record that does not fit the study's schema is left out, as at a silo. Here it is counted and the reason is named,
because anybody may know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.silos import rows_of
from policies.documents.study import DataSchema
from silo_agent.data.errors import MisfitReason, Reasons
from silo_agent.data.reader import Reading, read_records
from silo_agent.data.records import Records
from silo_agent.data.sources.opening import SUFFIXES

_LONGEST: Final = 63
_UNNAMED: Final = "none"


@dataclass(frozen=True, repr=False, eq=False)
class Read:
    """One file, and why records of it are left out."""

    reading: Reading
    reasons: Reasons

    @classmethod
    def of(cls, file: Path, schema: DataSchema, more: Sequence[str] = ()) -> Self:
        """Read a file of public records, with columns that the study need not name. Raises `DataError`."""
        reasons = Reasons()
        return cls(read_records(file, schema, faults=reasons, more=more), reasons)


@dataclass(frozen=True)
class LeftOut:
    """How many records do not fit the schema, and why, by falling count. A record can have several of the reasons."""

    records: int = 0
    reasons: tuple[MisfitReason, ...] = ()

    @classmethod
    def of(cls, tables: Sequence[Read]) -> Self:
        """Those of several files; the first file that has a reason gives its example."""
        first: dict[tuple[str, str], MisfitReason] = {}
        for own in (reason for table in tables for reason in table.reasons.counted()):
            known = first.setdefault((own.column, own.expected), replace(own, records=0))
            first[own.column, own.expected] = replace(known, records=known.records + own.records)
        reasons = tuple(sorted(first.values(), key=lambda reason: -reason.records))
        return cls(sum(table.reading.left_out for table in tables), reasons)


@dataclass(frozen=True, repr=False, eq=False)
class SiloRecords:
    """Records by silo, and which were left out."""

    records: Mapping[str, Records]
    left_out: LeftOut


def data_files(data: Path, silos_by: str | None) -> tuple[Path, ...]:
    """The files that a simulation would read: one table to be parted by a column, or all tables of a folder.

    Raises `SimulationError` if that is not what lies there.
    """
    if data.is_file():
        if silos_by is None:
            msg = f"{data} is one file; say which column makes the silos with --silos-by, or give a folder of files"
            raise SimulationError(msg)
        return (data,)
    found = tuple(sorted(path for path in data.glob("*") if path.suffix in SUFFIXES and path.is_file()))
    if not found:
        msg = f"{data} holds no {' or '.join(SUFFIXES)} file; give a folder with one file for each silo, or a file"
        raise SimulationError(msg)
    if silos_by is not None and len(found) > 1:
        msg = f"{data} holds {len(found)} tables, and --silos-by parts one; give that file, or leave out --silos-by"
        raise SimulationError(msg)
    return found


def read_silos(files: Sequence[Path], schema: DataSchema, silos_by: str | None) -> SiloRecords:
    """The silos' records: a silo for each file, named after it, or for each value of the column in the one file.

    Raises `DataError` for a file of another form, `SimulationError` for two silos of one name.
    """
    if silos_by is None:
        whole = {file: Read.of(file, schema) for file in files}
        names = _names([file.stem for file in whole])
        records = {name: own.reading.records for name, own in zip(names, whole.values(), strict=True)}
        return SiloRecords(records, LeftOut.of(tuple(whole.values())))
    table = Read.of(files[0], schema, (silos_by,))
    texts = np.array(table.reading.texts(silos_by), np.str_)
    values = sorted(set(texts.tolist()))
    parted = {
        name: rows_of(table.reading.records, texts == value) for name, value in zip(_names(values), values, strict=True)
    }
    return SiloRecords(parted, LeftOut.of([table]))


def read_test(file: Path, schema: DataSchema) -> tuple[Records, LeftOut]:
    """Records to measure models on, and which were left out.

    Raises `DataError` for a file of another form, `SimulationError` if no record fits.
    """
    table = Read.of(file, schema)
    if not table.reading.kept:
        msg = f"no record of {file} fits the study's schema, so no model can be measured on it; check file and schema"
        raise SimulationError(msg)
    return table.reading.records, LeftOut.of([table])


def _names(texts: Sequence[str]) -> list[str]:
    """Names of silos, as a study may list them, from texts. Raises `SimulationError` if two become the same."""
    names = [re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST].strip("-") or _UNNAMED for text in texts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        of = ", ".join(repr(text) for text, name in zip(texts, names, strict=True) if name in twice)
        msg = f"the silos {of} would have one name, {twice[0]}; give them names that differ in letters and digits"
        raise SimulationError(msg)
    return names
