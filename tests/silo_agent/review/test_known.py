"""The studies that have begun at a silo, and which of them a word means."""

from __future__ import annotations

import pytest

from silo_agent.review.known import OfferedStudy, find_study, find_trained, known_studies
from silo_agent.storage.errors import StateError
from silo_agent.storage.state import State
from support.asked import begin
from support.studies import tiny_study

STUDY, AGAIN = tiny_study(), tiny_study(purpose="The same name again.")
ON = tiny_study(name="on", continues=STUDY.digest)


@pytest.fixture
def state(folder):
    begin(folder, STUDY, committed=0)
    opened = State(folder.path)
    yield opened
    opened.close()


def test_all_are_known_in_the_order_in_which_they_began(state, folder):
    begin(folder, AGAIN, committed=3, why="finished")
    assert known_studies(state) == [
        OfferedStudy("tiny", STUDY.digest, 0, ""),
        OfferedStudy("tiny", AGAIN.digest, 3, "finished"),
    ]


def test_a_word_means_one_study_or_none(state, folder):
    for word in ("tiny", STUDY.digest, STUDY.digest[:12]):
        assert find_study(state, word) == (STUDY.digest, 0)
    listing = r"^0 studies match '\w+'; give a name, or 12 digits of a digest, that `fedward-silo studies` lists$"
    for word in ("tin", STUDY.digest[:11]):
        with pytest.raises(StateError, match=listing):
            find_study(state, word)
    begin(folder, AGAIN, committed=3)
    both = f"tiny {STUDY.digest[:12]}, tiny {AGAIN.digest[:12]}"
    with pytest.raises(StateError, match=rf"^2 studies match 'tiny' \({both}\); give more of the digest$"):
        find_study(state, "tiny")
    assert find_study(state, AGAIN.digest[:12]) == (AGAIN.digest, 3)


def test_a_study_that_only_counted_patients_has_no_model_unless_it_continues_one(state, folder):
    with pytest.raises(StateError, match=r"^tiny has no model yet: the last round that it finished is 0, which sums"):
        find_trained(state, "tiny")
    state.commit(STUDY.digest, 1)
    assert find_trained(state, "tiny") == (STUDY.digest, 1)
    begin(folder, ON, committed=0)
    assert find_trained(state, "on") == (ON.digest, 0)
