from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos.messages import Complaint, Member, Part, Place, Signature, Tensor, Upload, Work
from protos.steps import SUM, Note, Task
from silo_agent.core.turns import MOVES, OutOfTurnError, Stage, Turn, leave, planned, repeats, sit, take
from support.steps import ADDED, FETCHED, SUMMED

STUDY = "5" * 64
PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
EVERYBODY = tuple(Member(name, b"pem", bytes(32), bytes(1184), b"signature") for name in ("north", "south", "west"))
FEWER = EVERYBODY[:2]
ASKED = tuple(task for task in Task if task not in (Task.WAIT, Task.DECIDE, Task.FINISH))


def place(number=0, attempt=1, study=STUDY):
    return Place(study, number, attempt)


def work(task, at, tensor=None, roster=EVERYBODY, *, participants=None, survivors=None):
    names = tuple(member.silo for member in roster)
    participants = participants or names
    survivors = survivors or participants
    part = Part(SUM, "", 1, "0" * 64) if task is Task.OPEN else Part(Note.KEYS, "north", 1, "0" * 64)
    return Work(
        task,
        at,
        tensor if task in (*SUMMED, Task.VOID) else None,
        roster,
        parts=(part,) if task in FETCHED else (),
        participants=participants if task in (*SUMMED, Task.CHECK) else (),
        survivors=survivors if task in ADDED else (),
        signatures=tuple(Signature(name, b"s") for name in survivors) if task is Task.REVEAL else (),
        complaint=Complaint("north", "south", bytes(64), b"s") if task is Task.EXAMINE else None,
        uploads=tuple(Upload(Part("ckks", name, 1, "0" * 64), b"s") for name in survivors)
        if task is Task.RECOUNT
        else (),
    )


def seated(number=0, attempt=1):
    return sit(Turn(PLAN, committed=number - 1, finished=number - 1), place(number, attempt))


def after(turn, *tasks):
    for task in tasks:
        turn = take(turn, work(task, turn.place, turn.tensor))
    return turn


KEYS = (Task.GREET, Task.TAKE)
SUMMING = (Task.CONTRIBUTE, Task.SIGN, Task.REVEAL, Task.OPEN)
STAGES = {
    Stage.SEATED: (),
    Stage.GREETED: (Task.GREET,),
    Stage.KEYED: KEYS,
    Stage.SHARED: (*KEYS, Task.EXCHANGE),
    Stage.SENT: (*KEYS, Task.EXCHANGE, Task.CONTRIBUTE),
    Stage.SIGNED: (*KEYS, Task.EXCHANGE, Task.CONTRIBUTE, Task.SIGN),
    Stage.REVEALED: (*KEYS, Task.EXCHANGE, Task.CONTRIBUTE, Task.SIGN, Task.REVEAL),
    Stage.OPENED: (*KEYS, Task.EXCHANGE, *SUMMING),
}
ALLOWED = {
    Stage.SEATED: {Task.GREET: Stage.GREETED},
    Stage.GREETED: {Task.DEAL: Stage.GREETED, Task.TAKE: Stage.KEYED},
    Stage.KEYED: {
        Task.SHARE: Stage.KEYED,
        Task.CATCH_UP: Stage.KEYED,
        Task.JUDGE: Stage.KEYED,
        Task.EXCHANGE: Stage.SHARED,
    },
    Stage.SHARED: {Task.CHECK: Stage.SHARED, Task.EXAMINE: Stage.SHARED, Task.CONTRIBUTE: Stage.SENT},
    Stage.SENT: {Task.SIGN: Stage.SIGNED},
    Stage.SIGNED: {Task.REVEAL: Stage.REVEALED},
    Stage.REVEALED: {Task.OPEN: Stage.OPENED},
    Stage.OPENED: {Task.SOLVE: Stage.OPENED, Task.ADOPT: Stage.SHARED},
    Stage.REST: {Task.EXAMINE: Stage.REST},
}
"""What a silo in round 1 (heads, then encoder) may be asked for, and where it stands afterwards."""


