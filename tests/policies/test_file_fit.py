"""Whether a hospital's file, as its policy says it is written, can give what a study reads."""

import pytest

from policies.file_fit import check_file
from policies.refusals import Reason, Refused
from support.tables import make_schema


def reasons(policy, study):
    try:
        check_file(policy, study)
    except Refused as refused:
        return [text if label is Reason.FILE else label for label, text in refused.reasons]
    return []


@pytest.fixture
def study_of(make_study):
    """A study whose data are those of `make_schema`, with fields replaced."""

    def made(**changes):
        return make_study({"data": make_schema(**changes).model_dump(mode="json")})

    return made


def spelt(make_policy, **spelling):
    return make_policy({"data_set.identified_by": ["id"], "spelling": spelling})


def test_a_column_that_a_hospital_lacks_is_one_that_can_be_done_without(make_policy, study_of):
    study = study_of()
    assert reasons(spelt(make_policy, absent=["crp", "smoker", "elsewhere"]), study) == []
    found = reasons(spelt(make_policy, absent=["died", "scanner", "age", "sex"]), study)
    assert [text.split(" is column ")[0] for text in found[:3]] == [
        "study.data.label",
        "study.data.domain",
        "study.data.domain",
    ]
    assert "'sex' without optional: true, and policy.spelling.absent lists it: every record would be" in found[3]
    assert len(found) == 4, "age decides a domain, which is said once"
    crp = study.data.features[1].model_copy(update={"fill": None})
    (text,) = reasons(spelt(make_policy, absent=["crp"]), study_of(features=(crp,)))
    assert "'crp' without fill" in text


@pytest.mark.parametrize("field", ["protected", "environment"])
def test_what_each_record_must_have_cannot_be_absent(make_policy, study_of, field):
    column = {"column": "ward", "values": [1, 2]}
    given = [{**column, "names": ["a", "b"]}] if field == "protected" else column
    (text,) = reasons(spelt(make_policy, absent=["ward"]), study_of(**{field: given}))
    assert f"study.data.{field} is column 'ward'" in text


def test_numbers_are_read_in_the_studys_unit_or_not_at_all(make_policy, study_of):
    own = {"elsewhere": {"unit": "m"}, "crp": {"unit": "mg/l", "into": {"mg/dl": {"factor": 0.1}}}}
    policy = spelt(make_policy, units=own)
    age, crp, sex, smoker = make_schema().features

    def study(unit):
        return study_of(features=(age, crp.model_copy(update={"unit": unit}), sex, smoker))

    assert reasons(policy, study("mg/l")) == reasons(policy, study("mg/dl")) == []
    (other,) = reasons(policy, study("g/l"))
    assert other.startswith("policy.spelling.units says that column 'crp' is in mg/l, and the study asks for g/l: add")
    (unnamed,) = reasons(policy, study(None))
    assert "the study names no unit of it: ask the study's authors to name one" in unnamed
    assert reasons(spelt(make_policy), study("g/l")) == []
    assert reasons(policy, study_of(features=(age, sex, smoker))) == []
