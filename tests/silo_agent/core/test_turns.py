from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.messages import FETCHED, Member, Place, Task, Tensor, Work
from silo_agent.core.turns import MOVES, OutOfTurnError, Stage, Turn, leave, repeats, sit, take

STUDY = "5" * 64
PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
EVERYBODY = tuple(Member(name, b"pem", bytes(32), b"signature") for name in ("north", "south", "west"))
FEWER = EVERYBODY[:2]
ASKED = (Task.DEAL, Task.TAKE, Task.SHARE, Task.CATCH_UP, Task.CONTRIBUTE, Task.OPEN, Task.SOLVE, Task.ADOPT)


def place(number=0, attempt=1, study=STUDY):
    return Place(study, number, attempt)


def work(task, at, tensor=None, roster=EVERYBODY):
    fetched = task in FETCHED
    return Work(task, at, tensor, roster, size=int(fetched), sha256="0" * 64 if fetched else "")


def seated(number=0, attempt=1):
    return sit(Turn(PLAN, committed=number - 1, finished=number - 1), place(number, attempt))


def after(turn, *tasks):
    for task in tasks:
        turn = take(turn, work(task, turn.place, turn.tensor))
    return turn


STAGES = {
    Stage.SEATED: (),
    Stage.KEYED: (Task.TAKE,),
    Stage.SENT: (Task.TAKE, Task.CONTRIBUTE),
    Stage.OPENED: (Task.TAKE, Task.CONTRIBUTE, Task.OPEN),
}
ALLOWED = {
    Stage.SEATED: {Task.DEAL: Stage.SEATED, Task.TAKE: Stage.KEYED},
    Stage.KEYED: {Task.SHARE: Stage.KEYED, Task.CATCH_UP: Stage.KEYED, Task.CONTRIBUTE: Stage.SENT},
    Stage.SENT: {Task.OPEN: Stage.OPENED},
    Stage.OPENED: {Task.SOLVE: Stage.OPENED, Task.ADOPT: Stage.KEYED},
    Stage.REST: {},
}
"""What a silo in round 1 (heads, then encoder) may be asked for, and where it stands afterwards."""


@pytest.mark.parametrize("task", ASKED)
@pytest.mark.parametrize("stage", [*STAGES, Stage.REST])
def test_every_move_and_every_wrong_move(stage, task):
    turn = leave(after(seated(1), Task.TAKE)) if stage is Stage.REST else after(seated(1), *STAGES[stage])
    assert turn.stage is stage
    asked = work(task, turn.place, turn.tensor)
    if task in ALLOWED[stage]:
        assert take(turn, asked).stage is ALLOWED[stage][task]
    else:
        before = replace(turn)
        with pytest.raises(OutOfTurnError):
            take(turn, asked)
        assert turn == before


def test_a_study_from_its_first_round_to_its_last():
    turn = after(sit(Turn(PLAN), place(0)), Task.DEAL, Task.TAKE, Task.CONTRIBUTE, Task.OPEN)
    assert (turn.stage, turn.finished, turn.committed) == (Stage.REST, 0, -1)
    turn = sit(turn, place(1))
    assert turn.committed == 0
    turn = after(turn, Task.CONTRIBUTE, Task.OPEN, Task.SOLVE, Task.ADOPT)
    assert turn.tensor is Tensor.ENCODER
    turn = after(turn, Task.CONTRIBUTE, Task.OPEN)
    turn = after(sit(turn, place(2)), Task.CONTRIBUTE, Task.OPEN, Task.ADOPT)
    assert turn.tensor is Tensor.METRICS
    turn = after(turn, Task.CONTRIBUTE, Task.OPEN)
    assert (turn.stage, turn.finished, turn.committed) == (Stage.REST, 2, 1)
    with pytest.raises(OutOfTurnError, match="the study ends with round 2"):
        sit(turn, place(3))


def test_keys_of_an_unchanged_roster_are_kept_over_rounds_and_attempts():
    turn = after(sit(Turn(PLAN), place(0)), Task.TAKE, Task.CONTRIBUTE)
    assert after(sit(turn, place(0, 2)), Task.CONTRIBUTE).stage is Stage.SENT


def test_without_the_rosters_keys_nothing_is_contributed():
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        after(seated(), Task.CONTRIBUTE)
    turn = sit(after(seated(), Task.TAKE), place(0, 2))
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        take(turn, work(Task.CONTRIBUTE, turn.place, Tensor.COUNTS, FEWER))


def test_after_a_dispute_the_keys_are_not_used_again():
    turn = sit(leave(after(seated(), Task.TAKE)), place(0, 2))
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        after(turn, Task.CONTRIBUTE)


