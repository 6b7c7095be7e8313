import pytest
from pydantic import ValidationError

from policies.documents.study import parse_study
from silo_agent.reply_timing import padded
from support.studies import tiny_study


@pytest.mark.parametrize(("spent", "whole"), [(0.0, 10.0), (3.2, 10.0), (10.0, 10.0), (10.1, 20.0), (95.0, 100.0)])
def test_a_padded_study_lets_whole_paces_pass(spent, whole):
    assert padded(tiny_study(pace="padded", pace_seconds=10), spent) == whole
    assert padded(tiny_study(), spent) == spent


def test_the_pace_is_part_of_the_study_and_studies_without_one_keep_their_names():
    plain, slow = tiny_study(), tiny_study(pace="padded", pace_seconds=30)
    assert b"pace" not in plain.canonical()
    assert parse_study(slow.canonical(), slow.digest) == slow


@pytest.mark.parametrize("changes", [{"pace_seconds": 600}, {"pace_seconds": 0}, {"deadlines": {"offer": 60}}])
def test_a_pace_that_no_deadline_keeps_is_refused(changes):
    with pytest.raises(ValidationError):
        tiny_study(pace="padded", **changes)
