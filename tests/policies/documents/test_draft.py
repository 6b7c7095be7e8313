"""What a draft may say, and that nothing else takes one."""

import pytest
import yaml
from pydantic import ValidationError

from policies.documents.document import DocumentError
from policies.documents.draft import Draft, load_draft
from policies.documents.study import Study, load_study
from support.studies import tiny_study


def document(**privacy):
    study = tiny_study().model_dump(mode="json")
    return {
        **{name: study[name] for name in ("name", "purpose", "silos", "data")},
        "privacy": {"epsilon": 4, **privacy},
        "expected": {"patients": [500]},
    }


def test_what_is_stated_is_told_apart_from_what_is_left_out(tmp_path):
    file = tmp_path / "draft.yaml"
    file.write_text(yaml.safe_dump({**document(), "heads": {"clip": 0.4}}))
    stated = load_draft(file).stated()
    assert stated["heads"] == {"clip": 0.4}
    assert stated["privacy"] == {}
    assert "encoder" not in stated


def test_a_draft_is_no_study(tmp_path):
    file = tmp_path / "draft.yaml"
    file.write_text(yaml.safe_dump(document()))
    with pytest.raises(DocumentError, match="fedward-silo study complete DRAFT") as caught:
        load_study(file)
    assert len(caught.value.faults) == 1


def test_a_whole_study_that_states_an_epsilon_is_refused_as_a_draft():
    whole = tiny_study().model_dump(mode="json")
    whole["privacy"]["epsilon"] = 4
    with pytest.raises(ValidationError, match=r"privacy\.epsilon stands in a draft"):
        Study.model_validate(whole)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"epsilon": 0}, "greater than 0"),
        ({"epsilon": 33}, "less than or equal to 32"),
        ({"mode": "none"}, "local"),
        ({"delta": 1e-3}, "choose at most"),
    ],
)
def test_a_price_that_is_none_is_refused(change, fault):
    with pytest.raises(ValidationError, match=fault):
        Draft.model_validate(document(**change))


def test_patients_are_those_of_one_or_of_every_silo():
    with pytest.raises(ValidationError, match="write one, or one for each"):
        Draft.model_validate({**document(), "expected": {"patients": [1] * 40}})
