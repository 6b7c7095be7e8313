"""What `reader` leaves out for training, and what it tells the hospital of it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.documents.study import CategoryFeature, DomainColumn, Image, NumericFeature
from silo_agent.data.errors import DataError, Faults
from silo_agent.data.reader import read_records
from support.images import write_png
from support.tables import GOOD, HEADER, SCANS, make_schema, scans_schema

FOUL = [
    "p1,101,10,f,yes,A,1",
    "p2,50,high,f,yes,A,1",
    "p3,50,10,x,yes,A,1",
    "p3,50,10,f,maybe,A,1",
    "p4,50,10,f,yes,C,1",
    "p5,50,10,f,yes,A,2",
    ",50,10,f,yes,A,1",
    "p6,50,10,f,yes,A",
    "p6,50,10,f,yes,A,1,1",
    '"p7,50,10,f,yes,A,1',
    'p8,50,10,"f"x,yes,A,1',
    "p\udcfc,50,10,f,yes,A,1",
    '"p9\n",101,10,f,yes,A,1',
]
FIT = [
    "p1,50,10,f,yes,A,1",
    "p2,25,99,m,,B,0",
    '"p ""10""",30,10,f,no,A,0',
    '"p, 11",30,10,f,no,A,0',
    "p1,70,1,m,no,B,0",
]


@pytest.fixture
def write(tmp_path):
    def _write(*rows, header=HEADER, name="site.csv"):
        path = tmp_path / name
        path.write_bytes(("\n".join((header, *rows)) + "\n").encode(errors="surrogateescape"))
        return path

    return _write


def same(one, other):
    for name in ("inputs", "labels", "domains", "patients"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.identities == other.identities
    assert (one.images is None) == (other.images is None)
    if one.images is not None:
        np.testing.assert_array_equal(one.images.take(slice(None)), other.images.take(slice(None)))


@pytest.mark.parametrize(("patient", "foul"), [(p, f) for p in ("id", None) for f in FOUL if p or f[0] != ","])
@pytest.mark.parametrize("place", range(len(FIT) + 1))
def test_a_record_that_does_not_fit_is_as_if_it_were_not_there_wherever_it_stands(write, place, foul, patient):
    schema = make_schema(patient=patient)
    clean = read_records(write(*FIT), schema).whole()
    with_it = write(*FIT[:place], foul, *FIT[place:])
    same(read_records(with_it, schema).records, clean)
    with pytest.raises(DataError):
        read_records(with_it, schema).whole()


def test_every_fitting_record_stays_among_many_that_do_not_fit(write):
    mixed = [row for pair in zip(FIT * 3, (FOUL * 2)[: 3 * len(FIT)], strict=True) for row in pair]
    same(read_records(write(*mixed), make_schema()).records, read_records(write(*FIT * 3), make_schema()).whole())


def test_a_file_without_any_fitting_record_is_an_empty_one(write):
    same(read_records(write(*FOUL), make_schema()).records, read_records(write(), make_schema()).whole())


def test_faults_of_the_whole_file_are_refused(write, tmp_path):
    for path, why in (
        (tmp_path / "absent.csv", "no file"),
        (write(GOOD, header=HEADER.replace("sex", "gender"), name="0.csv"), "column 'sex'"),
        (
            write(GOOD, name="no header.csv", header="p1,1"),
            "found none of the 7 columns that the study needs, expected",
        ),
        (write(GOOD + ",1", header=HEADER + ",sex", name="1.csv"), "2 columns of this name"),
        (write(GOOD, header=HEADER.replace("id", "\udcfc"), name="2.csv"), "UTF-8"),
        (write(GOOD, header=HEADER.replace("id", '"id'), name="3.csv"), "a quote that is open at the line.s end"),
        (write(GOOD, name="site.parquet"), "unreadable"),
    ):
        with pytest.raises(DataError, match=why):
            read_records(path, make_schema())


def test_images_that_cannot_be_used_take_their_own_record_with_them(write, tmp_path):
    for level in (10, 20):
        write_png(tmp_path / f"{level}.png", np.full((8, 8), level, np.uint8))
    (tmp_path / "cut.png").write_bytes((tmp_path / "10.png").read_bytes()[:40])
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "out.png").symlink_to("/etc/hostname")
    foul = ["absent", "cut", "text", "folder", "loop", "out", "../10", "/10", "n" * 5000, "nul\0"]
    fit = [f"{GOOD},20.png", "p2,70,10,m,no,B,0,10.png", f"{GOOD},10.png"]
    schema = scans_schema()
    rows = [row for name in foul for row in (f"p3,50,10,f,yes,A,1,{name}.png", *fit)]
    found = read_records(write("p4,101,10,f,yes,A,1,20.png", *rows, header=SCANS), schema).records
    same(found, read_records(write(*fit * len(foul), header=SCANS), schema).whole())
    for level in (10, 20):
        (tmp_path / f"{level}.png").unlink()
    assert found.images.take(slice(None)).shape == (3 * len(foul), 1, 8, 8), "all images are in memory"
    none = read_records(write(*rows, header=SCANS), schema).records
    assert (len(none), len(none.images)) == (0, 0)