@pytest.mark.parametrize("task", ASKED)
@pytest.mark.parametrize("stage", [*STAGES, Stage.REST])
def test_every_move_and_every_wrong_move(stage, task):
    turn = leave(after(seated(1), *KEYS)) if stage is Stage.REST else after(seated(1), *STAGES[stage])
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
    turn = after(sit(Turn(PLAN), place(0)), Task.GREET, Task.DEAL, Task.TAKE, Task.EXCHANGE, *SUMMING)
    assert (turn.stage, turn.finished, turn.committed) == (Stage.REST, 0, -1)
    turn = sit(turn, place(1))
    assert turn.committed == 0
    turn = after(turn, Task.EXCHANGE, *SUMMING, Task.SOLVE, Task.ADOPT)
    assert turn.tensor is Tensor.ENCODER
    turn = after(turn, *SUMMING)
    turn = after(sit(turn, place(2)), Task.EXCHANGE, *SUMMING, Task.ADOPT)
    assert turn.tensor is Tensor.METRICS
    turn = after(turn, *SUMMING)
    assert (turn.stage, turn.finished, turn.committed) == (Stage.REST, 2, 1)
    with pytest.raises(OutOfTurnError, match="the study ends with round 2"):
        sit(turn, place(3))


def test_keys_of_an_unchanged_roster_are_kept_over_rounds_and_attempts():
    turn = after(sit(Turn(PLAN), place(0)), *KEYS, Task.EXCHANGE, Task.CONTRIBUTE)
    assert after(sit(turn, place(0, 2)), Task.EXCHANGE, Task.CONTRIBUTE).stage is Stage.SENT


def test_without_the_rosters_keys_nothing_is_shared_or_contributed():
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        after(seated(), Task.EXCHANGE)
    turn = sit(after(seated(), *KEYS), place(0, 2))
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        take(turn, work(Task.EXCHANGE, turn.place, None, FEWER))


def test_in_a_new_attempt_the_secrets_are_shared_anew():
    turn = sit(after(seated(), *KEYS, Task.EXCHANGE), place(0, 2))
    with pytest.raises(OutOfTurnError, match="contribute does not fit"):
        after(turn, Task.CONTRIBUTE)


# --- who is in the sum ------------------------------------------------------------------------------------------------
NAMES = ("north", "south", "west")


def summing(*tasks, tensor=Tensor.COUNTS, **names):
    turn = after(seated(), *KEYS, Task.EXCHANGE)
    for task in tasks:
        turn = take(turn, work(task, turn.place, tensor, **names))
    return turn


def test_participants_are_of_the_roster():
    turn = summing()
    asked = work(Task.CONTRIBUTE, turn.place, Tensor.COUNTS)
    for names in (("east", "north"), ("east", "north", "south", "west")):
        with pytest.raises(OutOfTurnError, match="participants are not sorted names of the roster"):
            take(turn, replace(asked, participants=names))
    assert take(turn, replace(asked, participants=NAMES[:2])).participants == NAMES[:2]


def test_survivors_are_participants():
    turn = summing(Task.CONTRIBUTE, participants=NAMES[:2])
    asked = work(Task.SIGN, turn.place, Tensor.COUNTS)
    with pytest.raises(OutOfTurnError, match="survivors are not sorted names of the participants"):
        take(turn, asked)
    assert take(turn, replace(asked, participants=NAMES[:2], survivors=NAMES[:2])).survivors == NAMES[:2]


@pytest.mark.parametrize("task", [Task.REVEAL, Task.OPEN])
def test_what_was_signed_is_what_is_opened(task):
    turn = summing(*SUMMING[: SUMMING.index(task)], survivors=NAMES[:2])
    for names in ({"survivors": NAMES}, {"survivors": NAMES[1:]}, {"participants": NAMES[:2]}):
        with pytest.raises(OutOfTurnError, match="other participants or survivors than this silo has signed"):
            take(turn, work(task, turn.place, Tensor.COUNTS, **names))
    assert take(turn, work(task, turn.place, Tensor.COUNTS, survivors=NAMES[:2])).last.survivors == NAMES[:2]


@pytest.mark.parametrize("task", [Task.SOLVE, Task.ADOPT])
def test_heads_are_solved_from_the_sum_that_was_opened(task):
    turn = after(sit(after(seated(), *KEYS, Task.EXCHANGE, *SUMMING), place(1)), Task.EXCHANGE)
    for step in SUMMING:
        turn = take(turn, work(step, turn.place, Tensor.HEADS, survivors=NAMES[:2]))
    for names in ({"survivors": NAMES}, {"survivors": NAMES[:2], "participants": NAMES[:2]}):
        with pytest.raises(OutOfTurnError, match="other participants or survivors than this silo has signed"):
            take(turn, work(task, turn.place, Tensor.HEADS, **names))
    with pytest.raises(OutOfTurnError, match="encoder was asked for, but heads is due"):
        take(turn, work(task, turn.place, Tensor.ENCODER, survivors=NAMES[:2]))
    assert take(turn, work(task, turn.place, Tensor.HEADS, survivors=NAMES[:2])).last.task is task


