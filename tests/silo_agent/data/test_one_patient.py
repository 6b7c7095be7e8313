"""Whatever a file holds: without one patient's rows, at most that patient's records are other ones.

Each reader gets patients whose rows are partly hostile. A hostile row never names another patient, so that its owner is
known. What is compared is every record of everybody else: inputs, image, label, domain, and whose it is.
"""

import itertools
import sqlite3
from collections import Counter
from contextlib import closing

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from silo_agent.config import SqlSource
from silo_agent.data import dicom_files
from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.images import PixelScale
from silo_agent.data.reader import read_records
from silo_agent.data.sources.snapshot import forget, read_begun
from silo_agent.data.table import Written, name_of
from support.hostile_bytes import PIECES
from support.images import write_png
from support.stores import Memory
from support.tables import HEADER, make_schema, scans_schema

COLUMNS = HEADER.split(",")
BY_PATIENT, BY_RECORD = make_schema(missing=("", "?", "-9")), make_schema(missing=("", "?", "-9"), patient=None)
SCHEMAS = st.sampled_from([BY_PATIENT, BY_RECORD])
IDENTIFIED_BY = ("id", "age")
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def records_of(records):
    """Every record as whose it is and what a sum would see of it."""
    images = itertools.repeat(b"") if records.images is None else map(bytes, records.images.take(slice(None)))
    whose = (records.identities[patient] for patient in records.patients)
    inputs = map(bytes, np.asarray(records.inputs))
    return Counter(zip(whose, inputs, records.labels.tolist(), records.domains.tolist(), images, strict=False))


def require_alone(everybody, others, rows):
    """`others` are the records without one patient, who has `rows` rows: all of them are among those of everybody."""
    assert others <= everybody, "another patient's record has changed"
    assert (everybody - others).total() <= rows


# --- text -------------------------------------------------------------------------------------------------------------
PARTS = [
    *PIECES,
    b"\\",
    b"'",
    "\u2028\x85\x0b".encode(),
    b"nan",
    b"1e400",
    b"-9",
    b"9" * 5000,
    b"x" * MAX_TEXT,
    HEADER.encode(),
]
CUTS = st.lists(st.tuples(st.integers(0, 19), st.integers(0, len(PARTS) - 1)), min_size=1, max_size=3)
"""Where a row is spoilt, and by which of the parts."""


def good(patient, age=50):
    return f"n{patient},{age},10,f,yes,A,1".encode()


def spoilt(patient, cuts):
    row = good(patient)
    for place, part in sorted(cuts, reverse=True):
        row = row[:place] + PARTS[part] + row[place:]
    return row


def rows_of(patient):
    fit = st.integers(1, 99).map(lambda age: good(patient, age))
    return st.lists(st.one_of(fit, CUTS.map(lambda cuts: spoilt(patient, cuts))), min_size=1, max_size=3)


WARDS = st.tuples(*map(rows_of, range(4)))


def lines(chunk):
    """How many lines the reader finds in a patient's rows: a row may hold ends of lines."""
    return len((b"\n".join(chunk) + b"\n").splitlines())


@FEW
@given(WARDS, SCHEMAS, st.tuples(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.booleans()), st.permutations(range(4)))
def test_of_a_csv_file(tmp_path, ward, schema, form, order):
    end, headless = form
    written = Written(",", tuple(COLUMNS) if headless else ())

    def read(patients):
        head = [] if headless else [HEADER.encode()]
        rows = [row for patient in order if patient in patients for row in ward[patient]]
        (tmp_path / "ward.csv").write_bytes(b"".join(row + end for row in [*head, *rows]))
        return records_of(read_records(tmp_path / "ward.csv", schema, IDENTIFIED_BY, written=written).records)

    everybody = read(range(4))
    for gone in range(4):
        require_alone(everybody, read(set(range(4)) - {gone}), lines(ward[gone]))


