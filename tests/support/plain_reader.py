"""Reads records cell by cell, as version 0.6 did: slow, in plain Python, and the measure of the reader by columns.

It uses of the product only what a single line and a single cell mean (`csv_rows`, `cells`) and the parsers' `parse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow.parquet as pq

from policies.documents.sections.spelling import Spelling
from silo_agent.data.cells import OwnCodes, plain, shown
from silo_agent.data.columns.number_forms import PLAIN, NumberForm
from silo_agent.data.columns.parsers import domain_parser, feature_parser, outcome_parser, patient_parser
from silo_agent.data.columns.parsing import of_codes
from silo_agent.data.csv_rows import split_rows
from silo_agent.data.errors import Unfit
from silo_agent.data.table import identity_of


@dataclass(frozen=True)
class Read:
    """What a reader says of a file, in a form that can be compared. `faults` are (row, column, found, expected)."""

    faults: tuple
    records: tuple
    broken: int


def of_csv(path, schema):
    """The lines of a file as `rows`: number and cells by column, or a fault."""
    lines = split_rows(path.read_bytes(), schema.delimiter)
    header = [name.strip() for name in next(lines)[1]]
    for line, cells in lines:
        if isinstance(cells, Unfit):
            yield line, (line, "", cells.found, cells.expected)
        elif cells and len(cells) != len(header):
            yield line, (line, "", f"{len(cells)} cells", f"{len(header)} cells")
        elif cells:
            yield line, dict(zip(header, cells, strict=True))


def of_parquet(path, expected):
    """The records of a file as `rows`."""
    table = pq.read_table(path)
    for place in range(table.num_rows):
        cells, fault = {}, None
        for name in table.column_names:
            try:
                cells[name] = plain(table.column(name)[place].as_py())
            except Exception:  # noqa: BLE001  # as the reader
                fault = fault or (place + 1, name, "a value that cannot be decoded", expected)
        yield place + 1, fault or cells


def read(rows, schema, written, identified_by=()):
    """What every record is, and every fault, from rows as above."""
    schema = schema if written is None else written.schema(schema)
    own = {} if written is None else {name: OwnCodes(codes) for name, codes in written.codes.items()}
    spelling = Spelling() if written is None else written.spelling
    faults, records, broken = [], [], 0
    asked = [(schema.label.column, outcome_parser(schema.label))]
    asked += [(factor.column, domain_parser(factor, schema.missing)) for factor in schema.domain]
    if schema.environment is not None:
        parser = domain_parser(schema.environment, schema.missing, "environment")
        asked.append((schema.environment.column, parser))
    asked += [(factor.column, domain_parser(factor, schema.missing, "protected group")) for factor in schema.protected]
    asked += [(feature.column, feature_parser(feature, schema)) for feature in schema.features]
    if schema.patient is not None:
        asked.append((schema.patient, of_codes(patient_parser(schema.missing))))
    for row, cells in rows:
        if isinstance(cells, tuple):
            faults.append(cells)
            broken += 1
            continue
        values, fits = [], True
        for place, (column, make) in enumerate(asked):
            cell, names = cell_of(column, cells, spelling), schema.patient is not None and place == len(asked) - 1
            plain = names or column not in own or not own[column].lists(cell)
            try:
                values.append(
                    make(form_of(column, spelling, schema.units)).parse(cell)
                    if plain
                    else make(PLAIN).parse(own[column].of(cell))
                )
            except Exception as error:  # noqa: BLE001  # as the reader
                unfit = error if isinstance(error, Unfit) else Unfit("a value that can be used", type(error).__name__)
                fits = False
                found = f"{shown(cell)}, {unfit.found}" if unfit.found else shown(cell)
                faults.append((row, column, found, unfit.expected))
        if fits:
            whose = values.pop() if schema.patient is not None else identity_of(cells[name] for name in identified_by)
            records.append((whose, tuple(np.asarray(values, np.float64).astype(np.float32).tolist())))
    return Read(tuple(sorted(faults)), _comparable(records), broken)


def cell_of(column, cells, spelling):
    """What stands in a row's column, or what is made of its other cells."""
    if column in spelling.absent:
        return None
    if column not in spelling.between:
        return cells[column]
    one, days = spelling.between[column], []
    for name in (one.start, one.end):
        cell = cells[name]
        if cell is None or not str(cell).strip():
            days.append(None)
            continue
        try:
            days.append(datetime.strptime(str(cell).strip(), spelling.dates[name]))  # noqa: DTZ007  # days have no zone
        except ValueError:
            return f"{cell!r} is not {spelling.dates[name]}"
    if None in days:
        return None
    if one.unit == "days":
        return (days[1].date() - days[0].date()).days
    years = days[1].year - days[0].year
    return years if (days[1].month, days[1].day) >= (days[0].month, days[0].day) else years - 1


def form_of(column, spelling, units):
    """How a column's numbers are written."""
    own = spelling.units.get(column)
    made = None if own is None else own.conversion(units.get(column))
    return NumberForm(spelling.decimal, *((made.factor, made.offset) if made else ()))


def of_reading(reading, schema):
    """The same of what the product read."""
    records, listed = reading.records, []
    sizes = [len(factor.names) for factor in schema.domain]
    held = records.inputs.held(slice(None))
    for place in range(len(records)):
        domain, parts = int(records.domains[place]), []
        for size in reversed(sizes):
            parts.insert(0, domain % size)
            domain //= size
        beside = [] if records.environments is None else [records.environments[place]]
        protected = [] if records.protected is None else records.protected[place].tolist()
        values = np.array([records.labels[place], *parts, *beside, *protected, *held[place]], np.float32)
        listed.append((records.identities[records.patients[place]], tuple(values.tolist())))
    faults = tuple(sorted((one.row, one.column, one.found, one.expected) for one in reading.found.first()))
    return Read(faults, _comparable(listed), reading.broken)


def _comparable(records):
    """NaN as a word: it is not equal to itself."""
    return tuple((whose, tuple(str(value) for value in values)) for whose, values in records)