def test_who_has_left_an_attempt_adds_the_uploads_of_the_list_again_that_it_has_signed():
    turn = leave(summing(*SUMMING[:3], survivors=NAMES[:2]))
    for names in ({"survivors": NAMES}, {"participants": NAMES[:2]}):
        with pytest.raises(OutOfTurnError, match="other participants or survivors than this silo has signed"):
            take(turn, work(Task.RECOUNT, turn.place, Tensor.COUNTS, **names))
    asked = work(Task.RECOUNT, turn.place, Tensor.COUNTS, survivors=NAMES[:2])
    done = take(turn, asked)
    assert (done.stage, done.keyed) == (Stage.REST, ())
    assert repeats(done, asked)


def test_a_seat_names_the_last_spoilt_attempt_until_the_next_seat():
    turn = sit(Turn(PLAN), place(0, 3), spoilt=2)
    assert (turn.spoilt, sit(turn, place(0, 4), spoilt=2).spoilt, sit(turn, place(0, 4)).spoilt) == (2, 2, 0)


def test_another_list_is_no_repetition():
    turn = summing(Task.CONTRIBUTE, Task.SIGN, survivors=NAMES[:2])
    assert repeats(turn, work(Task.SIGN, turn.place, Tensor.COUNTS, survivors=NAMES[:2]))
    assert not repeats(turn, work(Task.SIGN, turn.place, Tensor.COUNTS))


def test_the_next_sum_has_participants_and_survivors_of_its_own():
    turn = after(seated(1), *KEYS, Task.EXCHANGE)
    for task in (*SUMMING, Task.ADOPT):
        turn = take(turn, work(task, turn.place, Tensor.HEADS, survivors=NAMES[:2]))
    assert (turn.participants, turn.survivors) == ((), ())
    turn = take(turn, work(Task.CONTRIBUTE, turn.place, Tensor.ENCODER, participants=NAMES[:2]))
    assert turn.participants == NAMES[:2]


def test_after_a_dispute_the_keys_are_not_used_again():
    turn = sit(leave(after(seated(), *KEYS)), place(0, 2))
    with pytest.raises(OutOfTurnError, match="before the roster's keys were dealt"):
        after(turn, Task.EXCHANGE)


@pytest.mark.parametrize(("task", "before"), [(Task.TAKE, (Task.GREET,)), (Task.EXCHANGE, KEYS)])
def test_the_roster_stays_the_same_within_an_attempt(task, before):
    turn = after(seated(), *before)
    with pytest.raises(OutOfTurnError, match="roster changed"):
        take(turn, work(task, turn.place, turn.tensor, FEWER))


@pytest.mark.parametrize("other", [place(0, 2), place(1, 1), place(0, 1, "6" * 64)])
def test_work_of_another_attempt_round_or_study_is_out_of_turn(other):
    turn = after(seated(), *KEYS)
    with pytest.raises(OutOfTurnError, match="another attempt"):
        take(turn, work(Task.EXCHANGE, other))


@pytest.mark.parametrize("task", SUMMING)
def test_another_tensor_than_the_one_that_is_due_is_out_of_turn(task):
    turn = after(seated(1), *KEYS, Task.EXCHANGE, *SUMMING[: SUMMING.index(task)])
    with pytest.raises(OutOfTurnError, match="heads is due"):
        take(turn, work(task, turn.place, Tensor.ENCODER))


def test_an_abandoned_candidate_is_forgotten_when_its_round_is_offered_again():
    turn = after(seated(0), *KEYS, Task.EXCHANGE, *SUMMING)
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
        assert not (repeats(turn, work(task, turn.place, Tensor.ENCODER)) and task in SUMMED)
        assert not repeats(leave(turn), work(task, turn.place, Tensor.HEADS))


def test_the_last_word_of_a_round_repeats_until_the_next_is_offered():
    turn = after(seated(0), *KEYS, Task.EXCHANGE, *SUMMING)
    asked = work(Task.OPEN, turn.place, Tensor.COUNTS)
    assert repeats(turn, asked)
    assert not repeats(sit(turn, place(1)), asked)


def test_a_silo_that_was_away_catches_up_before_it_contributes():
    turn = sit(Turn(PLAN, committed=0, finished=0), place(2))
    assert turn.behind
    turn = after(turn, *KEYS)
    for task in (Task.EXCHANGE, Task.SHARE):
        with pytest.raises(OutOfTurnError, match="does not hold the model"):
            after(turn, task)
    turn = after(turn, Task.CATCH_UP)
    assert (turn.behind, turn.committed, turn.finished) == (False, 1, 1)
    assert after(turn, Task.EXCHANGE, Task.CONTRIBUTE).stage is Stage.SENT
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
    with pytest.raises(OutOfTurnError, match="attempt 2 was offered, but this silo has been in round 0, attempt 3"):
        sit(turn, place(0, 2))