@FEW
@given(WARDS, SCHEMAS, st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_of_a_folder(tmp_path, ward, schema, where):
    """Its files stay, with whoever is left: which files there are is no patient's."""

    def read(patients):
        for file in range(3):
            rows = [row for patient in patients if where[patient] == file for row in ward[patient]]
            (tmp_path / f"{file}.csv").write_bytes(b"\n".join([HEADER.encode(), *rows]) + b"\n")
        return records_of(read_records(tmp_path, schema, IDENTIFIED_BY).records)

    everybody = read(range(4))
    for gone in range(4):
        require_alone(everybody, read([patient for patient in range(4) if patient != gone]), lines(ward[gone]))


# --- values with types ------------------------------------------------------------------------------------------------
NUMBERS = st.one_of(
    st.none(),
    st.integers(-9, 99),
    st.floats(),
    st.sampled_from([0.0, -0.0, -9, 2**53, 2**53 + 1, float("nan"), float("inf"), "50", "7.0", "?", "", "x"]),
)
VALUES = {
    "age": NUMBERS,
    "crp": NUMBERS,
    "sex": st.sampled_from(["f", "m", " f", "F", "", None, "f\0", "\ufefff", "long", "longest"]),
    "smoker": st.sampled_from(["yes", "no", None, "", "-9", "maybe"]),
    "scanner": st.sampled_from(["A", "B", "A ", "C", None]),
    "died": st.sampled_from([0, 1, 2, None, True, False, "1", "1.0", 1.0]),
}
ROW = st.fixed_dictionaries(VALUES)
TYPED = st.lists(st.tuples(st.integers(0, 3), ROW), min_size=1, max_size=8)


def inferred(cells):
    """A column as programs that export write it: of the narrowest type that holds all its cells.

    No type of numbers holds truth values: one that is written as 1 among numbers, and as True among texts, has changed
    before any reader sees it.
    """
    known = [cell for cell in cells if cell is not None]
    truths = sum(isinstance(cell, bool) for cell in known)
    if any(isinstance(cell, str) for cell in known) or 0 < truths < len(known):
        texts = [None if cell is None else str(cell) for cell in cells]
        return pa.array(texts, pa.string()).dictionary_encode() if len(cells) % 2 else pa.array(texts, pa.string())
    if truths == len(known):
        return pa.array(cells, pa.bool_())
    if len(known) < len(cells) or any(isinstance(cell, float) for cell in known):
        return pa.array([float("nan") if cell is None else float(cell) for cell in cells], pa.float64())
    return pa.array([int(cell) for cell in cells], pa.int64())


LONG = {"long": "m" * MAX_TEXT, "longest": "m" * (MAX_TEXT + 1)}


def columns_of(rows, offset):
    columns = {"id": [offset + patient for patient, _ in rows]}
    return columns | {name: [LONG.get(row[name], row[name]) for _, row in rows] for name in VALUES}


@FEW
@given(TYPED, st.sampled_from([0, 2**40]))
def test_of_a_parquet_file_whose_types_follow_from_all_its_cells(tmp_path, rows, offset):
    """One patient's text or empty cell makes texts or floats of a whole column: each cell still means the same."""

    def read(some):
        table = pa.table({name: inferred(cells) for name, cells in columns_of(some, offset).items()})
        pq.write_table(table, tmp_path / "ward.parquet", row_group_size=3)
        return records_of(read_records(tmp_path / "ward.parquet", BY_PATIENT).records)

    everybody = read(rows)
    for gone in {patient for patient, _ in rows}:
        left = [row for row in rows if row[0] != gone]
        require_alone(everybody, read(left), len(rows) - len(left))


RAW = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([b"f", b"m", b"\xff", b"\xc3", b"f\0", b""]), st.integers(-9, 2**62)),
    min_size=1,
    max_size=8,
)


