"""Which studies a hospital's people see in their list, in which order, and in which words."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from crypto.authorship import SignatureBeside
from silo_agent.review.asking import asking, labels
from silo_agent.storage import approvals, offered
from silo_agent.storage.model_warnings import Warned, keep
from support.asked import NOW, begin
from support.studies import tiny_study

STUDY = tiny_study()
ANN = offered.Signed("fedward://author/ann", SignatureBeside(b"pem", b"s"))


def one_of(settings, digest=STUDY.digest):
    return next(one for one in asking(settings) if one.study.digest == digest)


def test_those_that_have_begun_come_first_and_none_comes_twice(settings, folder):
    assert [(one.study.name, one.begun, one.study.committed, one.asked) for one in asking(settings)] == [
        ("tiny", False, -1, "2026-11-06T15:04:00+00:00")
    ]
    other = tiny_study(name="other")
    begin(folder, other, committed=2)
    begin(folder, STUDY)
    assert [(one.study.name, one.begun, one.study.committed, one.asked) for one in asking(settings)] == [
        ("other", True, 2, ""),
        ("tiny", True, -1, ""),
    ]


@pytest.mark.parametrize(
    ("said", "decided", "wanted"),
    [
        (None, None, ("not decided yet", "undecided")),
        ((), None, ("not decided yet", "allowed")),
        (((offered.WAITS, "x"),), None, ("waits for your decision", "waiting")),
        ((("delta", "x"), ("clip", "y"), ("delta", "z")), None, ("refused: delta, clip", "refused")),
        (None, "lab", ("may use lab", "allowed")),
        ((), "lab", ("may use lab", "allowed")),
        (((offered.WAITS, "x"),), "lab", ("may use lab", "allowed")),
        ((("delta", "x"),), "lab", ("refused: delta", "refused")),
        (((offered.WAITS, "x"), ("delta", "y")), "lab", ("refused: delta", "refused")),
        ((), "back", ("its approval was taken back", "declined")),
        ((), "no", ("declined", "declined")),
    ],
)
def test_a_study_that_asked_stands_as_policy_and_people_say(settings, folder, said, decided, wanted):
    if said is not None:
        offered.judged(folder, STUDY.digest, said)
    if decided in ("no", "back"):
        approvals.withdraw(folder, {STUDY.digest: "tiny"}, NOW, declined=decided == "no")
    elif decided:
        approvals.approve(folder, STUDY, approvals.made(STUDY, decided, NOW))
    one = one_of(settings)
    left = tuple(why for why in said or () if not (decided == "lab" and why[0] == offered.WAITS))
    assert ((one.stands, one.verdict), one.said) == (wanted, left)


@pytest.mark.parametrize("clock", [NOW, NOW + timedelta(days=9)])
def test_data_that_are_missing_after_an_approval_are_said_whatever_the_approvers_clock(settings, folder, clock):
    approvals.approve(folder, STUDY, approvals.made(STUDY, "lab", clock))
    offered.judged(folder, STUDY.digest, ((offered.WAITS, "x"),))
    one = one_of(settings)
    assert (one.stands, one.verdict) == ("refused: no_data", "no_data")


def test_a_study_that_has_begun_runs_is_refused_or_is_over(settings, folder):
    begin(folder, STUDY, committed=1)
    offered.begin(folder, STUDY.digest, ANN)
    one = one_of(settings)
    assert (one.stands, one.verdict, one.author, one.said, one.warnings) == ("runs", "allowed", ANN.author, (), ())
    offered.judged(folder, STUDY.digest, (("budget_spent", "4 of 4"),))
    warning = Warned("reversed", None, 40, 0.25, None)
    keep(folder.study(STUDY.digest).warnings, 2, (warning,))
    one = one_of(settings)
    assert (one.stands, one.verdict, one.said) == (
        "refused: budget_spent",
        "refused",
        (("budget_spent", "4 of 4"),),
    )
    assert one.warnings == (warning.text,)
    begin(folder, STUDY, why="finished: all rounds")
    one = one_of(settings)
    assert (one.stands, one.said, one.study.why) == ("over: finished: all rounds", (), "finished: all rounds")


def test_who_has_signed_what_asked_is_said(settings, folder):
    assert one_of(settings).author == ""
    offered.keep(folder, STUDY, NOW, signed=replace(ANN, author="fedward://author/eve"))
    assert one_of(settings).author == "fedward://author/eve"


def test_each_label_is_said_once_in_its_order():
    assert labels([("b", "1"), ("a", "2"), ("b", "3")]) == "b, a"
    assert labels([]) == ""
