import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.documents.sections.spelling import Spelling
from policies.documents.study import DomainColumn, EnvironmentColumn, Image, Label, NumericFeature, Study
from policies.plan.families import TARGET_STEPS
from silo_agent.data.columns.parsers import _scaled, patient_parser
from silo_agent.data.columns.parsing import of_codes
from silo_agent.data.errors import DataError, Faults, Reasons, Unfit
from silo_agent.data.reader import ColumnReader, Spellings, empty_records, read_records
from silo_agent.data.split import split
from silo_agent.data.table import Table, Written
from support.images import study_document, write_png, write_sites
from support.tables import GOOD, HEADER, SCANS, make_schema, scans_schema


@pytest.fixture
def read(tmp_path):
    def _read(*rows, header=HEADER, schema=None, name="site.csv", identified_by=(), written=None, encoding="utf-8"):
        path = tmp_path / name
        path.write_text("\n".join((header, *rows)) + "\n", encoding=encoding)
        return read_records(path, schema or make_schema(), identified_by, written=written).whole()

    return _read


def fault(read, row, **kwargs):
    with pytest.raises(DataError) as caught:
        read(GOOD, row, **kwargs)
    assert caught.value.total == 1
    return caught.value.faults[0]


def test_values_become_inputs_by_public_constants_alone(read):
    records = read("p1,50,10,f,yes,A,1", "p2,100,100,m,,B,0", "p1,25,?,f,no,A,0", "p3,40,-1,m,?,B,0")
    expected = [[0.0, 0.0, 0, 1, 0, 1, 0, 0], [1, 1, 0, 0, 1, 0, 0, 1], [-0.5, 0, 1, 1, 0, 0, 1, 0]]
    np.testing.assert_allclose(records.inputs[:3], expected, atol=1e-6)
    assert (records.inputs[:].dtype, records.labels.dtype) == (np.float32, np.int64)
    assert records.images is None
    assert records.inputs.shape[1] == make_schema().inputs
    assert records.inputs[3, 2] == 1.0
    assert records.labels.tolist() == [1, 0, 0, 0]
    assert records.patients.tolist() == [0, 1, 0, 2]
    assert records.identities == ("p1", "p2", "p3")