@FEW
@given(RAW, SCHEMAS)
def test_of_a_parquet_file_with_values_that_have_no_form(tmp_path, rows, schema):
    """Text that is not UTF-8, and times beyond the year 9999 in a column that says whose row it is."""

    def read(some):
        texts = pa.array([text for _, text, _ in some], pa.binary())
        columns = {
            name: pa.array([value] * len(some))
            for name, value in zip(COLUMNS, (1, 50, 10, 0, "yes", "A", 1), strict=True)
        }
        columns["id"] = pa.array([patient for patient, _, _ in some], pa.int64())
        columns["sex"] = pa.Array.from_buffers(pa.string(), len(some), texts.buffers())
        columns["born"] = pa.array([born for _, _, born in some], pa.timestamp("us"))
        pq.write_table(pa.table(columns), tmp_path / "ward.parquet")
        return records_of(read_records(tmp_path / "ward.parquet", schema, ("id", "born")).records)

    everybody = read(rows)
    for gone in {patient for patient, _, _ in rows}:
        left = [row for row in rows if row[0] != gone]
        require_alone(everybody, read(left), len(rows) - len(left))


@FEW
@given(TYPED, SCHEMAS, st.sets(st.integers(0, 7)))
def test_of_a_database_whose_cells_have_types_of_their_own(tmp_path, rows, schema, foul):
    def read(some):
        path = tmp_path / "ward.sqlite3"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute(f"CREATE TABLE ward ({HEADER})")
            marks = ", ".join("?" * len(COLUMNS))
            for place, (patient, row) in some:
                cells = [f"n{patient}", *(LONG.get(row[name], row[name]) for name in VALUES)]
                database.execute(f"INSERT INTO ward VALUES ({marks})", cells)  # noqa: S608  # of question marks
                if place in foul:
                    database.execute("UPDATE ward SET sex = CAST(x'ff66' AS TEXT) WHERE rowid = last_insert_rowid()")
            database.commit()
        source = SqlSource(url=f"sqlite:///{path}", statement="SELECT * FROM ward")
        return records_of(read_records(source, schema, IDENTIFIED_BY).records)

    numbered = list(enumerate(rows))
    everybody = read(numbered)
    for gone in {patient for patient, _ in rows}:
        left = [one for one in numbered if one[1][0] != gone]
        require_alone(everybody, read(left), len(rows) - len(left))


def test_of_a_database_with_dates_that_have_no_form(tmp_path):
    path = tmp_path / "ward.duckdb"
    born = {"n0": "2020-01-01", "n1": "infinity", "n2": "99999-01-01", "n3": "0044-03-15 (BC)", "n4": "1960-02-03"}
    with duckdb.connect(str(path)) as database:
        first = "SELECT * FROM (VALUES ('n9', 50, 10, 'f', 'yes', 'A', 1))"
        database.execute(f"CREATE TABLE ward AS {first} x({HEADER})")
        database.execute("ALTER TABLE ward ADD COLUMN born DATE")
        for patient, day in born.items():
            database.execute("INSERT INTO ward VALUES (?, 50, 10, 'f', 'yes', 'A', 1, ?)", [patient, day])

    def read(gone):
        statement = f"SELECT * FROM ward WHERE id <> '{gone}'"  # noqa: S608  # the test's own
        source = SqlSource(url=f"duckdb:///{path}", statement=statement)
        return records_of(read_records(source, BY_RECORD, ("id", "born")).records)

    everybody = read("nobody")
    assert everybody.total() == 6
    for gone in born:
        require_alone(everybody, read(gone), 1)


# --- images -----------------------------------------------------------------------------------------------------------
CELLS = [
    "0.png",
    "1.png",
    "./0.png",
    "2.jpg",
    "cut.png",
    "cut.jpg",
    "huge.png",
    "text.png",
    "empty.png",
    "0.dcm",
    "junk.dcm",
]
CELLS += [
    "folder.png",
    "loop.png",
    "out.png",
    "../0.png",
    "/0.png",
    "n" * 5000,
    "nul\0.png",
    "\udc80.png",
    "absent.png",
    "",
]


