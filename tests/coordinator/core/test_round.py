"""Every move of one attempt, as a table that can be read as its documentation.

The round of the table has the silos north, south and west, needs two of them, and sums heads, then the encoder. Its
place is round 1, attempt 1, so the actor, who deals and solves, is the third by name: west.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import pytest

from coordinator.core.round import (
    MOVES,
    OVER,
    Add,
    Added,
    Answered,
    Clear,
    Confirmed,
    Event,
    OutOfTurnError,
    Passed,
    Persist,
    Phase,
    Restarted,
    Round,
    Stopped,
    Total,
    Uploaded,
    step,
)
from protos.messages import Note, Place, Task, Tensor
from support.rounds import (
    LIMITS,
    SHA,
    SILOS,
    TOTAL,
    accept,
    confirm,
    dispute,
    member,
    offer,
    reach,
    refuse,
    upload,
    wanted,
)

P = Place("5" * 64, 1, 1)
NORTH, SOUTH, WEST = SILOS
ADDS = Add(P, Tensor.HEADS, SILOS)
CLEARS = Clear(P)


def after(state: Round, *events: Event, now: float = 0.0) -> Round:
    for event in events:
        state, _ = step(state, event, now)
    return state


def at(phase: Phase, *events: Event) -> Round:
    return after(reach(phase), *events)


@dataclass(frozen=True)
class Move:
    """In this state, this event leads to that phase with those effects after `Persist`."""

    says: str
    state: Round
    event: Event
    to: Phase
    effects: tuple[Add | Clear, ...] = ()
    now: float = 1.0
    why: str = ""
    culprits: tuple[str, ...] = ()


TWO_IN = (accept(P, NORTH), accept(P, SOUTH))
GATHER_2 = reach(Phase.GATHER, replace(reach(Phase.GATHER), cursor=1))
OPEN_2 = after(GATHER_2, *wanted(GATHER_2), Added(TOTAL))

TABLE = (
    # --- offer
    Move("a first yes waits for the others", offer(), accept(P, NORTH), Phase.OFFER),
    Move("a refusal waits for the others", offer(), refuse(P, NORTH), Phase.OFFER),
    Move("the last yes fixes the roster", at(Phase.OFFER, *TWO_IN), accept(P, WEST), Phase.DEAL),
    Move("the last answer may be a no", at(Phase.OFFER, *TWO_IN), refuse(P, WEST), Phase.DEAL),
    Move(
        "the keys of the round before still fit",
        after(offer(keyed=tuple(member(s) for s in SILOS)), *TWO_IN),
        accept(P, WEST),
        Phase.GATHER,
    ),
    Move(
        "one new key means new keys for all",
        after(offer(keyed=tuple(member(s) for s in SILOS)), *TWO_IN),
        accept(P, WEST, key=b"n"),
        Phase.DEAL,
    ),
    Move(
        "too few take part",
        at(Phase.OFFER, accept(P, NORTH), refuse(P, SOUTH)),
        refuse(P, WEST),
        Phase.ABORTED,
        (CLEARS,),
        why="1 silos take part, the study needs 2",
    ),
    Move("the offer's time is up with enough silos", at(Phase.OFFER, *TWO_IN), Passed(), Phase.DEAL, now=LIMITS.offer),
    Move(
        "the offer's time is up with too few",
        offer(),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.offer,
        why="0 silos take part, the study needs 2",
    ),
    Move("who restarts is asked anew", at(Phase.OFFER, *TWO_IN), Restarted(NORTH, "new"), Phase.OFFER),
    Move("the operator stops an offer", offer(), Stopped("enough"), Phase.ABORTED, (CLEARS,), why="enough"),
    # --- deal
    Move("the dealer's keys arrive", reach(Phase.DEAL), upload(P, WEST, Note.KEYS), Phase.TAKE),
    Move(
        "the dealer cannot deal",
        reach(Phase.DEAL),
        dispute(P, WEST, Task.DEAL),
        Phase.ABORTED,
        (CLEARS,),
        why="west disputes deal: data: a row does not fit",
        culprits=(WEST,),
    ),
    Move(
        "no keys in time",
        reach(Phase.DEAL),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.keys,
        why="no deal from west within 20 s",
        culprits=(WEST,),
    ),
    Move(
        "a restart costs the keys",
        reach(Phase.DEAL),
        Restarted(SOUTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="south was restarted and has lost its keys",
        culprits=(SOUTH,),
    ),
    Move("the operator stops the dealing", reach(Phase.DEAL), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- take
    Move("one has taken the keys", reach(Phase.TAKE), confirm(P, WEST, Task.TAKE), Phase.TAKE),
    Move(
        "all have taken the keys",
        at(Phase.TAKE, confirm(P, WEST, Task.TAKE), confirm(P, NORTH, Task.TAKE)),
        confirm(P, SOUTH, Task.TAKE),
        Phase.GATHER,
    ),
    Move(
        "a silo cannot open its package",
        reach(Phase.TAKE),
        dispute(P, NORTH, Task.TAKE),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes take: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "two have not taken in time",
        at(Phase.TAKE, confirm(P, WEST, Task.TAKE)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.keys,
        why="no take from north, south within 20 s",
        culprits=(NORTH, SOUTH),
    ),
    Move(
        "a restart while taking",
        reach(Phase.TAKE),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move("the operator stops the taking", reach(Phase.TAKE), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- gather
    Move("one contribution is in", reach(Phase.GATHER), upload(P, NORTH, Tensor.HEADS), Phase.GATHER),
    Move(
        "the last contribution starts the adding",
        at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS), upload(P, WEST, Tensor.HEADS)),
        upload(P, SOUTH, Tensor.HEADS),
        Phase.ADD,
        (ADDS,),
    ),
    Move(
        "a silo cannot contribute",
        reach(Phase.GATHER),
        dispute(P, SOUTH, Task.CONTRIBUTE),
        Phase.ABORTED,
        (CLEARS,),
        why="south disputes contribute: data: a row does not fit",
        culprits=(SOUTH,),
    ),
    Move(
        "a contribution is late",
        at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.train,
        why="no gather from south, west within 100 s",
        culprits=(SOUTH, WEST),
    ),
    Move(
        "a restart after the upload, too, ends the attempt",
        at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS)),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move("the operator stops the gathering", reach(Phase.GATHER), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- add
    Move("the sum is there", reach(Phase.ADD), Added(TOTAL), Phase.OPEN),
    Move(
        "a coordinator that cannot add says so in time",
        reach(Phase.ADD),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.train,
        why="no add from the coordinator within 100 s",
    ),
    Move(
        "a restart while adding",
        reach(Phase.ADD),
        Restarted(WEST, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="west was restarted and has lost its keys",
        culprits=(WEST,),
    ),
    Move("adding fails", reach(Phase.ADD), Stopped("no room"), Phase.ABORTED, (CLEARS,), why="no room"),
    # --- open
    Move("one has opened", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN, Tensor.HEADS), Phase.OPEN),
    Move(
        "all have opened heads, which are to be solved",
        at(
            Phase.OPEN,
            confirm(P, NORTH, Task.OPEN, Tensor.HEADS),
            confirm(P, SOUTH, Task.OPEN, Tensor.HEADS),
        ),
        confirm(P, WEST, Task.OPEN, Tensor.HEADS),
        Phase.SOLVE,
    ),
    Move(
        "all have opened the last tensor",
        after(
            OPEN_2,
            confirm(P, NORTH, Task.OPEN, Tensor.ENCODER),
            confirm(P, SOUTH, Task.OPEN, Tensor.ENCODER),
        ),
        confirm(P, WEST, Task.OPEN, Tensor.ENCODER),
        Phase.COMMITTED,
        (CLEARS,),
    ),
    Move(
        "two open the same sum differently",
        at(Phase.OPEN, confirm(P, NORTH, Task.OPEN, Tensor.HEADS)),
        confirm(P, SOUTH, Task.OPEN, Tensor.HEADS, model="other"),
        Phase.ABORTED,
        (CLEARS,),
        why="south holds another model after open than the others",
    ),
    Move(
        "the sum does not open",
        reach(Phase.OPEN),
        dispute(P, NORTH, Task.OPEN),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes open: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "an opening is late",
        reach(Phase.OPEN),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.open,
        why="no open from north, south, west within 30 s",
        culprits=SILOS,
    ),
    Move(
        "a restart while opening",
        reach(Phase.OPEN),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move("the operator stops the opening", reach(Phase.OPEN), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- solve
    Move("the solver's heads arrive", reach(Phase.SOLVE), upload(P, WEST, Note.HEADS), Phase.ADOPT),
    Move(
        "the solver cannot solve",
        reach(Phase.SOLVE),
        dispute(P, WEST, Task.SOLVE),
        Phase.ABORTED,
        (CLEARS,),
        why="west disputes solve: data: a row does not fit",
        culprits=(WEST,),
    ),
    Move(
        "no heads in time",
        reach(Phase.SOLVE),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.solve,
        why="no solve from west within 40 s",
        culprits=(WEST,),
    ),
    Move(
        "a restart while solving",
        reach(Phase.SOLVE),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move("the operator stops the solving", reach(Phase.SOLVE), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- adopt
    Move("one has adopted", reach(Phase.ADOPT), confirm(P, NORTH, Task.ADOPT, model="solved"), Phase.ADOPT),
    Move(
        "all have adopted; the next tensor follows",
        at(
            Phase.ADOPT,
            confirm(P, NORTH, Task.ADOPT, model="solved"),
            confirm(P, SOUTH, Task.ADOPT, model="solved"),
        ),
        confirm(P, WEST, Task.ADOPT, model="solved"),
        Phase.GATHER,
    ),
    Move(
        "two adopt different heads",
        at(Phase.ADOPT, confirm(P, NORTH, Task.ADOPT, model="solved")),
        confirm(P, WEST, Task.ADOPT, model="other"),
        Phase.ABORTED,
        (CLEARS,),
        why="west holds another model after adopt than the others",
    ),
    Move(
        "the heads are not what the sum implies",
        reach(Phase.ADOPT),
        dispute(P, SOUTH, Task.ADOPT),
        Phase.ABORTED,
        (CLEARS,),
        why="south disputes adopt: data: a row does not fit",
        culprits=(SOUTH,),
    ),
    Move(
        "an adoption is late",
        at(Phase.ADOPT, confirm(P, NORTH, Task.ADOPT)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.solve,
        why="no adopt from south, west within 40 s",
        culprits=(SOUTH, WEST),
    ),
    Move(
        "a restart while adopting",
        reach(Phase.ADOPT),
        Restarted(WEST, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="west was restarted and has lost its keys",
        culprits=(WEST,),
    ),
    Move("the operator stops the adopting", reach(Phase.ADOPT), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
)

NOTHING_NEW = (
    ("a second yes", at(Phase.OFFER, accept(P, NORTH)), accept(P, NORTH, key=b"z")),
    ("a no after the yes", at(Phase.OFFER, accept(P, NORTH)), refuse(P, NORTH)),
    ("a yes after the no", at(Phase.OFFER, refuse(P, NORTH)), accept(P, NORTH)),
    ("a poll of the process that answered", at(Phase.OFFER, accept(P, NORTH)), Restarted(NORTH, "north-1")),
    ("a new process that had not answered", offer(), Restarted(NORTH, "new")),
    ("a restart of somebody outside", reach(Phase.GATHER), Restarted("elsewhere", "new")),
    ("the same process while gathering", reach(Phase.GATHER), Restarted(NORTH, "north-1")),
    ("keys taken twice", at(Phase.TAKE, confirm(P, WEST, Task.TAKE)), confirm(P, WEST, Task.TAKE)),
    (
        "an upload that is repeated",
        at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS)),
        upload(P, NORTH, Tensor.HEADS),
    ),
    (
        "an opening confirmed twice",
        at(Phase.OPEN, confirm(P, NORTH, Task.OPEN, Tensor.HEADS)),
        confirm(P, NORTH, Task.OPEN, Tensor.HEADS),
    ),
    *((f"time in {phase} before its end", reach(phase), Passed()) for phase in Phase if phase not in OVER),
)

OUT_OF_TURN = (
    ("an answer of somebody not invited", offer(), accept(P, "elsewhere")),
    ("an answer after the offer", reach(Phase.GATHER), accept(P, NORTH)),
    ("keys from somebody who does not deal", reach(Phase.DEAL), upload(P, NORTH, Note.KEYS)),
    ("heads instead of keys", reach(Phase.DEAL), upload(P, WEST, Note.HEADS)),
    ("a tensor instead of keys", reach(Phase.DEAL), upload(P, WEST, Tensor.HEADS)),
    ("keys instead of heads", reach(Phase.SOLVE), upload(P, WEST, Note.KEYS)),
    ("a tensor that is not gathered now", reach(Phase.GATHER), upload(P, NORTH, Tensor.ENCODER)),
    ("a note while gathering", reach(Phase.GATHER), upload(P, WEST, Note.KEYS)),
    ("a contribution from outside the roster", reach(Phase.GATHER), upload(P, "elsewhere", Tensor.HEADS)),
    ("a contribution while adding", reach(Phase.ADD), upload(P, NORTH, Tensor.HEADS)),
    ("a contribution after adding", reach(Phase.OPEN), upload(P, NORTH, Tensor.HEADS)),
    ("a second sum", reach(Phase.OPEN), Added(Total(1, SHA))),
    ("a sum while gathering", reach(Phase.GATHER), Added(TOTAL)),
    ("a confirmation from outside", reach(Phase.OPEN), confirm(P, "elsewhere", Task.OPEN, Tensor.HEADS)),
    ("a dispute from outside", reach(Phase.GATHER), dispute(P, "elsewhere", Task.CONTRIBUTE)),
    ("the opening of another tensor", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN, Tensor.ENCODER)),
    ("an opening without its tensor", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN)),
    ("taking while opening", reach(Phase.OPEN), confirm(P, NORTH, Task.TAKE)),
    ("opening while taking", reach(Phase.TAKE), confirm(P, NORTH, Task.OPEN, Tensor.HEADS)),
    ("a confirmation while dealing", reach(Phase.DEAL), confirm(P, NORTH, Task.TAKE)),
    ("a confirmation while gathering", reach(Phase.GATHER), confirm(P, NORTH, Task.TAKE)),
)


@pytest.mark.parametrize("move", TABLE, ids=lambda move: f"{move.state.phase}: {move.says}")
def test_move(move):
    state, effects = step(move.state, move.event, move.now)
    assert state.phase is move.to
    assert effects == [Persist(), *move.effects]
    assert (state.why, state.culprits) == (move.why, move.culprits)
    if state.phase is not move.state.phase:
        assert (state.since, state.done) == (move.now, frozenset())
    else:
        assert state.since == move.state.since, "acting within a phase must not prolong it"


def test_the_table_has_every_move_there_is():
    assert {(move.state.phase, type(move.event)) for move in TABLE} == set(MOVES)


@pytest.mark.parametrize(("says", "state", "event"), NOTHING_NEW, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_so_already_changes_nothing(says, state, event):
    assert step(state, event, 1.0) == (state, [])


@pytest.mark.parametrize(("says", "state", "event"), OUT_OF_TURN, ids=lambda v: v if isinstance(v, str) else "")
def test_out_of_turn(says, state, event):
    before = replace(state)
    with pytest.raises(OutOfTurnError):
        step(state, event, 1.0)
    assert state == before


EXAMPLES: dict[type, Event] = {
    Answered: accept(P, NORTH),
    Uploaded: upload(P, NORTH, Tensor.HEADS),
    Added: Added(TOTAL),
    Confirmed: confirm(P, NORTH, Task.TAKE),
    Restarted: Restarted(NORTH, "new"),
    Passed: Passed(),
    Stopped: Stopped("x"),
}


@pytest.mark.parametrize("phase", Phase)
def test_what_is_not_in_the_table_is_out_of_turn(phase):
    assert set(EXAMPLES) == set(get_args(Event))
    state = reach(phase)
    for kind, event in EXAMPLES.items():
        if (phase, kind) not in MOVES:
            with pytest.raises(OutOfTurnError, match=f"{kind.__name__} does not fit the phase {phase}"):
                step(state, event, 1.0)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
def test_every_phase_ends_by_itself(phase):
    state = reach(phase, now=5.0)
    just_before = state.deadline - 1e-3
    assert step(state, Passed(), just_before) == (state, [])
    assert step(state, Passed(), state.deadline)[0].phase is not phase


def test_a_round_over_is_over():
    for phase in OVER:
        state = reach(phase)
        assert (state.waiting_for, state.tensor, state.deadline) == ((), None, float("inf"))


def test_the_majority_s_model_is_the_round_s_and_the_rest_is_behind():
    state = after(offer(), accept(P, NORTH, model="new"), accept(P, SOUTH, model="old"), accept(P, WEST, model="new"))
    assert (state.phase, state.model, state.names) == (Phase.DEAL, "new", (NORTH, WEST))
    assert [(r.silo, r.reason) for r in state.refusals] == [(SOUTH, "behind")]


def test_the_roster_is_sorted_whatever_the_order_of_answers():
    state = after(offer(), accept(P, WEST), accept(P, NORTH), accept(P, SOUTH))
    assert state.names == tuple(sorted(SILOS))
    assert state.members == tuple(member(silo) for silo in sorted(SILOS))


def test_the_actor_rotates_with_round_and_attempt():
    state = reach(Phase.DEAL)
    places = [Place("5" * 64, number, attempt) for number, attempt in ((0, 1), (1, 1), (1, 2), (2, 1))]
    assert [replace(state, place=place).actor for place in places] == [SOUTH, WEST, NORTH, NORTH]


def test_the_second_tensor_forgets_the_first_s_sum():
    state = reach(Phase.ADOPT)
    assert (state.total, state.note) == (TOTAL, Total(100, SHA))
    state = after(state, *wanted(state))
    assert (state.phase, state.tensor, state.total, state.note) == (Phase.GATHER, Tensor.ENCODER, None, None)