@pytest.mark.parametrize("stage", [*STAGES, Stage.REST])
def test_a_place_in_which_anything_was_done_or_that_was_left_is_not_taken_again(stage):
    turn = leave(after(seated(1), *KEYS)) if stage is Stage.REST else after(seated(1), *STAGES[stage])
    if stage is Stage.SEATED:
        assert sit(turn, turn.place) == turn
    else:
        with pytest.raises(OutOfTurnError, match="begin a later attempt"):
            sit(turn, turn.place)
    assert sit(turn, place(1, 2)).stage is Stage.SEATED


def test_no_offer_leads_back_behind_an_offer_that_was_further_ahead():
    """Else a round that the silo has not finished could be offered again by way of a later one."""
    turn = sit(leave(seated(1)), place(2))
    with pytest.raises(OutOfTurnError, match="has been in round 2, attempt 1"):
        sit(turn, place(1, 5))


def test_a_list_is_voided_before_anything_else_and_after_the_first_attempt():
    turn = seated(1, attempt=2)
    assert take(turn, work(Task.VOID, turn.place, Tensor.ENCODER)).stage is Stage.SEATED
    for turn, tensor in ((seated(1), Tensor.HEADS), (seated(1, attempt=2), Tensor.COUNTS)):
        with pytest.raises(OutOfTurnError, match="no earlier attempt in this round that could be voided"):
            take(turn, work(Task.VOID, turn.place, tensor))


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
        self.signed = {}
        self.sits()

    def sits(self):
        self.given, self.opened, self.shared = set(), [], ()

    def does(self, done, tensor, *, behind):
        assert not (behind and done.task in (Task.SHARE, Task.EXCHANGE)), "gave what it does not have"
        if done.task is Task.TAKE:
            self.keys = done.roster
        elif done.task in (Task.SHARE, Task.CATCH_UP):
            assert done.roster == self.keys, "shared a model under other keys than the roster's"
        elif done.task is Task.CONTRIBUTE:
            assert done.roster == self.keys, "contributed under other keys than the roster's"
            assert done.tensor is tensor
            assert self.shared == done.roster, "contributed without sharing what recovers it"
            self.given.add((done.place, done.tensor, done.roster))
        elif done.task is Task.EXCHANGE:
            self.shared = done.roster
        elif done.task is Task.CHECK:
            assert self.shared == done.roster == self.keys, "checked under other keys than it shared under"
        elif done.task is Task.SIGN:
            assert (done.place, tensor, done.roster) in self.given, "signed without contributing"
            assert (done.place, tensor) not in self.signed, "signed two lists"
            self.signed[done.place, tensor] = done.survivors
        elif done.task in (Task.REVEAL, Task.OPEN, Task.SOLVE, Task.ADOPT):
            assert (done.place, tensor, done.roster) in self.given, "opened without contributing"
            if done.task is not Task.ADOPT and done.task is not Task.SOLVE:
                assert self.signed[done.place, tensor] == done.survivors, "opened another list than was signed"
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
    for task in (*KEYS, Task.EXCHANGE):
        turn = take(turn, work(task, turn.place, None, roster))
    while turn.stage is not Stage.REST:
        tensor = turn.tensor
        tasks = (*SUMMING, Task.ADOPT) if tensor is Tensor.HEADS else SUMMING
        for task in tasks:
            turn = take(turn, work(task, turn.place, tensor, roster))
    assert turn.finished == number


# --- a turn that another version stored -------------------------------------------------------------------------------
NOW = (*PLAN[:2], (Tensor.HEADS,), (Tensor.METRICS,))
"""As `PLAN`, but the metrics have a round of their own."""


@pytest.mark.parametrize("turn", [Turn(PLAN), seated(0), seated(1), after(seated(1), *KEYS)])
def test_a_stored_turn_goes_on_under_another_plan_of_later_rounds(turn):
    assert planned(turn, PLAN) == turn
    assert planned(turn, NOW) == replace(turn, plan=NOW)


def test_a_turn_within_a_round_that_is_planned_otherwise_does_not_go_on():
    with pytest.raises(OutOfTurnError, match=r"summed heads, metrics in it; this version sums heads, so the study"):
        planned(seated(2), NOW)
