"""The reader by columns says of every cell, fault and message what a reader says that looks at one cell after another.

Over files that hold whatever a hospital, or an enemy of it, may have written: blanks, quotes, other ends of lines,
marks of absence that are numbers, codes, bytes that are no text, and types that follow from other cells.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.documents.sections.spelling import Conversion, OwnUnit, Spelling
from policies.documents.study import DomainColumn, EnvironmentColumn, Label, NumericFeature
from silo_agent.data.errors import Faults
from silo_agent.data.reader import read_records
from silo_agent.data.sources import csv_blocks, opening, parquet_rows
from silo_agent.data.sources.opening import _DECODED
from silo_agent.data.table import Written
from support import plain_reader
from support.hostile_bytes import PIECES
from support.tables import HEADER, make_schema

MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MISSING = ("", "?", "-9", "NA")
AGE, CRP, SEX, SMOKER = make_schema().features
COUNT = NumericFeature(
    column="crp", kind="number", minimum=0, maximum=1000, scale="log1p", outside="clip", missing=(7,)
)
BAND = DomainColumn(column="age", edges=(30.0, 65.0), names=("a", "b", "c"))
SCHEMAS = [
    make_schema(missing=MISSING, features=(AGE, CRP.model_copy(update={"unit": "mg/dl"}), SEX, SMOKER)),
    make_schema(missing=MISSING, patient=None, features=(AGE, COUNT, SEX, SMOKER)),
    make_schema(
        missing=MISSING,
        label=Label(column="crp", minimum=0.5, maximum=500, scale="log"),
        features=(AGE, SEX),
        protected=(BAND,),
        environment=EnvironmentColumn(column="died", edges=(0.5,)),
    ),
]
SPELT = Written(",", (), None, {"age": {"50": 70, "old": 90, "60": None}, "sex": {"1": "f", "2": "m"}})
COMMA = Written(
    ",",
    (),
    None,
    {"age": {"50": 70, "12,5": 30}},
    spelling=Spelling(
        decimal=",",
        absent=("smoker",),
        units={"crp": OwnUnit(unit="mg/l", into={"mg/dl": Conversion(factor=0.1, offset=3.0)})},
    ),
)
ROWS = (
    ["p1", "7.0", "007", " p2 ", "-9", ""],
    [
        "50",
        "60",
        "60.0",
        "7e1",
        " 50",
        "+5",
        "old",
        "1_0",
        "٣",
        "nan",
        "1e400",
        "-9",
        "-9.0",
        "",
        "NA",
        "5.",
        "-0",
        "0x1",
    ],
    [
        "1",
        "7",
        "7.0",
        "12.5",
        "1e3",
        "1001",
        ".5",
        "-1",
        "?",
        "0.1",
        "inf",
        "1e-400",
        "12,5",
        ",5",
        "-9,0",
        "1.234,5",
        "0.30000000000000004",
    ],
    ["f", "m", " f", "F", "1", "2", "2.0", ""],
    ["yes", "no", "", "-9", "NA", "maybe"],
    ["A", "B", "A ", "C"],
    ["0", "1", "1.0", "true", "", "2"],
)
ROW = st.tuples(*map(st.sampled_from, ROWS))
ASKED = st.tuples(st.sampled_from(SCHEMAS), st.sampled_from([None, SPELT, COMMA]))
FORMS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def compared(path, schema, written, rows, identified_by):
    faults = Faults(10_000)
    faults_kept = read_records(path, schema, identified_by, written=written, faults=faults)
    faults_kept.found.first = lambda: tuple(one for kept in faults._kept.values() for one in kept)
    expected = plain_reader.read(rows, schema if written is None else written.schema(schema), written, identified_by)
    assert plain_reader.of_reading(faults_kept, schema) == expected
    assert faults.total == len(expected.faults)


def text(row, quotes, foul):
    cells = [f'"{cell}"' if place in quotes else cell for place, cell in enumerate(row)]
    line = ",".join(cells).encode()
    for place, piece in foul:
        line = line[:place] + PIECES[piece % len(PIECES)] + line[place:]
    return line


LINES = st.lists(
    st.tuples(
        ROW,
        st.sets(st.integers(0, 6), max_size=3),
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 99)), max_size=1),
    ).map(lambda drawn: text(*drawn)),
    max_size=9,
)


@MANY
@given(LINES, ASKED, st.tuples(FORMS, st.integers(1, 400)))
def test_of_a_csv_file(tmp_path, monkeypatch, lines, asked, form):
    """In blocks of any size, also of less than a line."""
    (schema, written), (end, size) = asked, form
    path = tmp_path / "ward.csv"
    path.write_bytes(b"".join(line + end for line in [HEADER.encode(), *lines]))
    monkeypatch.setattr(
        opening, "line_blocks", lambda file, encoding: csv_blocks.line_blocks(file, size, encoding=encoding)
    )
    compared(path, schema, written, plain_reader.of_csv(path, schema), ("id", "age"))


CELLS = (
    [1, 7.0, "007", " p2 ", -9, None, 2**53, float(2**53)],
    [50, 60.0, "7e1", " 50", None, float("nan"), float("inf"), -9, "-9", 2**70, -0.0, True, 7.5],
    [1, 7, "7.0", 12.5, "12,5", "1,25e1", 1001, None, 0.1, 0.30000000000000004, 2**53 + 1],
    ["f", "m", " f", 1, 2.0, None, True],
    ["yes", "no", None, "-9", -9, False],
    ["A", "B", "A ", 1],
    [0, 1, 1.0, True, "1", None, 2, 0.6],
)
TYPES = [pa.string(), pa.large_string(), pa.float64(), pa.float32(), pa.int64(), pa.int16(), pa.uint64(), pa.bool_()]


def typed(cells, kind):
    """A column of this type, if all its cells have a form in it; else of texts."""
    try:
        array = pa.array(cells, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        array = pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
        return array.dictionary_encode() if len(cells) % 2 else array
    return array


@MANY
@given(st.data(), ASKED, st.integers(1, 4))
def test_of_a_parquet_file(tmp_path, monkeypatch, data, asked, at_once):
    schema, written = asked
    count = data.draw(st.integers(0, 7))
    columns = {}
    for name, cells in zip(HEADER.split(","), CELLS, strict=True):
        drawn = data.draw(st.lists(st.sampled_from(cells), min_size=count, max_size=count))
        columns[name] = typed(drawn, data.draw(st.sampled_from(TYPES)))
    if count and data.draw(st.booleans()):
        raw = pa.array([data.draw(st.sampled_from([b"f", b"\xff"])) for _ in range(count)], pa.binary())
        columns["sex"] = pa.Array.from_buffers(pa.string(), count, raw.buffers())
    path = tmp_path / "ward.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=3)
    monkeypatch.setattr(parquet_rows, "ROWS", at_once)
    compared(path, schema, written, plain_reader.of_parquet(path, _DECODED), ("id", "age"))


@pytest.mark.parametrize("cell", sorted({cell for column in ROWS for cell in column}))
def test_of_each_cell_alone_in_every_column(tmp_path, cell):
    """So that no cell of the lists above depends on being drawn."""
    path = tmp_path / "ward.csv"
    good = ["p1", "40", "10", "f", "yes", "A", "1"]
    lines = [[*good[:place], cell, *good[place + 1 :]] for place in range(len(good))]
    path.write_text("\n".join([HEADER, *map(",".join, lines)]) + "\n", encoding="utf-8")
    for schema in SCHEMAS:
        for written in (None, SPELT):
            compared(path, schema, written, plain_reader.of_csv(path, schema), ("id", "age"))
