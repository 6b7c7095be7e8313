from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from crypto.authorship import SignatureBeside
from policies.documents.policy import DataRule, Policy
from policies.refusals import Refused
from silo_agent.config import AgentConfig
from silo_agent.storage import offered
from silo_agent.storage.approvals import (
    Approval,
    Approvals,
    approvals,
    approve,
    begin_anew,
    looked_at,
    made,
    no_data,
    require_approved,
    source_of,
    upgrade,
    withdraw,
)
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from support.small_cohort import policy_document
from support.states import keyed
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
AT = "2026-11-06T15:04:00+00:00"
SIGNED = offered.Signed("fedward://author/ann", SignatureBeside(b"pem", b"s"))
HERS = tiny_study(name="exam-2")
EXAM, OTHER = tiny_study(name="exam"), tiny_study(name="other")


@pytest.fixture
def folder(tmp_path):
    return StateFolder(tmp_path / "state")


@pytest.fixture
def policy():
    return Policy.model_validate(policy_document("ward"))


def rule(studies):
    return DataRule(studies=studies, author=SIGNED.author, purpose="*")


def config(folder, *names):
    return AgentConfig.model_construct(
        state=folder.path, data={name: folder.path / f"{name}.csv" for name in names}, databases={}
    )


def test_an_approval_is_of_one_text_and_can_be_taken_back(folder, policy):
    settings, twin = config(folder, "lung", "exam"), tiny_study(name="exam", purpose="The same name, another study.")
    assert source_of(settings, EXAM, policy) is None
    approve(folder, EXAM, made(EXAM, "lung", NOW))
    assert source_of(settings, EXAM, policy) == settings.data["lung"]
    assert source_of(settings, twin, policy) is None
    assert approvals(folder) == Approvals({EXAM.digest: Approval("exam", "lung", AT)})
    assert approvals(folder).approved == {EXAM.digest}
    assert folder.path.stat().st_mode & 0o777 == 0o700, "a folder that an approval makes is the owner's alone"
    withdraw(folder, {EXAM.digest: "exam"}, NOW)
    assert approvals(folder).approved == set()
    assert source_of(settings, EXAM, policy) is None
    with pytest.raises(Refused, match="has not approved the study, or has taken its approval back"):
        require_approved(settings, EXAM, policy)
    approve(folder, EXAM, made(EXAM, "lung", NOW))
    require_approved(settings, EXAM, policy)


def test_data_of_a_studys_name_approve_nothing(folder, policy):
    settings = config(folder, "exam")
    assert source_of(settings, EXAM, policy) is None
    assert "agent.yaml names data and no study (exam)" in no_data(EXAM, settings)
    assert f"study show {EXAM.digest[:12]}, then" in no_data(EXAM, settings)


def test_an_approval_of_data_that_are_named_no_more_gives_nothing(folder, policy):
    approve(folder, EXAM, made(EXAM, "gone", NOW))
    assert source_of(config(folder, "exam"), EXAM, policy) is None


def test_a_rule_of_the_policy_gives_data_if_nobody_has_decided(folder, policy):
    settings = config(folder, "ward", "lab")
    upgrade(folder, {}, [], NOW)
    ruled = policy.model_copy(update={"approved_data": {"ward": (rule("exam*"),), "gone": (rule("other"),)}})
    assert source_of(settings, EXAM, ruled) is None, "nothing says that the rule's author has signed it"
    for study in (EXAM, OTHER):
        offered.keep(folder, study, NOW, signed=SIGNED)
    offered.keep(folder, HERS, NOW, signed=replace(SIGNED, author="fedward://author/eve"))
    assert source_of(settings, HERS, ruled) is None
    assert source_of(settings, EXAM, ruled) == settings.data["ward"]
    assert source_of(settings, OTHER, ruled) is None, "agent.yaml does not name what the rule names"
    twice = policy.model_copy(update={"approved_data": {"ward": (rule("exam"),), "lab": (rule("exam"),)}})
    with pytest.raises(StateError, match=rf"several data \(lab, ward\); .*approve {EXAM.digest[:12]}"):
        source_of(settings, EXAM, twice)
    approve(folder, EXAM, made(EXAM, "lab", NOW))
    assert source_of(settings, EXAM, twice) == settings.data["lab"]
    withdraw(folder, {EXAM.digest: "exam"}, NOW)
    assert source_of(settings, EXAM, ruled) is None, "what was taken back no rule gives again"


def test_a_person_who_looks_at_data_needs_no_approval(folder, policy):
    settings = config(folder, "exam", "lung")
    assert looked_at(settings, EXAM, policy) == settings.data["exam"]
    assert looked_at(settings, EXAM, policy, "lung") == settings.data["lung"]
    approve(folder, EXAM, made(EXAM, "lung", NOW))
    assert looked_at(settings, EXAM, policy) == settings.data["lung"]
    assert looked_at(config(folder, "lung"), OTHER, policy) == settings.data["lung"], "there are no others"
    with pytest.raises(StateError, match=r"nothing says which data .*say so with --data NAME"):
        looked_at(settings, OTHER, policy)
    with pytest.raises(StateError, match="names no data 'liver'"):
        looked_at(settings, OTHER, policy, "liver")


