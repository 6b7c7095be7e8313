import pytest

from policies.documents.sections.spelling import Spelling
from silo_agent.data.errors import DataError
from silo_agent.data.profiling.profile import Domain, profile
from silo_agent.data.table import Written
from support.studies import tiny_study

HEADER = "patient,group,age,lactate,ill"
WRITTEN = Written(",", ())


def written(folder, *rows, header=HEADER):
    path = folder / "north.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_everything_is_counted_by_column_and_by_domain(tmp_path):
    fit = [f"p{i},{'ab'[i % 2]},{i},{i % 10},{i // 2 % 2}" for i in range(40)]
    foul = ["p1,a,121,5,1", "p3,a,130,5,1", "p2,b,,5,1", "q1,ward-9,50,5,1", "q2,a,50"]
    found = profile(written(tmp_path, *fit, *foul), tiny_study().data, (), WRITTEN)
    assert (found.rows, found.kept, found.left_out, found.broken, found.patients) == (45, 40, 5, 1, 40)
    assert {one.name: (one.unfit, one.missing) for one in found.columns} == {
        "patient": (0, 0),
        "ill": (0, 0),
        "group": (1, 0),
        "age": (3, 1),
        "lactate": (0, 0),
    }
    assert found.domains == (Domain("a", 20, 20, 2), Domain("b", 20, 20, 1), Domain("unknown", 0, 0, 2))
    assert not any(one.gives_away for one in found.columns)
    assert "45" not in repr(found)


def test_lines_and_records_that_are_left_out_add_up(tmp_path):
    found = profile(written(tmp_path, "p1,a,20,5,1", "p2,a,x,5,1", "p3,a"), tiny_study().data, (), WRITTEN)
    assert (found.rows, found.kept, found.left_out, found.broken) == (3, 1, 2, 1)


def test_a_cell_that_is_both_domain_and_feature_is_counted_once(tmp_path):
    by_age = [{"column": "age", "edges": [50], "names": ["a", "b"]}]
    schema = tiny_study(data={"domain": by_age}).data
    found = profile(written(tmp_path, "p1,a,20,5,1", "p2,b,,5,1"), schema, (), WRITTEN)
    assert {one.name: one.unfit for one in found.columns}["age"] == 1


def test_a_column_that_gives_the_label_away_is_named(tmp_path):
    rows = [f"p{i},{'ab'[i % 2]},{20 + 40 * (i // 2 % 2)},{i % 10},{i // 2 % 2}" for i in range(80)]
    found = profile(written(tmp_path, *rows), tiny_study().data, (), WRITTEN)
    assert [one.name for one in found.columns if one.gives_away] == ["age"]
    assert {one.name for one in found.columns if one.tells is None} == {"patient", "ill"}


def test_a_code_that_is_absent_is_a_value_of_its_own_for_what_gives_the_label_away(tmp_path):
    sex = {"kind": "category", "column": "age", "values": ["f", "m"], "missing": ["u"], "optional": True}
    schema = tiny_study(data={"features": [sex]}).data
    rows = [f"p{i},{'ab'[i % 2]},{'um'[i // 2 % 2]},5,{i // 2 % 2}" for i in range(80)]
    found = profile(written(tmp_path, *rows), schema, (), WRITTEN)
    assert [one.name for one in found.columns if one.gives_away] == ["age"]


def test_the_hospitals_own_codes_are_read_as_what_they_stand_for(tmp_path):
    rows = [f"p{i},{'FM'[i % 2]},{i},5,1" for i in range(6)]
    own = Written(",", (), None, {"group": {"F": "a", "M": "b"}})
    found = profile(written(tmp_path, *rows), tiny_study().data, (), own)
    assert found.domains == (Domain("a", 3, 3, 0), Domain("b", 3, 3, 0))


def test_a_file_without_records_is_a_normal_result(tmp_path):
    found = profile(written(tmp_path), tiny_study().data, (), WRITTEN)
    assert (found.rows, found.kept, found.left_out) == (0, 0, 0)


def test_a_file_that_lacks_a_column_is_an_error(tmp_path):
    with pytest.raises(DataError, match="lactate"):
        profile(written(tmp_path, header="patient,group,age,ill"), tiny_study().data, (), WRITTEN)


def test_numbers_that_look_like_another_unit_are_told_as_they_are_converted(tmp_path):
    rows = [f"p{i},{'ab'[i % 2]},{i},{1000 * (1 + i % 9)},{i // 2 % 2}" for i in range(40)]
    schema = tiny_study().data
    age, lactate = schema.features
    asked = schema.model_copy(update={"features": (age, lactate.model_copy(update={"unit": "mmol/l"}))})
    found = profile(written(tmp_path, *rows), asked, (), WRITTEN)
    assert [one.name for one in found.columns if one.unit] == ["lactate"]
    units = {"lactate": {"unit": "umol/l", "into": {"mmol/l": {"factor": 0.001}}}}
    own = Written(",", (), spelling=Spelling.model_validate({"units": units}))
    converted = profile(written(tmp_path, *rows), asked, (), own)
    assert [one.name for one in converted.columns if one.unit] == []
    assert converted.kept == 40
