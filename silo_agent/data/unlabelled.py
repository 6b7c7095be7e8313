"""Records to be predicted: read as for training (`reader`), but without a label. The domain may be unknown.

Guarantees: inputs and images are the same that training would make of the same cells. A label column is not read. A
domain is either one of the study's or unknown; the caller says whether it may be unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.documents.sections.spelling import UTF_8
from policies.documents.study import DataSchema, DomainColumn
from silo_agent.data.cells import Absence, Cell, text
from silo_agent.data.columns.number_forms import NumberForm
from silo_agent.data.columns.own_columns import OwnColumns
from silo_agent.data.columns.parsers import domain_parser, patient_parser, scaled_fill
from silo_agent.data.columns.parsing import Make, Parser
from silo_agent.data.errors import Faults, Unfit
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.data.reader import ColumnReader, Spellings, read_images, read_inputs
from silo_agent.data.sources.opening import read_table
from silo_agent.data.table import Written

UNKNOWN = -1


@dataclass(frozen=True, repr=False, eq=False)
class Unlabelled:
    """n records in the file's order.

    `inputs` float32 (n, d); `domains` int64 (n,), `UNKNOWN` or in [0, M); `patients` one identifier per record if the
    schema has a patient column; `images` one per record if it has an image column.
    """

    inputs: NDArray[np.float32]
    domains: NDArray[np.int64]
    patients: tuple[str, ...] | None
    images: Images | None

    def __len__(self) -> int:
        return len(self.domains)

    def __repr__(self) -> str:
        return "Unlabelled(<private>)"


def read_unlabelled(
    path: Path,
    schema: DataSchema,
    *,
    domain: int | None = None,
    unknown_allowed: bool = False,
    written: Written | None = None,
) -> Unlabelled:
    """Read a CSV file (or Parquet, if the suffix is `.parquet`).

    If `domain` is given, all records have this domain, whatever the file says. With `unknown_allowed`, a record's
    domain is unknown if its cell is empty or not listed in the schema; if the file lacks the column, all domains are
    unknown. `written` says how the hospital writes the file. Raises `DataError` as `read_records` does.
    """
    schema = schema if written is None else written.schema(schema)
    factors = [factor.column for factor in schema.domain]
    read = [] if schema.patient is None else [schema.patient]
    read += [feature.column for feature in schema.features]
    read += [] if schema.image is None else [schema.image.column]
    needed = dict.fromkeys([*read, *(factors if domain is None else ())])
    optional = set(factors) - set(read) if unknown_allowed else set()
    faults = Faults()
    own = OwnColumns(written, schema.missing)
    # What a domain alone is made of may be absent with it.
    may_lack = set(own.needed(optional)) - set(own.needed(read))
    encoding = UTF_8 if written is None else written.encoding
    table = own.table(read_table(path, schema, faults, own.needed(needed), may_lack, encoding=encoding))
    reader = ColumnReader(table, faults, Spellings.of(written, schema))
    domains = (
        _domains(reader, schema, lenient=unknown_allowed)
        if domain is None
        else np.full(len(reader.table.rows), domain, np.int64)
    )
    inputs = Inputs(read_inputs(reader, schema), schema.features, tuple(map(scaled_fill, schema.features)))[:]
    patients = None
    if schema.patient is not None:
        codes, names = reader.names(schema.patient, patient_parser(schema.missing))
        patients = tuple(names[code] for code in codes.tolist())
    images = read_images(reader, path.parent, schema)
    reader.finish()
    return Unlabelled(inputs, domains, patients, images)


def _domains(reader: ColumnReader, schema: DataSchema, *, lenient: bool) -> NDArray[np.int64]:
    """Return the domain of every record. If one factor is unknown, the domain is unknown."""
    rows = len(reader.table.rows)
    domains, known = np.zeros(rows, np.int64), np.ones(rows, bool)
    for factor in schema.domain:
        if factor.column in reader.table.columns:
            make = domain_parser(factor, schema.missing)
            parts = reader.column(factor.column, _or_unknown(factor, schema, make) if lenient else make, 0)
        else:
            parts = np.full(rows, UNKNOWN, np.int64)
        known &= parts != UNKNOWN
        domains = domains * len(factor.names) + parts
    return np.where(known, domains, UNKNOWN)


def _or_unknown(factor: DomainColumn, schema: DataSchema, make: Make[int]) -> Make[int]:
    """The same parser, but with unknown for an empty cell or an unlisted code. A band still needs a number."""
    absence = Absence(schema.missing)

    def lenient(form: NumberForm) -> Parser[int]:
        parser = make(form)

        def parse(cell: Cell) -> int:
            if form.covers(absence, cell) or text(cell) == "":
                return UNKNOWN
            if factor.edges and form.number(cell) is None:
                msg = f"a number such as {form.written}, or nothing if the domain is unknown"
                raise Unfit(msg)
            try:
                return parser.parse(cell)
            except Unfit:
                return UNKNOWN

        return replace(parser, parse=parse)

    return lenient