DAMAGED = [
    "",
    "{",
    "[]",
    "null",
    '{"exam": 1}',
    '{"version": 4, "approvals": {}, "unbound": {}}',
    json.dumps({"version": 3, "approvals": {EXAM.digest: {"study": "exam", "data": "lung", "at": ""}}, "unbound": {}}),
    '{"version": 2, "approvals": {"0123": {"study": "exam", "data": "lung", "at": ""}}, "unbound": {}}',
    json.dumps({"version": 2, "approvals": {EXAM.digest: {"study": "exam", "data": 1, "at": ""}}, "unbound": {}}),
    '{"version": 2, "approvals": {}}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_list_that_cannot_be_read_approves_nothing(folder, policy, content):
    folder.path.mkdir()
    folder.approvals.write_text(content)
    for read in (approvals, lambda folder: approve(folder, EXAM, made(EXAM, "lung", NOW))):
        with pytest.raises(StateError, match=r"approvals\.json cannot be read, .*withdraw-approval --all"):
            read(folder)
    with pytest.raises(Refused):
        require_approved(
            config(folder, "lung"), EXAM, policy.model_copy(update={"approved_data": {"lung": (rule("*"),)}})
        )
    begin_anew(folder, {EXAM.digest: "exam"}, NOW)
    assert approvals(folder) == Approvals({EXAM.digest: Approval("exam", None, AT)})


def test_a_list_that_is_gone_is_not_taken_for_an_empty_one(folder):
    assert approvals(folder) == Approvals(old=True)
    upgrade(folder, {}, ["exam"], NOW)
    offered.keep(folder, EXAM, NOW)
    folder.approvals.unlink()
    with pytest.raises(StateError, match=r"approvals\.json is gone"):
        upgrade(folder, {EXAM.digest: "exam"}, ["exam"], NOW)


def test_what_version_06_approved_goes_on_if_it_has_begun_and_else_is_listed_and_gives_nothing(folder, policy):
    whole, begun = tiny_study(name="whole"), tiny_study(name="begun")
    by_digest, own = tiny_study(name="by-digest"), tiny_study(name="own")
    later = tiny_study(name="later")
    old = {whole.digest: "a", "begun": "b", by_digest.digest[:12]: "c", "own": "d", "later": "e", "abcdef012345": "f"}
    folder.path.mkdir()
    folder.approvals.write_text(json.dumps(old))
    folder.waiting.write_text("[]")
    settings = config(folder, "a", "b", "c", "own", "d", "e", "ruled", "whole")
    nobodys = tiny_study(name="ruled-by-nobody")
    running = {one.digest: one.name for one in (whole, begun, by_digest, own, nobodys)}
    found = upgrade(folder, running, settings.data, NOW)
    assert source_of(settings, whole, policy) == settings.data["a"]
    assert source_of(settings, begun, policy) == settings.data["b"]
    assert source_of(settings, by_digest, policy) == settings.data["c"]
    assert source_of(settings, own, policy) == settings.data["own"], "in 0.6 agent.yaml went before an approval"
    assert source_of(settings, later, policy) is None
    assert set(found.bound) == {one.digest for one in (whole, begun, by_digest, own)}
    assert json.loads(folder.approvals.read_bytes())["version"] == 3
    assert dict(found.unbound) == {"later": "e", "abcdef012345": "f"}
    assert not folder.waiting.exists()
    approve(folder, later, made(later, "e", NOW))
    assert dict(approvals(folder).unbound) == {"abcdef012345": "f"}


def test_an_upgrade_binds_once(folder, policy):
    """A study that begins later by the policy's rule gets nothing from agent.yaml by its name."""
    upgrade(folder, {}, ["exam"], NOW)
    assert upgrade(folder, {EXAM.digest: "exam"}, ["exam"], NOW) == Approvals()
    assert source_of(config(folder, "exam"), EXAM, policy) is None


def test_unbound_words_can_be_taken_off(folder):
    folder.path.mkdir()
    folder.approvals.write_text('{"exam": "lung", "other": "lung"}')
    withdraw(folder, {}, NOW, ["exam"])
    assert dict(approvals(folder).unbound) == {"other": "lung"}


def test_a_decision_is_kept_with_its_reason_and_signature(folder):
    given = replace(made(EXAM, "lung", NOW, "the board said so"), signed=SIGNED.signature)
    approve(folder, EXAM, given)
    withdraw(folder, {OTHER.digest: "other"}, NOW, reason="no", declined=True)
    withdraw(folder, {HERS.digest: "exam-2"}, NOW, reason="not any more")
    found = approvals(folder).bound
    assert found[EXAM.digest] == given
    assert [(found[one.digest].verdict, found[one.digest].reason) for one in (EXAM, OTHER, HERS)] == [
        ("approved", "the board said so"),
        ("refused", "no"),
        ("withdrawn", "not any more"),
    ]


def test_a_signature_is_over_all_that_an_approval_says():
    given = made(EXAM, "lung", NOW, "so")
    others = (
        replace(given, data="lab"),
        replace(given, at="2027"),
        replace(given, reason=""),
        replace(given, data=None),
    )
    messages = {given.message(EXAM.digest), given.message(OTHER.digest), *(one.message(EXAM.digest) for one in others)}
    assert len(messages) == 6
    assert replace(given, study="renamed").message(EXAM.digest) == given.message(EXAM.digest)


def test_what_version_06_and_an_early_07_listed_is_read(folder):
    folder.path.mkdir()
    early = {"study": "exam", "data": "lung", "at": AT}
    folder.approvals.write_text(json.dumps({"version": 2, "approvals": {EXAM.digest: early}, "unbound": {}}))
    assert approvals(folder) == Approvals({EXAM.digest: Approval("exam", "lung", AT, old=True)})


def test_what_has_begun_is_listed_by_the_name_in_its_text(tmp_path):
    state = keyed(tmp_path / "state")
    state.add_study(EXAM.digest, EXAM.canonical())
    assert state.names() == {EXAM.digest: EXAM.name}
    state.close()