def test_a_number_as_label_becomes_its_place_and_other_cells_are_faults(read):
    days = make_schema(label=Label(column="died", minimum=0, maximum=8))
    rows = [f"{GOOD[:-1]}{cell}" for cell in ("0", "2", "8.0")]
    assert read(*rows, schema=days).labels.tolist() == [0, TARGET_STEPS // 4, TARGET_STEPS]
    dose = make_schema(label=Label(column="died", minimum=0.5, maximum=8, scale="log"))
    assert read(f"{GOOD[:-1]}2", schema=dose).labels.tolist() == [TARGET_STEPS // 2]
    for cell in ("", "9", "-1", "yes", "nan"):
        assert fault(read, f"p1,50,10,f,yes,A,{cell}", schema=days).column == "died"


def test_protected_attributes_are_places_among_their_groups_and_another_cell_leaves_the_record_out(read, tmp_path):
    sex = DomainColumn(column="sex", values=("f", "m"), names=("f", "m"))
    age = DomainColumn(column="age", edges=(65.0,), names=("young", "old"))
    schema = make_schema(protected=(sex, age), features=make_schema().features[1:2])
    records = read(GOOD, "p2,70,10,m,yes,A,0", schema=schema)
    assert records.protected.tolist() == [[0, 0], [1, 1]]
    assert records.of_patients(np.array([False, True])).protected.tolist() == [[1, 1]]
    assert fault(read, "p2,50,10,d,yes,A,1", schema=schema).column == "sex"
    fitting = read_records(tmp_path / "site.csv", schema).records
    assert fitting.protected.tolist() == [[0, 0]]
    assert empty_records(schema).protected.shape == (0, 2)
    assert read(GOOD).protected is None


def test_the_domain_is_the_product_of_its_factors_with_left_closed_bands(read):
    rows = [
        f"p{i},{age},10,f,yes,{scanner},1"
        for i, (scanner, age) in enumerate([("A", 39.9), ("A", 40), ("A", 64.9), ("A", 65), ("B", 0), ("B", 100)])
    ]
    names = make_schema().domains
    assert [names[m] for m in read(*rows).domains] == ["a young", "a middle", "a middle", "a old", "b young", "b old"]
    age = DomainColumn(column="age", edges=(65.0,), names=("young", "old"))
    wrong = fault(read, "p1,old,10,f,yes,A,1", schema=make_schema(domain=(age,), features=make_schema().features[1:2]))
    assert (wrong.column, wrong.expected) == ("age", "a number such as 1.5: it decides the domain")


def test_whatever_a_cell_raises_leaves_its_record_out_alone():
    """A parser that stumbles over one cell must not cost the others their records."""
    faults = Faults()
    reader = ColumnReader(Table("ward.csv", {"x": [4, 0, 2, 0]}, [2, 3, 4, 5]), faults, Spellings({}, Spelling(), {}))
    assert reader.column("x", of_codes(lambda cell: 8 / cell), -1.0).tolist() == [2.0, -1.0, 4.0, -1.0]
    assert reader.fits.tolist() == [True, False, True, False]
    (first, *_) = faults.first()
    assert (first.row, first.found, first.expected) == (3, "0, ZeroDivisionError", "a value that can be used")
    assert faults.total == 2


def test_an_environment_is_a_place_of_its_record_and_no_input(read):
    header, rows = f"{HEADER},year", [f"p1,50,10,f,yes,A,1,{year}" for year in (2015, 2020, 2031)]
    schema = make_schema(environment=EnvironmentColumn(column="year", edges=(2016, 2020)))
    records = read(*rows, header=header, schema=schema)
    assert records.environments.tolist() == [0, 2, 2]
    np.testing.assert_array_equal(records.inputs[:], read(*rows, header=header).inputs[:])
    assert read(*rows, header=header).environments is None
    codes = make_schema(environment=EnvironmentColumn(column="year", values=(2031, 2015)))
    with pytest.raises(DataError, match="2031, 2015") as caught:
        read(*rows, header=header, schema=codes)
    assert [(found.column, found.row) for found in caught.value.faults] == [("year", 3)]
    assert read(rows[2], rows[0], header=header, schema=codes).environments.tolist() == [0, 1]
    assert read(header=header, schema=codes).environments.tolist() == []
    assert empty_records(codes).environments.tolist() == []


def test_a_log_scale_is_linear_in_the_logarithm(read):
    records = read("p1,50,20,f,yes,A,1")
    assert records.inputs[0, 1] == pytest.approx(2 * math.log(20) / math.log(100) - 1, abs=1e-6)


def counts(outside):
    return make_schema(
        features=[
            NumericFeature(column="crp", kind="number", minimum=0, maximum=63, scale="log1p", outside=outside, fill=0)
        ]
    )


def test_a_count_with_zeros_is_linear_in_the_logarithm_of_one_more(read):
    cells = read(*(f"p{i},50,{x},f,yes,A,1" for i, x in enumerate((0, 7, 63, ""))), schema=counts("drop")).inputs[:]
    assert cells.tolist() == [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 1.0]]


def test_a_value_outside_its_range_is_clipped_if_the_study_says_so_and_nothing_else_is(read):
    rows = [f"p{i},50,{x},f,yes,A,1" for i, x in enumerate((-5, "1e300", 63.5))]
    assert read(*rows, schema=counts("clip")).inputs[:, 0].tolist() == [-1.0, 1.0, 1.0]
    assert "[0, 63]" in fault(read, rows[0], schema=counts("drop")).expected
    assert "written like" in fault(read, "p1,50,many,f,yes,A,1", schema=counts("clip")).expected


@pytest.mark.parametrize(
    ("row", "column", "found", "expected"),
    [
        ("p2,101,10,f,yes,A,1", "age", "101", "[0, 100]"),
        ("p2,-0.1,10,f,yes,A,1", "age", "-0.1", "[0, 100]"),
        ("p2,50,0.5,f,yes,A,1", "crp", "0.5", "[1, 100]"),
        ("p2,50,high,f,yes,A,1", "crp", "high", "written like 1.5"),
        ("p2,50,1_0,f,yes,A,1", "crp", "1_0", "written like 1.5"),
        ("p2,50,nan,f,yes,A,1", "crp", "nan", "written like 1.5"),
        ("p2,50,inf,f,yes,A,1", "crp", "inf", "written like 1.5"),
        ("p2,50,10,x,yes,A,1", "sex", "x", "one of 'f', 'm'"),
        ("p2,50,10,,yes,A,1", "sex", "nothing", "one of 'f', 'm'"),
        ("p2,50,10,f,maybe,A,1", "smoker", "maybe", "or nothing"),
        ("p2,50,10,f,yes,C,1", "scanner", "C", "one of 'A', 'B'"),
        ("p2,50,10,f,yes,,1", "scanner", "nothing", "one of 'A', 'B'"),
        ("p2,50,10,f,yes,A,2", "died", "2", "one of 1 (yes) or one of 0 (no)"),
        ("p2,50,10,f,yes,A,", "died", "nothing", "(yes)"),
        (",50,10,f,yes,A,1", "id", "nothing", "the patient's identifier"),
        ("?,50,10,f,yes,A,1", "id", "?", "the patient's identifier"),
    ],
)
def test_a_value_outside_the_schema_is_named_with_file_row_column_and_expectation(read, row, column, found, expected):
    one = fault(read, row)
    assert (one.file, one.row, one.column) == ("site.csv", 3, column)
    assert found in one.found
    assert expected in one.expected
    for part in ("site.csv", "row 3", repr(column), found, expected):
        assert part in str(one)


def test_absence_without_a_public_fill_is_an_error_and_never_a_mean(read):
    with pytest.raises(DataError) as caught:
        read("p1,,10,f,yes,A,1")
    assert {one.column for one in caught.value.faults} == {"age"}
    assert any("gives no fill" in one.expected for one in caught.value.faults)


def test_at_most_twenty_faults_are_listed_and_all_are_counted(read):
    with pytest.raises(DataError) as caught:
        read(*(f"p{i},50,10,x,yes,A,1" for i in range(50)))
    assert caught.value.total == 50
    assert [one.row for one in caught.value.faults] == list(range(2, 22))
    assert "and 30 more" in str(caught.value)


def test_what_leaves_the_error_has_no_value_of_the_data(read):
    with pytest.raises(DataError) as caught:
        read("p1,50,10,SECRET,yes,A,1")
    assert "SECRET" in str(caught.value)
    for public in (caught.value.summary, repr(caught.value), repr(caught.value.faults[0])):
        assert "SECRET" not in public
        assert "2" not in public
    assert "'sex'" in caught.value.summary


def test_a_row_of_another_width_a_missing_and_a_double_column_are_named(read):
    assert "6 cells" in fault(read, "p2,50,10,f,yes,A").found
    with pytest.raises(DataError) as caught:
        read(*["p2,50,10,f,yes,A"] * 30)
    assert (len(caught.value.faults), caught.value.total) == (20, 30)
    with pytest.raises(DataError) as caught:
        read("p1,50,10,f,A,1", header="id,age,crp,gender,scanner,died")
    assert [one.column for one in caught.value.faults] == ["sex", "smoker"]
    with pytest.raises(DataError) as caught:
        read("p1,50,10,f,yes,A,1,1", header=HEADER + ",died")
    assert caught.value.faults[0].column == "died"
    assert "2 columns" in caught.value.faults[0].found


def test_an_open_quote_bytes_that_are_not_utf8_and_an_absent_file_are_named(read, tmp_path):
    with pytest.raises(DataError, match=r"a quote that is open at the line.s end"):
        read('p1,"50,10,f,yes,A,1')
    path = tmp_path / "latin.csv"
    path.write_bytes((HEADER + "\nM\xfcller,50,10,f,yes,A,1\n").encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_records(path, make_schema()).whole()
    with pytest.raises(DataError, match="fix the path, in the command or in agent") as caught:
        read_records(tmp_path / "absent.csv", make_schema()).whole()
    assert str(tmp_path) not in str(caught.value)


def test_the_line_is_that_of_the_file_even_after_blank_and_broken_lines(read):
    with pytest.raises(DataError) as caught:
        read(GOOD, "", '"p\n2",50,10,f,yes,A,1', "p3,50,10,x,yes,A,1")
    assert [fault.row for fault in caught.value.faults] == [4, 6], "a quote within a cell is part of it"


def test_an_absent_domain_and_an_absent_class_are_normal_and_so_is_an_empty_file(read):
    records = read("p1,50,10,f,yes,A,0", "p2,50,10,f,yes,A,0")
    assert set(records.domains.tolist()) == {1}
    assert set(records.labels.tolist()) == {0}
    empty = read()
    assert (len(empty), empty.patient_count, empty.inputs.shape) == (0, 0, (0, 8))


def test_delimiter_byte_order_mark_extra_columns_and_a_file_without_header_are_read(read, tmp_path):
    schema = make_schema(delimiter=";")
    row = "note;p1;50;10;f;yes;A;1"
    assert len(read(row, header="\ufeffx;" + HEADER.replace(",", ";"), schema=schema)) == 1
    bare = make_schema(columns=tuple(HEADER.split(",")))
    path = tmp_path / "bare.data"
    path.write_text(GOOD + "\n")
    np.testing.assert_array_equal(read_records(path, bare).whole().inputs, read(GOOD).inputs)


ROWS = make_schema(patient=None)


def test_without_a_patient_column_each_record_is_a_unit_named_by_the_columns_of_the_policy(read):
    by = {"schema": ROWS, "identified_by": ["id", "age"]}
    records = read("a,50,10,f,yes,A,1", "b,50,10,f,yes,A,1", "a,50,20,m,no,B,0", **by)
    assert records.patients.tolist() == [0, 1, 2]
    first, second, third = records.identities
    assert first == third != second
    moved = read("b,50,10,f,yes,A,1", "a,50,10,f,yes,A,1", **by)
    assert moved.identities == (second, first)
    shifted = read("a5,0,10,f,yes,A,1", **by)
    assert shifted.identities[0] not in (first, second)
    assert read("a,50,10,f,yes,A,1", schema=ROWS, identified_by=["age", "id"]).identities[0] != first


def test_another_column_or_another_study_moves_no_record(read):
    rows = [f"r{n},{n},10,f,yes,{'AB'[n % 2]},{n % 2}" for n in range(100)]
    wider = [f"{row},{n}" for n, row in enumerate(rows)]
    narrow = make_schema(patient=None, features=make_schema().features[:1])
    by = {"identified_by": ["id"]}
    cohorts = [
        split(records, "ward", 0.3)[1].identities
        for records in (
            read(*rows, schema=ROWS, **by),
            read(*wider, header=f"{HEADER},ward", schema=ROWS, **by),
            read(*rows, schema=narrow, **by),
        )
    ]
    assert cohorts[0] == cohorts[1] == cohorts[2]
    assert 15 < len(cohorts[0]) < 45


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_without_a_column_that_identifies_its_records_is_an_error_that_names_it(suffix, read, tmp_path):
    if suffix == "parquet":
        header, row = HEADER.split(","), ["p1", 50, 10, "f", "yes", "A", 1]
        path = tmp_path / "site.parquet"
        pq.write_table(pa.table({name: [cell] for name, cell in zip(header, row, strict=True)}), path)
    else:
        path = tmp_path / "site.csv"
        path.write_text(f"{HEADER}\n{GOOD}\n")
    with pytest.raises(DataError) as caught:
        read_records(path, ROWS, ["id", "row"]).whole()
    (found,) = caught.value.faults
    assert (found.file, found.column, found.expected) == (f"site.{suffix}", "row", "exactly one")


def test_records_that_nobody_identified_can_be_read_and_not_be_split(read):
    records = read("a,50,10,f,yes,A,1", "b,50,10,f,yes,A,1", schema=ROWS)
    assert records.patient_count == 2
    with pytest.raises(ValueError, match="identified_by"):
        split(records, "ward", 0.2)


def test_a_patient_and_a_record_lie_in_the_same_cohort_whatever_the_files_format(read, tmp_path):
    count = 200
    header = HEADER.split(",")
    lines = [f"{float(n)},{n / 10:.2f},,f,yes,A,{n % 2}.0" for n in range(count)]
    cells = ([float(n) for n in range(count)], [n / 10 for n in range(count)], [None] * count)
    same = (["f"] * count, ["yes"] * count, ["A"] * count, [n % 2 for n in range(count)])
    path = tmp_path / "typed.parquet"
    pq.write_table(pa.table(dict(zip(header, cells + same, strict=True))), path)
    for schema, by in ((make_schema(), ["id"]), (ROWS, ["id", "age", "crp", "died"])):
        plain, typed = read(*lines, schema=schema, identified_by=by), read_records(path, schema, by).whole()
        assert plain.identities == typed.identities
        assert len(set(plain.identities)) == count
        assert split(plain, "ward", 0.2)[1].identities == split(typed, "ward", 0.2)[1].identities


def test_parquet_means_the_same_as_csv(read, tmp_path):
    rows = ["1,50,10,f,yes,A,1", "2,25,,m,,B,0", "1,70.5,99,f,no,B,0"]
    table = pa.table(
        {
            "id": [1, 2, 1],
            "age": [50.0, 25.0, 70.5],
            "crp": [10, None, 99],
            "sex": pa.array(["f", "m", "f"]).dictionary_encode(),
            "smoker": ["yes", None, "no"],
            "scanner": ["A", "B", "B"],
            "died": pa.array([1, 0, 0], pa.int8()),
            "unused": pa.array([None, None, None], pa.timestamp("s")),
        }
    )
    path = tmp_path / "site.parquet"
    pq.write_table(table, path)
    typed, plain = read_records(path, make_schema()).whole(), read(*rows)
    for name in ("inputs", "labels", "domains", "patients"):
        np.testing.assert_array_equal(getattr(typed, name), getattr(plain, name))
    assert typed.identities == plain.identities
    by = ["id", "age", "unused"]
    assert len(set(read_records(path, make_schema(patient=None), by).whole().identities)) == 3


def test_a_bad_parquet_value_and_a_file_that_is_none_are_named(tmp_path):
    columns = {"id": ["p"], "age": [50], "crp": [float("inf")], "sex": ["f"], "smoker": ["no"], "scanner": ["A"]}
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table(columns | {"died": [True]}), path)
    with pytest.raises(DataError) as caught:
        read_records(path, make_schema()).whole()
    assert [(one.row, one.column) for one in caught.value.faults] == [(1, "died"), (1, "crp")]
    with pytest.raises(DataError, match="the 2 columns that the policy or study lists"):
        read_records(path, make_schema(columns=("id", "age"))).whole()
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="unreadable"):
        read_records(path, make_schema()).whole()


