from datetime import UTC, datetime, timedelta

import pytest

from silo_agent.storage.folders import StateFolder
from silo_agent.storage.waiting import Waiting, forget, note, waiting
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)


def test_the_latest_question_of_each_study_is_kept_until_it_has_data(tmp_path):
    folder, exam, other = StateFolder(tmp_path), tiny_study(name="exam"), tiny_study(name="other")
    forget(folder, exam)
    assert not folder.waiting.exists(), "nothing is written for a study that has data"
    note(folder, exam, NOW)
    note(folder, other, NOW)
    note(folder, exam, NOW + timedelta(minutes=1))
    assert waiting(folder) == [
        Waiting("other", other.digest, "2026-11-06T15:04:00+00:00"),
        Waiting("exam", exam.digest, "2026-11-06T15:05:00+00:00"),
    ]
    forget(folder, exam)
    assert [one.name for one in waiting(folder)] == ["other"]


def test_whoever_offers_many_studies_fills_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("silo_agent.storage.waiting._MOST", 2)
    folder = StateFolder(tmp_path)
    for name in ("a", "b", "c"):
        note(folder, tiny_study(name=name), NOW)
    assert [one.name for one in waiting(folder)] == ["b", "c"]


@pytest.mark.parametrize("content", ["", "{", "[1]", '[{"name": "exam"}]'])
def test_what_cannot_be_read_is_written_anew(tmp_path, content):
    folder = StateFolder(tmp_path)
    folder.waiting.write_text(content)
    assert waiting(folder) == []
    note(folder, tiny_study(), NOW)
    assert len(waiting(folder)) == 1
