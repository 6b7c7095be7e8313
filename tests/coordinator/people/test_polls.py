"""Polls at the coordinator: who is asked, who may ask, and that nothing stays."""

from __future__ import annotations

import pytest

from coordinator.core.quotas import QuotaError
from coordinator.people.polls import MOST, SECONDS, Polls
from protos.messages import StudyText
from support.studies import tiny_study

EXAM, OTHER = tiny_study(name="exam"), tiny_study(name="other", silos=["north", "east", "west"])
ANN, EVE = "fedward://author/ann", "fedward://author/eve"


@pytest.fixture
def clock():
    return [1e9]


@pytest.fixture
def polls(clock):
    return Polls(3, lambda: clock[0])


def ask(polls, study=EXAM, who=ANN):
    return polls.ask(study, StudyText(study.canonical()), who)


def test_every_invited_silo_is_asked_once_and_hears_nothing_of_the_others(polls):
    assert ask(polls) == ({"north": "", "south": "", "west": ""}, True)
    ask(polls, OTHER)
    assert polls.next("north").canonical == EXAM.canonical()
    polls.answer("north", EXAM.digest, "allowed")
    assert polls.next("north").canonical == OTHER.canonical()
    assert polls.next("east").canonical == OTHER.canonical()
    assert polls.next("stranger") is None
    polls.answer("north", EXAM.digest, "refused")
    polls.answer("stranger", EXAM.digest, "refused")
    polls.answer("east", EXAM.digest, "refused")
    polls.answer("north", "0" * 64, "refused")
    assert ask(polls) == ({"north": "allowed", "south": "", "west": ""}, False)


def test_a_poll_ends(polls, clock):
    ask(polls)
    clock[0] += SECONDS
    assert polls.next("north") is None
    assert ask(polls)[1], "it is asked anew"


def test_a_certificate_asks_so_often_a_day(polls, clock):
    for number in range(3):
        ask(polls, tiny_study(name=f"exam-{number}"))
        ask(polls, tiny_study(name=f"exam-{number}"))
    with pytest.raises(QuotaError, match=r"asked 3 polls within 24 hours; quotas\.polls_a_day is 3"):
        ask(polls)
    assert ask(polls, who=EVE)[1]
    clock[0] += 86_400
    assert ask(polls)[1]


def test_open_polls_are_bounded(clock):
    polls = Polls(10_000, lambda: clock[0])
    for number in range(MOST):
        ask(polls, tiny_study(name=f"exam-{number}"), f"fedward://author/a{number}")
    with pytest.raises(QuotaError, match=f"{MOST} polls are open"):
        ask(polls)
