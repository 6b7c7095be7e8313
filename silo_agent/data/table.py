"""Rows as columns of cells: what a reader of files or databases gives, and whose each row is.

Guarantees: every needed column is there exactly once, and every row has the header's width. A table keeps the line of
every record for messages. A broken row (of another width, with an open quote, of undecodable or endless text) is not in
it, because of that row alone. This module does not know what the cells mean; `sources.opening` finds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from policies.documents.policy import Policy
from policies.documents.sections.spelling import UTF_8, Spelling
from policies.documents.study import Code, DataSchema
from silo_agent.config import SqlSource
from silo_agent.data.cells import Cell, identifier, identity_text
from silo_agent.data.columns.arrow_cells import distinct, joined, taken
from silo_agent.data.errors import Faults, RecordFault

Source = Path | SqlSource
"""A file, a folder of files with the same columns, or a statement."""


@dataclass(frozen=True)
class Written:
    """How the hospital writes its file, by its policy. It takes precedence over what a study expects.

    `missing` is None where the study's marks count. `codes` has the file's own codes by column, with what they stand
    for in studies; identities are made of the cells as they stand in the file. `spelling` says the rest.
    """

    delimiter: str
    columns: tuple[str, ...]
    missing: tuple[str, ...] | None = None
    codes: Mapping[str, Mapping[str, Code | None]] = field(default_factory=dict)
    encoding: str = UTF_8
    spelling: Spelling = field(default_factory=Spelling)

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """What a policy says."""
        file, spelling = policy.data_set.file, policy.spelling
        rest = spelling.model_copy(update={"missing": None, "codes": {}})
        return cls(file.delimiter, file.columns, spelling.missing, spelling.codes, file.encoding, rest)

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "delimiter": self.delimiter,
            "columns": self.columns,
            "missing": self.missing,
            "codes": self.codes,
            "encoding": self.encoding,
            "spelling": self.spelling.said(),
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Self:
        """Inverse of `fields`, also after JSON, and of what version 0.6 kept."""
        missing = fields["missing"]
        marks = None if missing is None else tuple(missing)
        encoding, spelling = fields.get("encoding", UTF_8), Spelling.model_validate(fields.get("spelling", {}))
        return cls(fields["delimiter"], tuple(fields["columns"]), marks, fields["codes"], encoding, spelling)

    def schema(self, schema: DataSchema) -> DataSchema:
        """The study's schema with what the policy says instead."""
        missing = schema.missing if self.missing is None else self.missing
        return schema.model_copy(update={"delimiter": self.delimiter, "columns": self.columns, "missing": missing})