@pytest.fixture(scope="module")
def scans(tmp_path_factory):
    """Images of which some cannot be read, and others cannot be reached."""
    folder = tmp_path_factory.mktemp("scans")
    for level in range(2):
        write_png(folder / f"{level}.png", np.full((9, 8), 40 * level + 7, np.uint8))
    write_png(folder / "2.png", np.arange(64, dtype=np.uint8).reshape(8, 8)).rename(folder / "2.jpg")
    whole = (folder / "0.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[:40])
    (folder / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0" + whole)
    (folder / "huge.png").write_bytes(whole[:16] + b"\x7f\xff\xff\xff" * 2 + whole[24:])
    (folder / "text.png").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    (folder / "junk.dcm").write_bytes(b"\0" * 128 + b"DICM" + b"\x02\x00\x10\x00UI" + b"\xff" * 99)
    (folder / "0.dcm").write_bytes(whole)
    (folder / "folder.png").mkdir()
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "out.png").symlink_to("/etc/hostname")
    return folder


@FEW
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(CELLS)), min_size=1, max_size=9), st.integers(1, 3))
def test_of_images(scans, rows, room):
    """Also where not all of them find room in memory."""
    schema = scans_schema()
    scale, image = PixelScale.of(schema.image), schema.image

    def read(some):
        body = [good(patient) + b"," + cell.encode(errors="surrogateescape") for patient, cell in some]
        (scans / "ward.csv").write_bytes(b"\n".join([HEADER.encode() + b",scan", *body]) + b"\n")
        levels = np.zeros((room, 1, image.height, image.width), scale.kind)
        return records_of(read_records(scans / "ward.csv", schema, room=levels).records)

    everybody = read(rows)
    for gone in {patient for patient, _ in rows}:
        left = [row for row in rows if row[0] != gone]
        require_alone(everybody, read(left), len(rows) - len(left))


@pytest.mark.parametrize("decoder", ["image_files", "dicom_files"])
@pytest.mark.parametrize("raised", [MemoryError, OSError, RecursionError, KeyError, StopIteration, UserWarning])
def test_of_images_whatever_a_decoder_raises(scans, monkeypatch, decoder, raised):
    from silo_agent.data import image_files, image_store  # noqa: PLC0415

    modules = {"image_files": image_files, "dicom_files": dicom_files}
    decode = image_files.decode

    def failing(path, channels):
        if path.stem == "0":
            raise raised
        return decode(path, channels)

    monkeypatch.setattr(getattr(image_store, decoder), "decode", failing)
    names = ["0.png" if modules[decoder] is image_files else "0.dcm", "1.png", "2.jpg"]
    rows = [good(place) + b"," + name.encode() for place, name in enumerate(names)]
    (scans / "ward.csv").write_bytes(b"\n".join([HEADER.encode() + b",scan", *rows]) + b"\n")
    assert read_records(scans / "ward.csv", scans_schema()).records.identities == ("n1", "n2")


# --- rows that a study keeps ------------------------------------------------------------------------------------------
@FEW
@given(WARDS, SCHEMAS)
def test_of_a_withdrawal(tmp_path, ward, schema):
    """Who withdraws takes no other along, before the first reading, after it, or if the withdrawal was cut off."""
    path = tmp_path / "ward.csv"

    def write(patients):
        rows = [row for patient in patients for row in ward[patient]]
        path.write_bytes(b"\n".join([HEADER.encode(), *rows]) + b"\n")

    def read(store):
        return records_of(read_begun(path, schema, IDENTIFIED_BY, store))

    write(range(4))
    everybody = read(whole := Memory())
    for gone in range(4):
        name = f"n{gone}" if schema.patient else name_of([f"n{gone}", "50"], by_patient=False)
        expected = Counter({record: count for record, count in everybody.items() if record[0] != name})
        late = Memory(content=whole.content)
        forget(late, [name])
        cut = Memory([name], whole.content)
        for store in (Memory([name]), late, cut):
            assert read(store) == expected
            assert name not in store.cells("id")