def test_a_long_file_is_read_whole(read):
    records = read(*(f"p{i},{i % 100},{1 + i % 99},f,yes,A,{i % 2}" for i in range(20_000)))
    assert len(records) == 20_000


def classes_schema(**changes):
    label = Label(column="died", classes=(("well",), ("ill", "sick"), (2, 3)))
    return make_schema(label=label, **changes)


def test_several_classes_become_their_index_by_any_of_their_codes(read):
    rows = [f"p{i},50,10,f,yes,A,{code}" for i, code in enumerate(["well", "sick", " ill ", "3", "2.0"])]
    labels = read(*rows, schema=classes_schema()).labels
    assert (labels.dtype, labels.tolist()) == (np.int64, [0, 1, 1, 2, 2])


@pytest.mark.parametrize("code", ["4", "", "WELL"])
def test_a_label_of_no_class_is_named_with_the_codes_of_every_class(read, code):
    with pytest.raises(DataError) as caught:
        read(f"p1,50,10,f,yes,A,{code}", schema=classes_schema())
    expected = "one of 'well' (class 0); one of 'ill', 'sick' (class 1); one of 2, 3 (class 2)"
    assert [(one.column, one.expected) for one in caught.value.faults] == [("died", expected)]


def test_a_code_that_means_two_classes_is_an_error_and_no_guess(read):
    schema = make_schema(label=Label(column="died", positive=(1,), negative=("1", "0")))
    with pytest.raises(DataError, match="the study lists it for 2"):
        read(GOOD, schema=schema)
    assert read("p1,50,10,f,yes,A,0", schema=schema).labels.tolist() == [0]


