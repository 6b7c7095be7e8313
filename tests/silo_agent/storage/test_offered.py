import json
from datetime import UTC, datetime, timedelta

import pytest

from silo_agent.storage import offered
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import Offered, keep, text
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
