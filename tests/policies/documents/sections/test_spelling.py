"""How a file is written: what is refused, and what a policy without it keeps."""

import json

import pytest
from pydantic import ValidationError

from policies.documents.sections.spelling import OwnUnit, Spelling

DATES = {"born": "%d.%m.%Y", "seen": "%Y-%m-%d %H:%M:%S"}
AGE = {"start": "born", "end": "seen", "unit": "years"}


def refused(**fields):
    with pytest.raises(ValidationError) as caught:
        Spelling.model_validate(fields)
    return str(caught.value)


@pytest.mark.parametrize("form", ["%d.%m.%y", "%m.%Y", "%d.%d.%m.%Y", "%j %Y %m %d", "%d.%m.%Y %", "", "%d.%m.%Y\n"])
def test_a_date_has_one_format_that_says_the_whole_day(form):
    assert "dates" in refused(dates={"born": form})


def test_all_that_does_not_fit_together_is_told_at_once():
    said = refused(
        dates={"born": "%d.%m.%Y"},
        between={"age": AGE, "stay": {"start": "in", "end": "out", "unit": "days"}},
        absent=["age", "crp", "crp"],
        codes={"crp": {"?": None}},
        units={"stay": {"unit": "days"}},
    )
    for text in (
        "between.age counts from born to seen, and dates does not say how seen is written",
        "how in is written",
        "how out is written",
        "absent lists crp, of which the file then has no cells, and codes lists it too",
        "between lists stay, of which the file then has no cells, and units lists it too",
        "absent and between both list age",
        "absent lists a column twice",
    ):
        assert text in said


@pytest.mark.parametrize("factor", [0, -1, float("inf"), True])
def test_a_factor_is_a_number_above_0(factor):
    assert "factor" in refused(units={"crp": {"unit": "g", "into": {"mg": {"factor": factor}}}})


def test_a_unit_is_made_of_the_files_own_or_not_at_all():
    own = OwnUnit.model_validate({"unit": "F", "into": {"C": {"factor": 0.5556, "offset": -17.78}}})
    same, made = own.conversion("F"), own.conversion("C")
    assert (same.factor, same.offset, made.factor, made.offset) == (1.0, 0.0, 0.5556, -17.78)
    assert own.conversion("K") is own.conversion(None) is None
    assert "own unit" in refused(units={"t": {"unit": "F", "into": {"F": {"factor": 1}}}})


def test_what_says_nothing_stands_in_no_policy(make_policy):
    plain = json.loads(make_policy().canonical())
    assert "spelling" not in plain
    assert set(plain["data_set"]["file"]) == {"delimiter", "columns"}
    older = json.loads(make_policy({"spelling": {"missing": ["."]}}).canonical())
    assert older["spelling"] == {"missing": ["."], "codes": {}}
    said = json.loads(make_policy({"spelling": {"decimal": ","}, "data_set.file.encoding": "big5"}).canonical())
    assert said["spelling"] == {"missing": None, "codes": {}, "decimal": ","}
    assert said["data_set"]["file"]["encoding"] == "big5"
    assert make_policy({"spelling": {"decimal": "."}}).digest == make_policy().digest


@pytest.mark.parametrize("field", ["absent", "between"])
def test_whose_a_record_is_stands_in_the_file(make_policy, field):
    listed = {"absent": ["pid"], "between": {"pid": AGE}}[field]
    with pytest.raises(Exception, match=rf"spelling\.{field} lists pid of data_set\.identified_by"):
        make_policy({"spelling": {"dates": DATES, field: listed}})


def test_the_files_encoding_binds_the_ledger(make_policy):
    from policies.ledger.chain import Genesis, genesis_row  # noqa: PLC0415

    plain, other = (Genesis.of(make_policy(changes)) for changes in ({}, {"data_set.file.encoding": "windows-1252"}))
    assert "encoding" not in genesis_row(plain)[3]
    assert '"encoding":"windows-1252"' in genesis_row(other)[3]


def test_own_codes_are_texts_whatever_yaml_reads():
    assert Spelling.model_validate({"codes": {"sex": {1: "f", " m ": "m", "9": None}}}).codes == {
        "sex": {"1": "f", "m": "m", "9": None}
    }
    assert "two codes of the file are the same text" in refused(codes={"sex": {1: "f", "1 ": "m"}})
    assert "reads as a truth value" in refused(codes={"sex": {True: "f"}})
    assert "codes.sex" in refused(codes={"sex": "f"})