def test_every_record_gets_its_own_image_whatever_the_order_of_the_files(read, tmp_path):
    for level in (10, 20, 30):
        write_png(tmp_path / "scans" / f"{level}.png", np.full((8, 8), level, np.uint8))
    rows = [
        f"{patient},{age},10,f,yes,{scanner},1,scans/{level}.png"
        for patient, age, scanner, level in (
            ("p1", 30, "A", 30),
            ("p2", 10, "B", 10),
            ("p1", 20, "A", 20),
            ("p3", 30, "B", 30),
        )
    ]
    records = read(*rows, header=SCANS, schema=scans_schema())
    level = np.rint((records.images.take(slice(None)).mean(axis=(1, 2, 3)) + 1) * 127.5)
    assert level.tolist() == [30, 10, 20, 30]
    np.testing.assert_allclose((records.inputs[:, 0] + 1) * 50, level, atol=1e-4)
    assert records.images.levels.shape == (3, 1, 8, 8)

    training, evaluation = split(records, "set", 0.5)
    for part in (training, evaluation):
        np.testing.assert_allclose(
            (part.inputs[:, 0] + 1) / 2 * 100, (part.images.take(slice(None))[:, 0, 0, 0] + 1) * 127.5, atol=1e-3
        )
    chosen = records.of_patients(np.array([True, False, False]))
    assert np.array_equal(chosen.images.take(slice(None)), records.images.take(np.array([0, 2])))


