from __future__ import annotations

import pytest

from policies.documents.policy import Policy
from silo_agent.config import AgentConfig
from silo_agent.storage.approvals import approve, approved, source_of
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from support.small_cohort import policy_document
from support.studies import tiny_study

DIGEST = "0123456789ab" * 5 + "cdef"


def test_a_study_is_approved_by_its_name_or_its_digest_and_the_digest_goes_before(tmp_path):
    folder = StateFolder(tmp_path / "state")
    assert approved(folder, "exam", DIGEST) is None
    approve(folder, "exam", "lung")
    assert approved(folder, "exam", DIGEST) == "lung"
    approve(folder, DIGEST[:12], "heart")
    assert approved(folder, "exam", DIGEST) == "heart"
    assert approved(folder, "exam", "f" * 64) == "lung"
    approve(folder, "exam", "liver")
    assert approved(folder, "exam", "f" * 64) == "liver"
    approve(folder, "0123", "none")
    assert approved(folder, "other", DIGEST) == "heart", "a short beginning of a digest is a name"
    assert approved(folder, "0123", "f" * 64) == "none"


def test_no_study_gets_anothers_data_by_a_name_that_looks_like_its_digest(tmp_path):
    folder = StateFolder(tmp_path / "state")
    approve(folder, DIGEST[:12], "heart")
    assert approved(folder, DIGEST[:12], "f" * 64) is None


@pytest.mark.parametrize("content", ["", "[]", '{"exam": 1}', "{"])
def test_approvals_that_cannot_be_read_approve_nothing(tmp_path, content):
    folder = StateFolder(tmp_path)
    folder.approvals.write_text(content)
    with pytest.raises(StateError, match=r"approvals\.json in the state folder cannot be read; delete it"):
        approved(folder, "exam", DIGEST)


def test_a_rule_of_the_policy_gives_data_if_nobody_else_does(tmp_path):
    """agent.yaml goes before an approval, and an approval before the rule. Several data by the rule are none."""
    study, other = tiny_study(name="exam-1"), tiny_study(name="other")
    names = {name: tmp_path / f"{name}.csv" for name in ("ward", "lab", "own")}
    policy = Policy.model_validate(policy_document("ward")).model_copy(
        update={"approved_data": {"ward": ("exam-*",), "gone": ("other",)}}
    )
    config = AgentConfig.model_construct(state=tmp_path / "state", data=names, databases={})
    assert source_of(config, study, policy) == names["ward"]
    assert source_of(config, other, policy) is None, "agent.yaml does not name what the rule names"
    twice = policy.model_copy(update={"approved_data": {**policy.approved_data, "lab": ("exam-1",)}})
    with pytest.raises(StateError, match=r"several data \(lab, ward\); say which: fedward-silo study approve exam-1"):
        source_of(config, study, twice)
    approve(StateFolder(config.state), "exam-1", "lab")
    assert source_of(config, study, twice) == names["lab"]
    own = config.model_copy(update={"data": {**names, "exam-1": names["own"]}})
    assert source_of(own, study, twice) == names["own"]
