"""The texts of studies that a silo keeps: which one is meant, who stands behind it, and what is new in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crypto.authorship import SignatureBeside, sign_study
from silo_agent.review import texts
from silo_agent.review.texts import Author
from silo_agent.storage import approvals, offered
from silo_agent.storage.errors import StateError
from support.asked import NOW, begin
from support.people import author_in
from support.small_cohort import write_yaml
from support.studies import tiny_document, tiny_study

STUDY, TWIN, OTHER = tiny_study(), tiny_study(purpose="The same name."), tiny_study(name="other")
SIGNED = offered.Signed("fedward://author/ann", SignatureBeside(b"pem", b"s"))


def signed_by(name):
    return replace(SIGNED, author=f"fedward://author/{name}")


# --- which one is meant -----------------------------------------------------------------------------------------------
def test_what_was_offered_and_what_has_begun_are_found_by_name_and_digest(settings, folder):
    begin(folder, OTHER)
    for study in (STUDY, OTHER):
        for word in (study.name, study.digest, study.digest[:12]):
            assert texts.chosen(settings, word) == study
            assert texts.kept_text(settings, study.digest) == study
    assert texts.kept_text(settings, TWIN.digest) is None
    assert {one.digest for one in texts.offers(settings)} == {STUDY.digest}
    assert texts.begun(settings) == {OTHER.digest: "other"}


def test_without_a_state_only_what_was_offered_is_known(settings, folder):
    assert not folder.database.is_file()
    assert (texts.begun(settings), texts.kept_text(settings, OTHER.digest)) == ({}, None)
    assert texts.chosen(settings, "tiny") == STUDY
    assert not folder.database.is_file(), "who reads makes nothing"


def test_a_word_that_fits_several_or_none_means_none(settings, folder):
    offered.keep(folder, TWIN, NOW)
    with pytest.raises(StateError, match=r"^2 studies match 'tiny' \(") as refused:
        texts.chosen(settings, "tiny")
    first, second = sorted([STUDY.digest, TWIN.digest])
    assert f"(tiny {first}, tiny {second}); give more of the digest, or all of it" in str(refused.value)
    for word in ("tin", STUDY.digest[:11]):
        with pytest.raises(StateError, match=f"no study that this silo knows matches '{word}'; `fedward-silo studies`"):
            texts.chosen(settings, word)


def test_a_whole_digest_is_never_another_studys_name():
    names = {STUDY.digest: "tiny", "f" * 64: STUDY.digest}
    assert texts.one_of(names, STUDY.digest, "list") == STUDY.digest
    with pytest.raises(StateError, match="matches 'x'; `list` lists them"):
        texts.one_of(names, "x", "list")


def test_a_text_that_cannot_be_read_any_more_is_waited_for(settings, folder, monkeypatch):
    monkeypatch.setattr(texts, "kept_text", lambda *_: None)
    with pytest.raises(StateError, match=f"^the text of tiny {STUDY.digest[:12]} cannot be read; wait until"):
        texts.chosen(settings, "tiny")


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_a_file_is_read_and_kept_only_if_that_is_asked(settings, folder, suffix):
    file = write_yaml(settings.state.parent / f"study.{suffix}", tiny_document(name="mailed"))
    mailed = tiny_study(name="mailed")
    assert texts.chosen(settings, str(file)) == mailed
    assert offered.text(folder, mailed.digest) is None
    assert texts.chosen(settings, str(file), keep=True) == mailed
    assert offered.text(folder, mailed.digest) == mailed


def test_what_is_kept_of_a_file_drops_no_approved_text(settings, folder, monkeypatch):
    offered.keep(folder, OTHER, NOW)
    approvals.approve(folder, STUDY, approvals.made(STUDY, "lab", NOW))
    monkeypatch.setattr(offered, "MOST", 0)
    file = write_yaml(settings.state.parent / "study.yaml", tiny_document(name="mailed"))
    texts.chosen(settings, str(file), keep=True)
    assert {one.name for one in offered.offered(folder)} == {"tiny", "mailed"}


# --- who stands behind it ---------------------------------------------------------------------------------------------
def test_who_signed_is_what_the_agent_has_verified_or_what_lies_beside_a_file(settings, folder, authority, monkeypatch):
    nobody = "no author's signature came with it; this silo refuses it as unsigned"
    found = texts.author_of(settings, STUDY, "tiny")
    assert (found, found.said) == (Author("", nobody), f"nobody: {nobody}")
    file = write_yaml(settings.state.parent / "study.yaml", tiny_document())
    beside = file.with_name("study.yaml.eve.sig")
    beside.write_text(sign_study(author_in(authority), OTHER.digest, OTHER.purpose).text)
    found = texts.author_of(settings, STUDY, str(file))
    assert (found.uri, found.fault.partition(": ")[0]) == ("", "study.yaml.eve.sig")
    file.with_name("study.yaml.fay.sig").mkdir()
    assert texts.author_of(settings, STUDY, str(file)).fault.startswith("study.yaml.fay.sig: ")
    file.with_name("study.yaml.ann.sig").write_text(sign_study(author_in(authority), STUDY.digest, STUDY.purpose).text)
    assert texts.author_of(settings, STUDY, str(file)) == Author("fedward://author/ann")
    file.with_name("tiny.ann.sig").write_text(file.with_name("study.yaml.ann.sig").read_text())
    monkeypatch.chdir(file.parent)
    assert texts.author_of(settings, STUDY, "tiny").uri == "", "a name is no file"
    offered.keep(folder, STUDY, NOW, signed=signed_by("bob"))
    assert texts.author_of(settings, STUDY, str(file)) == Author("fedward://author/bob")
    assert Author("fedward://author/bob").said == "fedward://author/bob"


# --- what is new ------------------------------------------------------------------------------------------------------
def test_the_earlier_one_is_the_newest_revision_before_of_name_and_author(settings, folder):
    second, third, hers = tiny_study(revision=2), tiny_study(revision=3), tiny_study(revision=2, purpose="Hers.")
    assert texts.earlier_of(settings, STUDY, "") is None
    for study, who in ((STUDY, "ann"), (second, "ann"), (third, "ann"), (hers, "eve"), (OTHER, "ann")):
        offered.keep(folder, study, NOW, signed=signed_by(who))
    ann, eve = (f"fedward://author/{name}" for name in ("ann", "eve"))
    assert texts.earlier_of(settings, third, ann) == second
    assert texts.earlier_of(settings, second, ann) == STUDY
    assert texts.earlier_of(settings, STUDY, ann) == third, "of later ones the newest, if there is none before"
    assert texts.earlier_of(settings, hers, eve) is None
    assert texts.earlier_of(settings, OTHER, ann) is None
    assert texts.earlier_of(settings, third, "") in (second, hers), "nobody is known, so whoever's it is"
    unsigned = tiny_study(revision=4)
    begin(folder, unsigned)
    assert texts.earlier_of(settings, tiny_study(revision=5), ann) == unsigned, "it counts while nobody is known"


def test_what_asks_is_said_with_its_changes():
    later = tiny_study(revision=2, purpose="Better.", silos=["north", "south", "west", "east"])
    assert texts.asked(STUDY, Author("", "x"), None) == f"Author: nobody: x\nPurpose: {STUDY.purpose}\n"
    assert texts.asked(later, Author("fedward://author/ann"), STUDY).splitlines() == [
        "Author: fedward://author/ann",
        "Purpose: Better.",
        f"It differs from tiny {STUDY.digest[:12]}, which asked before:",
        f'  purpose: "{STUDY.purpose}" before, "Better." now',
        "  revision: null before, 2 now",
        '  silos: ["north", "south", "west"] before, ["north", "south", "west", "east"] now',
    ]
    nested = tiny_study(heads={"clip": 0.5})
    assert [line.partition(":")[0] for line in texts.changes(STUDY, nested)] == ["heads.clip"]
    assert list(texts.changes(STUDY, STUDY)) == []
    begins = list(texts.changes(tiny_study(personal=None), tiny_study(personal={"epochs": 1})))
    assert [line.partition(":")[0] for line in begins] == ["personal"]
    assert begins[0].startswith("personal: null before, {")


# --- whether it may use data ------------------------------------------------------------------------------------------
def said(settings, folder, rule=()):
    return texts.said_of(STUDY, approvals.approvals(folder), settings, rule)


def test_whether_it_may_use_data_is_said_with_the_command_that_changes_it(settings, folder):
    short = STUDY.digest[:12]
    give = f"fedward-silo study approve {short} --data NAME (one of: {settings.named})"
    assert said(settings, folder) == f"Not approved. To approve it: {give}"
    assert said(settings, folder, ("lab",)) == (
        f"Nobody approved it, but the policy's approved_data gives it lab. To give it other data: {give}"
    )
    assert said(settings, folder, ("lab", "tiny")) == f"Not approved. To approve it: {give}", "two rules give nothing"
    approvals.approve(folder, STUDY, approvals.made(STUDY, "lab", NOW))
    back = f"fedward-silo study withdraw-approval {short}"
    day = approvals.approvals(folder).bound[STUDY.digest].at
    assert said(settings, folder, ("tiny",)) == f"Approved on {day} for lab. To take that back: {back}"
    approvals.withdraw(folder, {STUDY.digest: "tiny"}, NOW)
    assert said(settings, folder, ("lab",)) == f"Its approval was taken back on {day}. To approve it: {give}"
    approvals.withdraw(folder, {STUDY.digest: "tiny"}, NOW, declined=True)
    assert said(settings, folder) == f"It was declined on {day}. To approve it: {give}"


def test_what_runs_under_version_06_is_bound_before_anything_new_is_written(settings, folder):
    begin(folder, tiny_study(name="lab"))
    folder.approvals.unlink()
    folder.offer(STUDY.digest).unlink()
    texts.upgrade(settings)
    (one,) = approvals.approvals(folder).bound.values()
    assert (one.study, one.data) == ("lab", "lab")