def test_images_alone_are_enough(read, tmp_path):
    write_png(tmp_path / "a.png", np.zeros((8, 8), np.uint8))
    schema = make_schema(features=(), image=Image(column="scan", height=8, width=8))
    records = read(GOOD + ",a.png", header=SCANS, schema=schema)
    assert records.inputs.shape == (1, 0)
    assert len(records.images) == 1
    empty = read(header=SCANS, schema=schema)
    assert (len(empty), len(empty.images)) == (0, 0)


def test_faults_of_images_are_named_listed_and_counted_with_all_others(read, tmp_path):
    write_png(tmp_path / "a.png", np.zeros((8, 8), np.uint8))
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    with pytest.raises(DataError) as caught:
        read(
            GOOD + ",a.png",
            "p2,150,10,f,yes,A,1,b.png",
            GOOD + ",cut.png",
            GOOD + ",cut.png",
            header=SCANS,
            schema=scans_schema(),
        )
    found = [(one.file, one.row, one.column) for one in caught.value.faults]
    assert found == [("site.csv", 3, "age"), ("site.csv", 3, "scan"), ("site.csv", 4, "scan"), ("site.csv", 5, "scan")]
    assert "'b.png', no such file" in str(caught.value)
    assert "'cut.png', a file that cannot be read or decoded" in str(caught.value)
    with pytest.raises(DataError) as caught:
        read(*[f"{GOOD},{i}.png" for i in range(50)], header=SCANS, schema=scans_schema())
    assert (len(caught.value.faults), caught.value.total) == (20, 50)
    assert "png" not in caught.value.summary