@pytest.mark.parametrize("task", [Task.TAKE, Task.CONTRIBUTE])
def test_the_roster_stays_the_same_within_an_attempt(task):
    turn = after(seated(), Task.DEAL if task is Task.TAKE else Task.TAKE)
    with pytest.raises(OutOfTurnError, match="roster changed"):
        take(turn, work(task, turn.place, turn.tensor, FEWER))


@pytest.mark.parametrize("other", [place(0, 2), place(1, 1), place(0, 1, "6" * 64)])
def test_work_of_another_attempt_round_or_study_is_out_of_turn(other):
    turn = after(seated(), Task.TAKE)
    with pytest.raises(OutOfTurnError, match="another attempt"):
        take(turn, work(Task.CONTRIBUTE, other, Tensor.COUNTS))


@pytest.mark.parametrize("task", [Task.CONTRIBUTE, Task.OPEN])
def test_another_tensor_than_the_one_that_is_due_is_out_of_turn(task):
    turn = after(seated(1), *([Task.TAKE] if task is Task.CONTRIBUTE else [Task.TAKE, Task.CONTRIBUTE]))
    with pytest.raises(OutOfTurnError, match="heads is due"):
        take(turn, work(task, turn.place, Tensor.ENCODER))


def test_an_abandoned_candidate_is_forgotten_when_its_round_is_offered_again():
    turn = after(seated(0), Task.TAKE, Task.CONTRIBUTE, Task.OPEN)
    assert turn.finished == 0
    turn = sit(turn, place(0, 2))
    assert (turn.finished, turn.committed) == (-1, -1)


def test_a_round_that_is_committed_is_out_of_turn():
    with pytest.raises(OutOfTurnError, match="round 0 was offered"):
        sit(Turn(PLAN, committed=0, finished=0), place(0))


# --- repeating and catching up ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", STAGES)
def test_only_the_last_task_repeats_and_nothing_else(stage):
    turn = after(seated(1), *STAGES[stage])
    for task in ASKED:
        last = bool(STAGES[stage]) and task is STAGES[stage][-1]
        assert repeats(turn, work(task, turn.place, Tensor.HEADS)) is last
        assert not repeats(turn, work(task, place(1, 2), Tensor.HEADS))
        assert not repeats(turn, work(task, turn.place, Tensor.HEADS, FEWER))
        assert not repeats(turn, work(task, turn.place, Tensor.ENCODER))
        assert not repeats(leave(turn), work(task, turn.place, Tensor.HEADS))


def test_the_last_word_of_a_round_repeats_until_the_next_is_offered():
    turn = after(seated(0), Task.TAKE, Task.CONTRIBUTE, Task.OPEN)
    asked = work(Task.OPEN, turn.place, Tensor.COUNTS)
    assert repeats(turn, asked)
    assert not repeats(sit(turn, place(1)), asked)


def test_a_silo_that_was_away_catches_up_before_it_contributes():
    turn = sit(Turn(PLAN, committed=0, finished=0), place(2))
    assert turn.behind
    turn = after(turn, Task.TAKE)
    for task in (Task.CONTRIBUTE, Task.SHARE):
        with pytest.raises(OutOfTurnError, match="does not hold the model"):
            after(turn, task)
    turn = after(turn, Task.CATCH_UP)
    assert (turn.behind, turn.committed, turn.finished) == (False, 1, 1)
    assert after(turn, Task.CONTRIBUTE).stage is Stage.SENT
    assert sit(turn, place(2, 2)).behind is False


def test_a_silo_that_never_took_part_may_begin_behind():
    assert sit(Turn(PLAN), place(1)).behind


def test_without_the_rosters_keys_no_model_is_shared_or_taken():
    for task in (Task.SHARE, Task.CATCH_UP):
        with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
            after(seated(1), task)


def test_a_candidate_that_others_went_beyond_is_left_behind():
    turn = sit(Turn(PLAN, committed=-1, finished=0), place(2))
    assert (turn.behind, turn.committed) == (True, -1)


def test_an_older_attempt_is_not_accepted_and_the_same_one_is():
    turn = seated(0, attempt=3)
    assert sit(turn, place(0, 3)) == turn
    with pytest.raises(OutOfTurnError, match="attempt 2 was offered after attempt 3"):
        sit(turn, place(0, 2))


def test_nothing_is_summed_where_no_attempt_is_under_way():
    with pytest.raises(OutOfTurnError, match="no attempt"):
        _ = Turn(PLAN).tensor