def test_parquet_cells_that_are_no_values_take_their_own_record_with_them(tmp_path):
    raw = pa.array([b"p1", b"p\xfc", b"p3", b"p4"], pa.binary())
    dates = pa.array([0, 0, 2**62, 0], pa.timestamp("us"))
    columns = {
        "id": pa.Array.from_buffers(pa.string(), 4, raw.buffers()),
        "age": [50, 50, 50, 101],
        "crp": [10] * 4,
        "sex": ["f"] * 4,
        "smoker": ["no"] * 4,
        "scanner": ["A"] * 4,
        "died": pa.array([1, 0, 1, 0], pa.int8()),
        "unused": dates,
    }
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table(columns), path)
    found = read_records(path, make_schema()).records
    assert found.identities == ("p1", "p3")
    assert found.labels.tolist() == [1, 1]
    with pytest.raises(DataError) as caught:
        read_records(path, make_schema()).whole()
    assert [(one.row, one.column) for one in caught.value.faults] == [(2, "id"), (4, "age")]
    columns = ("id", "unused")
    assert len(read_records(path, make_schema(patient=None), columns).records) == 1
    check = read_records(path, make_schema(patient=None), columns, faults=Faults(5))
    assert [(one.row, one.column) for one in check.faults] == [(2, "id"), (3, "unused"), (4, "age")]
    assert (check.total, check.kept, check.left_out) == (3, 1, 3)


def test_a_check_lists_the_first_faults_by_row_and_counts_faults_and_records(write):
    rows = [GOOD, *(f"p{i},101,10,x,yes,A,2" for i in range(30)), "p,50", *FIT]
    check = read_records(write(*rows), make_schema(), faults=Faults(7))
    columns = ["died", "age", "sex", "died", "age", "sex", ""]
    rows = [3, 3, 3, 4, 4, 4, 33]
    assert [(one.row, one.column) for one in check.faults] == list(zip(rows, columns, strict=True)), "each reason once"
    assert (check.total, check.kept, check.left_out) == (91, 6, 31)
    assert repr(check) == "Reading(<private>)"
    clean = read_records(write(*FIT), make_schema(), faults=Faults(7))
    assert (clean.faults, clean.total, clean.kept, clean.left_out) == ((), 0, 5, 0)


# --- constants that the document would not allow ----------------------------------------------------------------------
ANY = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([-1.7e308, 1.7e308, 5e-324, 97.0, float(np.nextafter(97.0, 98.0)), 0.0, -0.0, 1e39, -1e39]),
)
NUMBERS = st.builds(
    NumericFeature.model_construct,
    column=st.just("age"),
    kind=st.just("number"),
    minimum=ANY,
    maximum=ANY,
    scale=st.sampled_from(["linear", "log", "log1p"]),
    outside=st.sampled_from(["drop", "clip"]),
    missing=st.sampled_from([(), (50,), ("50",)]),
    fill=st.none() | ANY,
)
BANDS = st.lists(ANY, min_size=1, max_size=3, unique=True).map(sorted)
CELLS = st.one_of(ANY.map(repr), st.sampled_from(["97", "1e400", "-0", "", "nan", "x", "1" * 400]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=NUMBERS, edges=BANDS, cell=CELLS)
def test_no_constant_and_no_cell_makes_reading_fail_or_touches_another_record(write, number, edges, cell):
    band = DomainColumn.model_construct(
        column="age", values=(), edges=tuple(edges), names=tuple(map(str, range(len(edges) + 1)))
    )
    schema = make_schema(features=(), image=Image(column="scan", height=8, width=8)).model_copy(
        update={"features": (number,), "domain": (band,), "image": None}
    )
    without = read_records(write(*FIT), schema).records
    found = read_records(write(*FIT, f"target,{cell},10,f,yes,A,1"), schema).records
    assert np.isfinite(np.asarray(found.inputs)).all()
    assert np.abs(np.asarray(found.inputs)).max(initial=0) <= 1 + 1e-6
    others = found.of_patients(np.array([identity != "target" for identity in found.identities], np.bool_))
    same(others, without)


def test_wide_inputs_take_memory_by_the_cell_and_not_by_the_width_that_a_study_asks_for(write):
    codes = CategoryFeature(column="sex", kind="category", values=("f", "m", *range(62)))
    narrow, wide = (make_schema(features=(feature,)) for feature in (make_schema().features[2], codes))
    held = [read_records(write(*FIT * 50), schema).records.inputs for schema in (narrow, wide)]
    assert [inputs.shape[1] for inputs in held] == [2, 64]
    assert len({inputs.cells.nbytes for inputs in held}) == 1
    assert np.asarray(held[1]).sum(axis=1).tolist() == [1.0] * 250
