"""Which files become which silos."""

import pytest

from deploy.local.simulate.data.reading import data_files, read_silos, read_test
from deploy.local.simulate.errors import SimulationError
from support.studies import tiny_study

HEADER = "patient,group,age,lactate,ill,ward\n"


@pytest.fixture
def schema():
    return tiny_study().data


def write(path, *wards):
    path.write_text(HEADER + "".join(f"p{n},a,5{n % 10},5,{n % 2},{ward}\n" for n, ward in enumerate(wards)))
    return path


def test_a_folder_gives_a_silo_for_each_file(tmp_path, schema):
    write(tmp_path / "North Wing.csv", "x", "x")
    write(tmp_path / "b.csv", "x")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "a.csv").mkdir()
    found = read_silos(data_files(tmp_path, None), schema, None)
    assert {name: len(own) for name, own in found.records.items()} == {"north-wing": 2, "b": 1}


def test_a_column_parts_one_table(tmp_path, schema):
    file = write(tmp_path / "all.csv", "I", "II", "I", "")
    found = read_silos(data_files(file, "ward"), schema, "ward")
    assert {name: len(own) for name, own in found.records.items()} == {"none": 1, "i": 2, "ii": 1}
    assert found.records["i"].identities == ("p0", "p2")
    assert data_files(tmp_path, "ward") == (file,)
    long = read_silos([write(tmp_path / "all.csv", "x" * 70)], schema, "ward").records
    assert list(long) == ["x" * 63], "as long as a silo's name may be"
    many = read_silos([write(tmp_path / "all.csv", *"hgfedcba")], schema, "ward").records
    assert list(many) == list("abcdefgh"), "in the same order in every run"


def test_records_that_do_not_fit_are_left_out_and_counted(tmp_path, schema):
    file = write(tmp_path / "all.csv", "I", "II")
    file.write_text(file.read_text() + "p8,z,50,5,1,III\nbroken\n")
    found = read_silos([file], schema, "ward")
    assert set(found.records) == {"i", "ii"}
    assert found.left_out.records == 2


def test_every_reason_is_named_with_the_records_that_have_it(tmp_path, schema):
    first, second = write(tmp_path / "one.csv", "I"), write(tmp_path / "two.csv", "I")
    first.write_text(f"{first.read_text()}p7,a,old,5,1,I\np8,z,old,5,1,I\nbroken\n")
    second.write_text(f"{second.read_text()}p9,a,200,5,1,I\n")
    left_out = read_silos([first, second], schema, None).left_out
    assert left_out.records == 4
    assert [(reason.column, reason.records, reason.file, reason.row) for reason in left_out.reasons] == [
        ("age", 2, "one.csv", 3),
        ("", 1, "one.csv", 5),
        ("group", 1, "one.csv", 4),
        ("age", 1, "two.csv", 3),
    ]
    assert left_out.reasons[0].found == "'old'"
    assert left_out.reasons[3].expected.startswith("a number in [")


def test_a_reason_that_several_files_have_is_one(tmp_path, schema):
    files = [write(tmp_path / f"{name}.csv", "I") for name in ("one", "two")]
    for file in files:
        file.write_text(file.read_text() + "p7,z,50,5,1,I\n")
    (reason,) = read_silos(files, schema, None).left_out.reasons
    assert (reason.column, reason.records, reason.file) == ("group", 2, "one.csv")


def test_what_cannot_be_told_apart_or_found_is_an_error(tmp_path, schema):
    file = write(tmp_path / "all.csv", "I-1", "I 1")
    with pytest.raises(SimulationError, match="would have one name, i-1"):
        read_silos([file], schema, "ward")
    with pytest.raises(SimulationError, match="--silos-by"):
        data_files(file, None)
    write(tmp_path / "more.csv", "I")
    with pytest.raises(SimulationError, match="holds 2 tables"):
        data_files(tmp_path, "ward")
    with pytest.raises(SimulationError, match="holds no"):
        data_files(tmp_path / "nowhere", None)


def test_a_test_file_without_fitting_records_is_an_error(tmp_path, schema):
    records, left_out = read_test(write(tmp_path / "test.csv", "I"), schema)
    assert (len(records), left_out.records) == (1, 0)
    with pytest.raises(SimulationError, match="no record"):
        read_test(write(tmp_path / "test.csv"), schema)
