"""The table of steps says of each task what was said of it where it was written out."""

from __future__ import annotations

from dataclasses import fields

import pytest

from protos.messages import Work
from protos.steps import MADE_BY_ACTOR, OF_TENSOR, STEPS, SUM, Need, Note, Reply, Task, Who
from support.steps import ADDED, BY_OWNER, COMPLAINED, CONFIRMED, FETCHED, SUMMED

NOTES = {
    Task.GREET: Note.GREETING,
    Task.DEAL: Note.KEYS,
    Task.SHARE: Note.MODEL,
    Task.EXCHANGE: Note.SHARES,
    Task.REVEAL: Note.REVEAL,
    Task.SOLVE: Note.HEADS,
}
NEED_MODEL = {Task.SHARE, Task.JUDGE, Task.EXCHANGE, Task.CONTRIBUTE}
NEED_KEYS = {*NEED_MODEL, Task.CATCH_UP, Task.CHECK}
NAME_TENSOR = {Task.VOID, Task.CONTRIBUTE, Task.SIGN, Task.REVEAL, Task.OPEN, Task.RECOUNT}
SOME = {
    Who.INVITED: [Task.DECIDE],
    Who.ACTOR: [Task.DEAL, Task.SHARE, Task.SOLVE],
    Who.BEHIND: [Task.CATCH_UP],
    Who.HOLDERS: [Task.JUDGE],
    Who.OTHERS: [Task.EXAMINE],
    Who.REFUSERS: [Task.RECOUNT],
}


def those(is_one):
    """The tasks of which something is so."""
    return {task for task, step in STEPS.items() if is_one(step)}


def test_every_task_of_an_attempt_is_a_step():
    assert set(STEPS) == set(Task) - {Task.WAIT, Task.FINISH}
    assert all(step.task is task for task, step in STEPS.items())


def test_a_step_ends_with_one_note_or_reply():
    assert {task: step.note for task, step in STEPS.items() if step.note} == NOTES
    assert those(lambda step: step.confirmed) == set(CONFIRMED)
    assert those(lambda step: step.sends is Reply.ANSWER) == {Task.DECIDE}
    assert those(lambda step: step.sends is Reply.TENSOR) == {Task.CONTRIBUTE}
    assert sorted(NOTES.values()) == sorted(Note), "each note is sent in one step"


def test_only_some_silos_do_some_steps():
    assert {who: [task for task, step in STEPS.items() if step.who is who] for who in SOME} == SOME
    assert {Note.KEYS, Note.MODEL, Note.HEADS} == MADE_BY_ACTOR


def test_what_is_fetched_was_sent_in_an_earlier_step():
    assert those(lambda step: step.fetches) == set(FETCHED)
    assert {task: step.by_owner for task, step in STEPS.items() if step.by_owner} == {
        task: (note,) for note, tasks in BY_OWNER.items() for task in tasks
    }
    sent = {SUM}
    for step in STEPS.values():
        assert sent.issuperset((*step.fetches, *step.by_owner))
        sent.add(step.sends)
    assert OF_TENSOR == (SUM, Note.REVEAL)


@pytest.mark.parametrize(
    ("field", "tasks"),
    [
        ("tensor", {*SUMMED, Task.VOID}),
        ("participants", {*SUMMED, Task.CHECK}),
        ("survivors", set(ADDED)),
        ("signatures", {Task.REVEAL}),
        ("void", {Task.CONTRIBUTE}),
        ("vouches", {Task.CATCH_UP}),
        ("uploads", {Task.OPEN, Task.RECOUNT}),
        ("spoilt", {Task.DECIDE}),
        ("complaint", {Task.EXAMINE}),
    ],
)
def test_a_field_of_the_work_belongs_to_these_steps(field, tasks):
    assert those(lambda step: field in step.carries) == tasks


def test_only_fields_of_the_work_are_carried():
    carried = {field for step in STEPS.values() for field in step.carries}
    assert carried < {field.name for field in fields(Work)}


def test_what_a_silo_must_hold_and_what_it_holds_then():
    assert those(lambda step: Need.KEYS in step.needs) == NEED_KEYS
    assert those(lambda step: Need.MODEL in step.needs) == NEED_MODEL
    assert those(lambda step: step.changes_model) == {Task.CATCH_UP, Task.OPEN, Task.ADOPT}
    assert those(lambda step: step.of_tensor) == NAME_TENSOR


def test_where_silos_complain_judge_and_end_the_attempt():
    judged = {Task.TAKE, Task.CATCH_UP, Task.JUDGE, Task.EXAMINE, Task.OPEN, Task.RECOUNT, Task.ADOPT}
    assert those(lambda step: step.complains) == set(COMPLAINED)
    assert those(lambda step: step.judged) == judged
    assert those(lambda step: step.ends) == {Task.EXAMINE, Task.RECOUNT}
