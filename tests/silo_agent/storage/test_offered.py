import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from crypto.authorship import SignatureBeside
from silo_agent.storage import offered
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import Offered, Signed, keep, text
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)


def names(folder):
    return [one.name for one in offered.offered(folder)]


def test_a_text_is_kept_as_it_was_offered_last(tmp_path):
    folder, exam, other = StateFolder(tmp_path), tiny_study(name="exam"), tiny_study(name="other")
    keep(folder, exam, NOW)
    keep(folder, other, NOW)
    keep(folder, exam, NOW + timedelta(minutes=1))
    assert offered.offered(folder) == [
        Offered("other", other.digest, "2026-11-06T15:04:00+00:00"),
        Offered("exam", exam.digest, "2026-11-06T15:05:00+00:00"),
    ]
    assert text(folder, exam.digest) == exam
    assert text(folder, tiny_study(name="new").digest) is None


def test_whoever_offers_many_studies_fills_no_disk_and_drops_no_approved_text(tmp_path, monkeypatch):
    monkeypatch.setattr(offered, "MOST", 2)
    folder = StateFolder(tmp_path)
    approved = tiny_study(name="z")
    keep(folder, approved, NOW)
    for number, name in enumerate("abcd", 1):
        keep(folder, tiny_study(name=name), NOW + timedelta(minutes=number), approved={approved.digest})
    assert names(folder) == ["z", "c", "d"]
    keep(folder, tiny_study(name="e"), NOW - timedelta(days=1), approved={approved.digest})
    assert names(folder) == ["e", "z", "d"], "a clock that was set back drops an old text, never the one just offered"


def test_their_bytes_are_bounded_too(tmp_path, monkeypatch):
    folder = StateFolder(tmp_path)
    size = len(tiny_study(name="a").canonical())
    monkeypatch.setattr(offered, "MOST_BYTES", 3 * size)
    for number, name in enumerate("abcd"):
        keep(folder, tiny_study(name=name), NOW + timedelta(minutes=number))
    assert names(folder) == ["c", "d"]


def test_a_text_goes_once_the_study_has_begun(tmp_path):
    folder, exam, other = StateFolder(tmp_path), tiny_study(name="exam"), tiny_study(name="other")
    keep(folder, exam, NOW)
    keep(folder, other, NOW, approved={exam.digest}, begun={exam.digest})
    assert names(folder) == ["other"]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"name": "exam"}', '{"name": "a", "asked": 1, "study": "{}"}'])
def test_what_cannot_be_read_is_no_text_and_goes(tmp_path, content):
    folder, exam = StateFolder(tmp_path), tiny_study(name="exam")
    keep(folder, exam, NOW)
    folder.offer(exam.digest).write_text(content)
    assert text(folder, exam.digest) is None
    keep(folder, tiny_study(name="other"), NOW)
    assert names(folder) == ["other"]
    assert not folder.offer(exam.digest).exists()


def test_a_file_under_another_studys_digest_is_not_that_study(tmp_path):
    folder, exam, other = StateFolder(tmp_path), tiny_study(name="exam"), tiny_study(name="other")
    keep(folder, exam, NOW)
    folder.offer(exam.digest).rename(folder.offer(other.digest))
    assert text(folder, other.digest) is None
    assert json.loads(folder.offer(other.digest).read_text())["name"] == "exam"


SIGNED = Signed("fedward://author/ann", SignatureBeside(b"pem", b"signature"))


def test_who_signed_and_what_the_silo_has_against_it_stand_beside_the_text(tmp_path):
    folder, exam = StateFolder(tmp_path), tiny_study(name="exam")
    assert keep(folder, exam, NOW, signed=SIGNED)
    (found,) = offered.offered(folder)
    assert (found.author, found.said) == ("fedward://author/ann", None)
    said = (("delta", "too large"), ("clip", "x" * offered.MOST_SAID * 2))
    offered.judged(folder, exam.digest, said)
    assert not keep(folder, exam, NOW, signed=SIGNED), "it is not new"
    (found,) = offered.offered(folder)
    assert found.said == (("delta", "too large"), ("clip", "x" * offered.MOST_SAID))
    assert text(folder, exam.digest) == exam
    assert offered.author_of(folder, exam.digest) == SIGNED
    offered.judged(folder, "0" * 64, said)
    assert len(folder.offers()) == 1, "of a study that is not kept nothing is noted"


def test_author_and_verdict_of_a_study_that_began_stand_in_its_folder(tmp_path):
    folder, exam = StateFolder(tmp_path), tiny_study(name="exam")
    offered.begin(folder, exam.digest, SIGNED)
    offered.judged(folder, exam.digest, (("budget_spent", "4 of 4"),))
    assert offered.author_uri(folder, exam.digest) == "fedward://author/ann"
    assert offered.verdict_of(folder, exam.digest) == (("budget_spent", "4 of 4"),)
    offered.judged(folder, exam.digest, ())
    assert offered.verdict_of(folder, exam.digest) == ()
    assert offered.verdict_of(folder, "0" * 64) is None
    assert folder.study(exam.digest).stays(folder.study(exam.digest).author)
    assert not folder.study(exam.digest).stays(folder.study(exam.digest).verdict)
    folder.study(exam.digest).author.write_text('{"author": 1}')
    assert offered.author_of(folder, exam.digest) is None


def test_who_waits_for_a_person_is_whom_nothing_else_is_against(tmp_path):
    folder = StateFolder(tmp_path)
    reasons = {"new": None, "waits": "no_data", "refused": "delta", "decided": "no_data", "fits": ""}
    for name, reason in reasons.items():
        study = tiny_study(name=name)
        keep(folder, study, NOW)
        if reason is not None:
            offered.judged(folder, study.digest, ((reason, "so"),) if reason else ())
    found = offered.waiting(offered.offered(folder), {tiny_study(name="decided").digest})
    assert [one.name for one in found] == ["waits"]


def test_revisions_are_studies_of_one_name_and_author(tmp_path):
    folder = StateFolder(tmp_path)
    mine, hers, nobodys, other = (
        tiny_study(name=n, purpose=p) for n, p in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"))
    )
    now = tiny_study(name="a", revision=2)
    for study, author in ((mine, "ann"), (hers, "eve"), (other, "ann"), (now, "ann")):
        offered.begin(folder, study.digest, replace(SIGNED, author=f"fedward://author/{author}"))
    names = {one.digest: one.name for one in (mine, hers, nobodys, other)}
    assert offered.revisions_of(folder, now, names) == {now.digest, mine.digest, nobodys.digest}
    unknown = tiny_study(name="a", revision=3)
    assert offered.revisions_of(folder, unknown, names) == {unknown.digest, mine.digest, hers.digest, nobodys.digest}
