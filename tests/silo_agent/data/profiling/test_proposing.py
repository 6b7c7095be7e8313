"""What a file seems to say of how it is written: proposed for a person, and nothing of fewer than twenty patients."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from policies.documents.sections.spelling import FileFormat, Spelling
from silo_agent.data.errors import DataError
from silo_agent.data.profiling.proposing import FEWEST, as_yaml, look

COUNT = 200


def column(*values):
    return [values[i % len(values)] for i in range(COUNT)]


def write(path, columns, *, delimiter=",", encoding="utf-8", end="\n"):
    whole = {"id": [f"p{i}" for i in range(COUNT)], **columns}
    rows = [delimiter.join(cells) for cells in zip(*whole.values(), strict=True)]
    path.write_bytes((end.join([delimiter.join(whole), *rows]) + end).encode(encoding))
    return path


@pytest.fixture
def seen(tmp_path):
    def _seen(columns, **form):
        return look(write(tmp_path / "ward.csv", columns, **form), "id")

    return _seen


def said(found):
    return {one.field: one.value for one in (*found.file, *found.spelling)}


def test_of_a_file_as_studies_expect_it_nothing_is_proposed(seen):
    found = seen({"age": column("50", "60"), "crp": column("1.5", "2", ""), "sex": column("f", "m")})
    assert (found.rows, said(found)) == (COUNT, {})
    assert found.remarks == ('column sex: codes ("f", "m"); if studies write them otherwise, list them under codes',)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "^"])
def test_the_delimiter_is_the_one_that_parts_all_lines_alike(seen, delimiter):
    found = seen({"age": column("50", "60"), "crp": column("1,5", "2")}, delimiter=delimiter)
    assert said(found) == {"data_set.file.delimiter": delimiter, "spelling.decimal": ","}
    assert FileFormat(delimiter=delimiter, columns=()).delimiter == delimiter


def test_a_delimiter_that_parts_some_lines_further_is_not_taken(tmp_path):
    path = tmp_path / "ward.csv"
    rows = [f"p{i};see, or ask, or leave" for i in range(COUNT)]
    path.write_text("\n".join(["id;a, b", *rows]) + "\n")
    assert said(look(path, "id"))["data_set.file.delimiter"] == ";"


@pytest.mark.parametrize(("encoding", "text"), [("windows-1252", "Größe €"), ("iso-8859-1", "Größe \x81")])
def test_bytes_that_are_not_utf_8_are_western(seen, encoding, text):
    found = seen({text: column("1", "2")}, encoding=encoding)
    (one,) = found.file
    assert (one.field, one.value) == ("data_set.file.encoding", encoding)
    assert "Größe" in one.why
    assert FileFormat(delimiter=",", columns=(), encoding=one.value).encoding == encoding


def test_characters_of_utf_8_may_lie_across_pieces(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_bytes(b"id,x\n" + b"p1," + b"a" * ((1 << 22) - 9) + "ß\n".encode())
    assert look(path, "id").file == ()


def test_a_last_byte_that_begins_a_character_is_not_utf_8(tmp_path):
    path = tmp_path / "ward.csv"
    path.write_bytes("id,x\np1,Gruß".encode("windows-1252"))
    (one,) = look(path, "id").file
    assert one.value == "windows-1252"


def test_numbers_with_points_and_commas_are_for_a_person_to_settle(seen):
    found = seen({"a": column("1;5".replace(";", ","), "2"), "b": column("1.5", "2")}, delimiter=";")
    assert "spelling.decimal" not in said(found)
    assert "numbers have a comma in a and a point in b; mend the file" in found.remarks
    found = seen({"a": column("1,5", "2.5")}, delimiter=";")
    assert "column a: some numbers have a comma, and some a point; mend the file" in found.remarks


def test_dates_of_one_form_are_proposed_and_others_named(seen):
    found = seen(
        {
            "born": column("31.01.1950", "01.02.1960", ""),
            "seen": column("2020-01-31 10:00", "2020-02-01 11:30"),
            "left": column("01/02/2020", "03/04/2020"),
            "mixed": column("31/01/2020", "05/06/2020"),
        }
    )
    assert said(found) == {
        "spelling.dates": {"born": "%d.%m.%Y", "seen": "%Y-%m-%d %H:%M", "mixed": "%d/%m/%Y"},
    }
    assert found.remarks == (
        'column left: dates that may be "%d/%m/%Y" or "%m/%d/%Y"; write the right one under dates',
    )


def test_marks_among_numbers_mean_not_recorded_if_enough_patients_have_them(seen):
    found = seen({"crp": column("1", "2", "k.A.", "4", "?"), "age": ["NA"] * (FEWEST - 1) + column("50")[FEWEST - 1 :]})
    assert said(found) == {"spelling.missing": ["", "k.A.", "?"]}
    (remark,) = found.remarks
    assert remark.startswith("column age: cells among the numbers are texts (texts of fewer than 20 patients each)")


def test_what_few_patients_have_is_quoted_nowhere(seen):
    rare = ["Meyer"] * (FEWEST - 1) + column("x", "y", "z")[FEWEST - 1 :]
    crp = ["<0.3 Meyer"] * (FEWEST - 1) + column("1")[FEWEST - 1 :]
    found = seen({"ward": rare, "crp": crp})
    assert "Meyer" not in repr(found) + str(found.remarks) + str(said(found))
    assert "others of fewer than 20 patients each" in found.remarks[0]
    assert '"x"' in found.remarks[0]


def test_one_patient_with_many_rows_is_one_patient(tmp_path):
    path = tmp_path / "ward.csv"
    rows = [f"p{i % 10},{'Meyer' if i % 10 == 3 else 'x'}" for i in range(COUNT)]
    path.write_text("\n".join(["id,ward", *rows]) + "\n")
    (remark,) = look(path, "id").remarks
    assert remark.startswith("column ward: codes (texts of fewer than 20 patients each)")


def test_a_policy_reads_what_is_written(seen):
    found = seen(
        {"crp": column("1,5", "k.A."), "born": column("31.01.1950"), "w\x85": column("a\x85", "b")}, delimiter=";"
    )
    text = as_yaml(found.spelling, found.remarks)
    spelling = Spelling.model_validate(yaml.safe_load(text)["spelling"])
    assert (spelling.decimal, spelling.missing) == (",", ("", "k.A."))
    assert spelling.dates == {"born": "%d.%m.%Y"}
    assert as_yaml((), ()) == ""
    assert yaml.safe_load(as_yaml((), ("a remark",))) is None


def test_a_parquet_file_says_itself_how_it_is_parted(tmp_path):
    path = tmp_path / "ward.parquet"
    whole = {"id": list(range(COUNT)), "age": column(50.5, None), "born": column("31.01.1950"), "n": column("?", "2")}
    pq.write_table(pa.table(whole), path)
    found = look(path, "id")
    assert said(found) == {"spelling.missing": ["", "?"], "spelling.dates": {"born": "%d.%m.%Y"}}


def test_a_file_that_cannot_be_looked_at_is_refused_by_name(tmp_path):
    path = write(tmp_path / "ward.csv", {})
    with pytest.raises(DataError, match="no column 'patient' in its first line"):
        look(path, "patient")
    with pytest.raises(DataError, match=r"none\.csv: found no file"):
        look(tmp_path / "none.csv", "id")
    with pytest.raises(DataError, match="UTF-16"):
        look(write(path, {"age": column("50")}, encoding="utf-16"), "id")
    path.write_bytes(b'"id\n')
    with pytest.raises(DataError, match="first line that cannot be parted"):
        look(path, "id")
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="unreadable file"):
        look(tmp_path / "x.parquet", "id")