def test_a_file_without_the_image_column_is_named(read):
    with pytest.raises(DataError) as caught:
        read(GOOD, schema=scans_schema())
    assert [one.column for one in caught.value.faults] == ["scan"]


def test_parquet_names_images_as_csv_does(read, tmp_path):
    write_png(tmp_path / "a.png", np.full((8, 8), 9, np.uint8))
    columns = dict(zip(SCANS.split(","), zip(*[[*GOOD.split(","), "a.png"]] * 2, strict=True), strict=True))
    pq.write_table(pa.table({name: list(cells) for name, cells in columns.items()}), tmp_path / "site.parquet")
    records = read_records(tmp_path / "site.parquet", scans_schema()).whole()
    assert records.images.levels.shape == (1, 1, 8, 8)
    assert np.array_equal(
        records.images.take(slice(None)),
        read(*[GOOD + ",a.png"] * 2, header=SCANS, schema=scans_schema()).images.take(slice(None)),
    )


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_made_up_sites_fit_their_study(tmp_path, classes, channels):
    study = Study.model_validate(study_document(classes=classes, channels=channels))
    for file in write_sites(tmp_path, classes=classes, channels=channels).values():
        records = read_records(file, study.data).whole()
        assert set(records.labels.tolist()) == set(range(classes))
        assert records.images.shape == (channels, 16, 16)
        assert len(records) > records.patient_count == len(records.images.levels) == 24


def test_records_come_with_the_text_of_another_column_and_misfits_are_counted(read, tmp_path):
    path = tmp_path / "wards.csv"
    misfit = GOOD.replace("50", "old")
    path.write_text(f"{HEADER},ward\n{GOOD},II\n{misfit},I\n{GOOD}, I \n{GOOD}\n")
    reasons = Reasons()
    found = read_records(path, make_schema(), faults=reasons, more=("ward",))
    assert found.texts("ward") == ("II", "I")
    assert len(found.records) == 2
    assert found.left_out == 2
    assert [(reason.column, reason.records, reason.row, reason.found) for reason in reasons.counted()] == [
        ("", 1, 5, "7 cells"),
        ("age", 1, 3, "'old'"),
        ("age", 1, 3, "'old'"),
    ]
    assert len({reason.expected for reason in reasons.counted()}) == 3
    assert "old" not in repr(reasons.counted()) + repr(found)
    with pytest.raises(DataError, match="'bed'"):
        read_records(path, make_schema(), faults=Reasons(), more=("bed",))


