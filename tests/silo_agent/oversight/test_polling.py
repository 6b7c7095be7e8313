"""A poll: one word, from public things and people's decisions alone."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from crypto.authorship import sign_study
from crypto.pki.certificates import Trust
from protos.messages import AuthorSignature, StudyText
from silo_agent.oversight import polling
from silo_agent.oversight.polling import AT_ONCE, Answering, Polling
from silo_agent.storage.approvals import approve, made, upgrade, withdraw
from silo_agent.storage.folders import StateFolder
from support.certificates import load
from support.people import author_in
from support.small_cohort import policy_of_today
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
EXAM = tiny_study(name="exam")


@pytest.fixture
def folder(quick_path):
    made_ = StateFolder(quick_path)
    upgrade(made_, {}, [], NOW)
    return made_


@pytest.fixture
def day():
    return [date(2026, 11, 6)]


@pytest.fixture
def answering(folder, authority, day):
    return Answering(folder, Trust(authority.pem), "north", lambda: day[0])


@pytest.fixture(scope="module")
def eve(authority):
    return load(authority.credential("author", "eve"))


def policy(**changes):
    return policy_of_today("north-ward", **{"polls": 3, **changes})


def text_of(authority, study, author=None):
    signed = sign_study(author or author_in(authority), study.digest, study.purpose)
    return StudyText(study.canonical(), AuthorSignature(signed.certificate, signed.signature))


def test_each_of_the_words(answering, authority, folder):
    def word(study=EXAM, **changes):
        return answering.answer(study, text_of(authority, study), policy(**changes))

    assert word() == "person"
    approve(folder, EXAM, made(EXAM, "lung", NOW))
    assert word() == "allowed"
    withdraw(folder, {EXAM.digest: "exam"}, NOW)
    assert word() == "person"
    assert word(studies=[]) == "refused"
    rule = {"ward": [{"studies": "other", "author": "fedward://author/ann", "purpose": "*"}]}
    other = tiny_study(name="other")
    assert word(other, approved_data=rule) == "allowed"
    assert word(other, approved_data={**rule, "lab": rule["ward"]}) == "person", "a person says which"
    folder.approvals.write_text("{")
    assert word(other, approved_data=rule) == "person"
    assert word(polls=0) == "silent"


def test_who_has_not_signed_hears_nothing_and_costs_nobody_a_word(answering, authority, folder):
    bare = StudyText(EXAM.canonical())
    other = tiny_study(name="other")
    swapped = StudyText(EXAM.canonical(), text_of(authority, other).author)
    assert [answering.answer(EXAM, text, policy()) for text in (bare, swapped)] == ["silent", "silent"]
    assert not folder.polls.exists()


def test_an_author_has_so_many_words_a_day_and_the_same_study_costs_one(answering, authority, day, eve):
    studies = [tiny_study(name=f"exam-{number}") for number in range(5)]
    words = [answering.answer(one, text_of(authority, one), policy()) for one in (studies[0], *studies)]
    assert words == ["person"] * 4 + ["silent"] * 2
    assert answering.answer(studies[4], text_of(authority, studies[4], eve), policy()) == "person"
    assert answering.answer(studies[0], text_of(authority, studies[0]), policy()) == "person"
    day[0] = date(2026, 11, 7)
    assert answering.answer(studies[4], text_of(authority, studies[4]), policy()) == "person"


def test_words_are_counted_over_restarts_and_a_damaged_count_gives_none(answering, authority, folder, eve, monkeypatch):
    monkeypatch.setattr(polling, "MOST_AUTHORS", 1)
    assert answering.answer(EXAM, text_of(authority, EXAM), policy(polls=1)) == "person"
    again = Answering(folder, Trust(authority.pem), "north", lambda: date(2026, 11, 6))
    other = tiny_study(name="other")
    assert again.answer(other, text_of(authority, other), policy(polls=1)) == "silent"
    assert again.answer(other, text_of(authority, other, eve), policy()) == "silent", "so many authors a day"
    folder.polls.write_text("{")
    assert again.answer(EXAM, text_of(authority, EXAM), policy()) == "silent"


def test_a_search_for_the_budget_finds_the_policys_limit_and_nothing_of_what_is_spent(answering, authority, folder):
    """No ledger lies here at all: an answer that needed one would fail."""
    noises = ({"pooled_noise": 50.0, "domain_noise": 50.0}, {"pooled_noise": 0.5, "domain_noise": 0.5})
    rounds = {"pooled_rounds": 1, "domain_rounds": 1}
    studies = [tiny_study(name=f"exam-{number}", heads=rounds | noise) for number, noise in enumerate(noises)]
    words = [answering.answer(one, text_of(authority, one), policy(polls=100)) for one in studies]
    assert words == ["person", "refused"]
    assert not folder.ledger.exists()


def test_polls_are_answered_one_after_the_other_and_not_without_end(answering, authority):
    answers = []

    class Client:
        endless = False

        def __init__(self):
            self.asked = [text_of(authority, EXAM)]

        def next_poll(self):
            if self.endless:
                return text_of(authority, EXAM)
            return self.asked.pop() if self.asked else None

        def answer_poll(self, study, word):
            answers.append((study, word))

    client = Client()
    made_ = Polling(client, answering, policy, None)
    assert made_.look() == 1
    assert answers == [(EXAM.digest, "person")]
    client.endless = True
    assert made_.look() == AT_ONCE