# --- laws over any behaviour of the coordinator -----------------------------------------------------------------------
places = st.builds(place, st.integers(0, 3), st.integers(1, 3))
anything = st.builds(work, st.sampled_from(ASKED), places, st.sampled_from(Tensor), st.sampled_from([EVERYBODY, FEWER]))
often = ["fit"] * 8 + ["other roster", "other place"] * 2
kinds = st.sampled_from([*often, "again", "next", "next", "leave", "sit", "work"])
events = st.lists(st.tuples(kinds, st.integers(0, 5), places, anything), min_size=10, max_size=50)


class Witness:
    """Notes what the silo did, and objects to what it must never do."""

    def __init__(self):
        self.keys = ()
        self.given = set()
        self.opened = []

    def sits(self):
        self.given, self.opened = set(), []

    def does(self, done, tensor, *, behind):
        assert not (behind and done.task in (Task.SHARE, Task.CONTRIBUTE)), "gave what it does not have"
        if done.task is Task.TAKE:
            self.keys = done.roster
        elif done.task in (Task.SHARE, Task.CATCH_UP):
            assert done.roster == self.keys, "shared a model under other keys than the roster's"
        elif done.task is Task.CONTRIBUTE:
            assert done.roster == self.keys, "contributed under other keys than the roster's"
            assert done.tensor is tensor
            self.given.add((done.place, done.tensor, done.roster))
        elif done.task in (Task.OPEN, Task.SOLVE, Task.ADOPT):
            assert (done.place, tensor, done.roster) in self.given, "opened without contributing"
            if done.task is Task.OPEN and tensor not in self.opened:
                self.opened.append(tensor)


def apply(turn, kind, number, other_place, other_work):
    """Do one thing that a coordinator may try; most of them fit, so that rounds get far."""
    if kind == "leave":
        return None, leave(turn)
    if kind == "sit":
        return None, sit(turn, other_place)
    if kind in ("next", "again"):
        following = turn.finished + 1 if kind == "next" else turn.place.round
        return None, sit(turn, place(following, turn.place.attempt + 1))
    asked = other_work
    if kind != "work":
        fitting = [task for stage, task in MOVES if stage is turn.stage] or ASKED
        at = place(turn.place.round, turn.place.attempt + 1) if kind == "other place" else turn.place
        roster = FEWER if kind == "other roster" else turn.roster or turn.keyed or EVERYBODY
        asked = work(fitting[number % len(fitting)], at, turn.tensor, roster)
    return asked, take(turn, asked)


@settings(max_examples=300, deadline=None)
@given(events)
def test_no_sequence_of_work_breaks_the_order(sequence):
    turn, witness = sit(Turn(PLAN), place(0)), Witness()
    committed = -1
    for kind, *details in sequence:
        before = replace(turn)
        try:
            asked, following = apply(turn, kind, *details)
        except OutOfTurnError:
            assert turn == before
            continue
        if kind in ("sit", "next", "again"):
            if following.behind:
                assert following.place.round > following.finished + 1
                assert (following.committed, following.finished) == (turn.committed, turn.finished)
            else:
                assert following.place.round == following.committed + 1 == following.finished + 1, "a round was skipped"
                assert following.committed in (turn.committed, turn.committed + 1)
            witness.sits()
        elif kind == "leave":
            witness.keys = ()
        else:
            assert asked.place == turn.place, "worked for another attempt"
            witness.does(asked, turn.tensor, behind=turn.behind)
            if asked.task is Task.CATCH_UP:
                assert following.finished == following.committed == turn.place.round - 1
            elif following.finished != turn.finished:
                assert following.finished == turn.finished + 1 == turn.place.round
                assert tuple(witness.opened) == PLAN[turn.place.round], "a round ended before all its sums were opened"
        turn = following
        assert turn.committed >= committed
        assert turn.committed <= turn.finished <= turn.committed + 1
        committed = turn.committed
        if turn.finished + 1 >= len(PLAN):
            return


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2), st.sampled_from([EVERYBODY, FEWER]))
def test_the_straight_way_reaches_the_end_of_a_round(number, roster):
    turn = seated(number)
    turn = take(turn, work(Task.TAKE, turn.place, None, roster))
    while turn.stage is not Stage.REST:
        tensor = turn.tensor
        tasks = (Task.CONTRIBUTE, Task.OPEN, Task.ADOPT) if tensor is Tensor.HEADS else (Task.CONTRIBUTE, Task.OPEN)
        for task in tasks:
            turn = take(turn, work(task, turn.place, tensor, roster))
    assert turn.finished == number