# --- how the hospital writes its file ---------------------------------------------------------------------------------
OWN = Written(
    ";",
    tuple(HEADER.split(",")),
    (".",),
    {"sex": {"W": "f", "M": "m"}, "died": {"ja": 1, "nein": 0}, "smoker": {"9": None}, "crp": {"<1": 1, "?": -1}},
)
OWN_ROWS = ("p1;50;<1;W;yes;A;ja", "p2;60;?;M;9;B;nein", "p3;70;10;f;.;A;0")
SAME_ROWS = ("p1,50,1,f,yes,A,1", "p2,60,-1,m,,B,0", "p3,70,10,f,,A,0")


def same(one, other):
    assert one.identities == other.identities
    for found, wanted in ((one.inputs[:], other.inputs[:]), (one.labels, other.labels), (one.domains, other.domains)):
        assert found.tolist() == wanted.tolist()


def test_a_file_is_read_as_the_hospital_writes_it_whatever_the_study_expects(read):
    expected = read(*SAME_ROWS)
    same(read(*OWN_ROWS[1:], header=OWN_ROWS[0], written=OWN), expected)
    schema = make_schema(columns=("a", "b"), delimiter="|", missing=("p1", "50"))
    same(read(*OWN_ROWS[1:], header=OWN_ROWS[0], schema=schema, written=OWN), expected)


def test_the_studys_marks_count_where_the_hospital_says_nothing_of_them(read):
    same(read(*SAME_ROWS, written=Written(",", ())), read(*SAME_ROWS))
    with pytest.raises(DataError, match="column 'smoker'"):
        read(*SAME_ROWS, written=Written(",", (), (".",)))


def test_whose_a_record_is_follows_from_the_cells_as_they_stand(read):
    with_codes = Written(",", (), None, {"id": {"p1": "p3"}, "age": {"50": 70}})
    assert read(*SAME_ROWS, written=with_codes).identities == ("p1", "p2", "p3")
    rows = make_schema(patient=None)
    given = {"schema": rows, "identified_by": ("id", "age")}
    assert read(*SAME_ROWS, written=with_codes, **given).identities == read(*SAME_ROWS, **given).identities


def test_of_whoever_has_withdrawn_nothing_is_read(read, tmp_path):
    rows = ("p1,50,10,f,yes,A,1", "p2,70,10,m,yes,A,0", "p1,x,10,f,yes,A,1")
    with pytest.raises(DataError):
        read(*rows)
    path, schema = tmp_path / "site.csv", make_schema()
    reading = read_records(path, schema, withdrawn={"p1"})
    assert (reading.records.identities, reading.left_out, reading.total) == (("p2",), 0, 0)
    assert read_records(path, schema, withdrawn=()).kept == 2
    alone = make_schema(patient=None)
    known = read_records(path, alone, ("id",)).records.identities
    assert read_records(path, alone, ("id",), withdrawn=known[:1]).records.identities == known[1:]
    assert read_records(path, alone, withdrawn={"p1"}).kept == 2, "whoever nobody identified cannot have withdrawn"


def test_some_records_are_enough_and_none_of_some_is_an_error(read, tmp_path):
    read(GOOD)
    path, good, bad = tmp_path / "site.csv", GOOD, GOOD.replace("50", "x")
    for rows, kept in (((good, bad), 1), ((good,), 1), ((), 0)):
        path.write_text("\n".join((HEADER, *rows)) + "\n")
        assert len(read_records(path, make_schema()).some()) == kept
    path.write_text(f"{HEADER}\n{bad}\n")
    with pytest.raises(DataError):
        read_records(path, make_schema()).some()


def test_a_column_is_spelt_as_the_study_means_it(read, tmp_path):
    read(*SAME_ROWS)
    path = tmp_path / "site.csv"
    written = Written(",", (), None, {"age": {"50": "70"}})
    plain = read_records(path, make_schema(), more=("age",))
    own = read_records(path, make_schema(), written=written, more=("age",))
    assert "50" in plain.texts("age")
    assert own.texts("age") == plain.texts("age"), "as it stands"
    ages = [reading.values("age", of_codes(float), 0.0).tolist() for reading in (plain, own)]
    assert ages[1] == [70.0 if age == 50.0 else age for age in ages[0]]