@dataclass(frozen=True, repr=False)
class Table:
    """The schema's columns, by name. `rows` has the lines (CSV) or record numbers (Parquet), from 1.

    `identities` has the SHA-256 of each row's cells in the identifying columns, and is empty if none were given.
    `broken` counts the rows of the file that are not in the table. `files` names the file of each row if they come from
    several.
    """

    file: str
    columns: Mapping[str, Sequence[Cell]]
    rows: NDArray[np.int64] | Sequence[int]
    identities: tuple[str, ...] = ()
    broken: int = 0
    files: Sequence[str] = ()

    @classmethod
    def joined(cls, file: str, tables: Sequence[Table], names: Collection[str]) -> Self:
        """The rows of several tables, one table after another, with the columns of these names."""
        several = {table.file for table in tables} - {file}
        return cls(
            file,
            {name: joined([table.columns[name] for table in tables]) for name in names},
            np.concatenate([np.asarray(table.rows, np.int64) for table in tables] or [np.zeros(0, np.int64)]),
            tuple(identity for table in tables for identity in table.identities),
            sum(table.broken for table in tables),
            [table.file for table in tables for _ in table.rows] if several else (),
        )

    def file_of(self, place: int) -> str:
        """The file of the row at this place of the table."""
        return self.files[place] if self.files else self.file

    def identified(self, by: Sequence[str], faults: Faults) -> Table:
        """The table with the rows' identities by these columns, without the rows that have none: these are faults."""
        identities: list[str] = []
        unknown: list[int] = []
        parts = [_identity_parts(self.columns[name]) for name in by]
        for place, row in enumerate(zip(*parts, strict=True)):
            wrong = next((part for part in row if isinstance(part, Exception)), None)
            identities.append(hashlib.sha256(b"".join(row)).hexdigest() if wrong is None else "")
            if wrong is not None:
                unknown.append(place)
                found, expected = type(wrong).__name__, "cells that can be compared"
                faults.add(RecordFault(self.file_of(place), int(self.rows[place]), "", found, expected))
        known = replace(self, identities=tuple(identities))
        if not unknown:
            return known
        kept = np.setdiff1d(np.arange(len(self.rows)), unknown)
        return replace(known.at(kept), broken=self.broken + len(unknown))

    def without(self, people: Collection[str], patient: str | None) -> Table:
        """The table without the rows of some people, each named as in `Records.identities`.

        `patient` is the column that names a row's patient; without it the rows' own identities do.
        """
        if not people or (patient is None and not self.identities):
            return self
        if patient is None:
            gone = np.array([name in people for name in self.identities], np.bool_)
        else:
            codes, cells = distinct(self.columns[patient])
            gone = np.array([_identifier(cell) in people for cell in cells], np.bool_)[codes]
        return self.at(np.flatnonzero(~gone)) if gone.any() else self

    def at(self, places: NDArray[np.int64]) -> Table:
        """The table with the rows at some places alone."""
        listed = places.tolist()
        return replace(
            self,
            columns={name: taken(cells, places) for name, cells in self.columns.items()},
            rows=np.asarray(self.rows, np.int64)[places],
            identities=tuple(self.identities[place] for place in listed) if self.identities else (),
            files=[self.files[place] for place in listed] if self.files else (),
        )


def needed_columns(schema: DataSchema) -> tuple[str, ...]:
    """Return the columns that the schema reads, each once, in a fixed order."""
    names = [schema.patient] if schema.patient is not None else []
    names += [schema.label.column, *(factor.column for factor in schema.domain)]
    names += [factor.column for factor in schema.protected]
    names += [feature.column for feature in schema.features]
    names += [schema.image.column] if schema.image is not None else []
    names += [schema.environment.column] if schema.environment is not None else []
    return tuple(dict.fromkeys(names))


def folder_of(source: Source) -> Path:
    """The folder in which a source's images lie. A database has none, and no study with images reads one."""
    if isinstance(source, SqlSource):
        return Path()
    return source if source.is_dir() else source.parent


def _identifier(cell: Cell) -> str | None:
    """A patient's identifier; None for a cell that has no form as text, whose row no patient can be found by."""
    try:
        return identifier(cell)
    except Exception:  # noqa: BLE001  # whatever a cell raises concerns its own row
        return None


def name_of(cells: Sequence[Cell], *, by_patient: bool) -> str:
    """Whose a row with these identifying cells is, as in `Records.identities`: a patient, or a record of its own."""
    return identifier(cells[0]) if by_patient else identity_of(cells)


def identity_of(cells: Iterable[Cell]) -> str:
    """Return SHA-256 over cells as `identity_text`, each prefixed with its length in bytes plus one."""
    return hashlib.sha256(b"".join(map(_identity_part, cells))).hexdigest()


def _identity_part(cell: Cell) -> bytes:
    raw = identity_text(cell).encode()
    return (len(raw) + 1).to_bytes(8, "big") + raw


def _identity_parts(cells: Sequence[Cell]) -> list[bytes | Exception]:
    """What each cell adds to its row's identity, or what it raised."""
    codes, different = distinct(cells)
    parts: list[bytes | Exception] = []
    for cell in different:
        try:
            parts.append(_identity_part(cell))
        except Exception as error:  # noqa: BLE001  # whatever a row raises leaves out that row
            parts.append(error)
    return [parts[code] for code in codes.tolist()]