@pytest.mark.parametrize("value", [-1e300, 1e300])
def test_a_number_that_cannot_be_scaled_raises_on_both_sides(value):
    feature = NumericFeature.model_construct(minimum=0.0, maximum=1e-300, scale="linear")
    with pytest.raises((FloatingPointError, OverflowError)):
        _scaled(feature, value)


def test_a_fault_quotes_what_stands_in_the_file(read):
    one = fault(read, "p2,50,<2,f,yes,A,1", written=Written(",", (), None, {"crp": {"<2": 1000}}))
    assert (one.column, one.found) == ("crp", "'<2'")


def test_a_cell_that_cannot_be_compared_makes_its_own_record_unfit(tmp_path):
    table = {name: ["p1", "p2"] if name == "id" else [1, 1] for name in HEADER.split(",")}
    table |= {"sex": ["f", "f"], "smoker": ["yes", "no"], "scanner": ["A", "A"]}
    path = tmp_path / "site.parquet"
    pq.write_table(pa.table({**table, "age": pa.array([10**37, 50], pa.decimal128(38))}), path)
    written = Written(",", (), None, {"age": {"50": 60}, "crp": {"1": 10**15}})
    assert len(read_records(path, make_schema(), written=written).records) == 0
    found = read_records(path, make_schema(), written=replace(written, codes={"age": {"50": 60}})).records
    assert found.identities == ("p2",)


def test_how_a_file_is_written_survives_json():
    assert Written.parse(json.loads(json.dumps(OWN.fields()))) == OWN
    plain = Written(",", ())
    assert Written.parse(json.loads(json.dumps(plain.fields()))) == plain


def test_an_identifier_that_cannot_be_read_makes_its_record_unfit():
    parse = patient_parser(["-"])
    assert parse("p1") == "p1"
    for cell, expected in (
        (2.0**60, "an identifier that is text or a whole number"),
        ("", "the patient's identifier"),
        ("-", "the patient's identifier"),
    ):
        with pytest.raises(Unfit) as unfit:
            parse(cell)
        assert unfit.value.expected.startswith(expected)


def test_a_file_with_commas_dates_units_and_without_a_column_is_read_as_any_other(read):
    spelling = Spelling.model_validate(
        {
            "decimal": ",",
            "absent": ["smoker"],
            "dates": {"born": "%d.%m.%Y", "seen": "%d.%m.%Y"},
            "between": {"age": {"start": "born", "end": "seen", "unit": "years"}},
            "units": {"crp": {"unit": "mg/l", "into": {"mg/dl": {"factor": 0.1}}}},
        }
    )
    written = Written(";", (), None, {"crp": {"<5": 2.5}}, "windows-1252", spelling)
    age, crp, sex, smoker = make_schema().features
    schema = make_schema(
        features=(age, crp.model_copy(update={"unit": "mg/dl"}), sex, smoker),
        label=Label(column="died", positive=("ja",), negative=("früh",)),
    )
    header = "id;born;seen;crp;sex;scanner;died"
    rows = ("pä;01.02.1970;01.02.2020;125,0;f;A;früh", "p2;02.02.1970;01.02.2020;<5;m;B;ja")
    found = read(*rows, header=header, schema=schema, written=written, encoding="windows-1252")
    assert found.identities == ("pä", "p2")
    plain = ("pä,50,12.5,f,,A,früh", "p2,49,2.5,m,,B,ja")
    same(found, read(*plain, schema=schema))


def test_a_line_that_is_not_in_the_files_encoding_costs_its_own_record_alone(tmp_path):
    path = tmp_path / "ward.csv"
    rows = [GOOD.encode(), GOOD.replace("p1", "p2").encode() + b"\x81", "pœ,60,10,m,no,B,0".encode("windows-1252")]
    path.write_bytes(b"\r\n".join([HEADER.encode(), *rows]))
    reading = read_records(path, make_schema(), written=Written(",", (), encoding="windows-1252"))
    assert reading.records.identities == ("p1", "pœ")
    (found,) = reading.faults
    assert (found.row, found.found) == (3, "bytes that are not in the file's encoding")


def test_a_file_in_utf_16_is_refused_by_its_name(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-16")
    with pytest.raises(DataError, match=r"UTF-16.*saved as UTF-8"):
        read_records(path, make_schema())
