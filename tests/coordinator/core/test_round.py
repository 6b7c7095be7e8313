"""Every move of one attempt, as a table that can be read as its documentation.

The round of the table has the silos north, south and west, needs two of them, and sums heads, then the encoder. Its
place is round 1, attempt 1, so the actor, who deals and solves, is the third by name: west.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

import pytest

from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
    Confirmed,
    Event,
    Passed,
    Persist,
    Restarted,
    Returned,
    Stopped,
    Total,
    Uploaded,
)
from coordinator.core.round import CONFIRMED, MOVES, OVER, RELAYED, OutOfTurnError, Phase, Round, step
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
    with_one_behind,
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
KEYED = tuple(member(silo) for silo in SILOS)
WAITING = after(at(Phase.OFFER, accept(P, SOUTH)), Passed(), now=LIMITS.offer)
BEHIND_TAKES = reach(Phase.TAKE, with_one_behind())


def without_west(phase: Phase) -> Round:
    """A phase of an attempt that goes on without west, which is away."""
    state = offer(expected="e", absent=(WEST,))
    behind = "old" if phase in (Phase.SHARE, Phase.CATCH_UP) else "e"
    return reach(phase, after(state, accept(P, NORTH, model=behind), accept(P, SOUTH, model="e")))


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
        "the offer's time is up with too few: it waits for the others",
        at(Phase.OFFER, accept(P, SOUTH)),
        Passed(),
        Phase.WAIT,
        now=LIMITS.offer,
        why="1 silos take part, the study needs 2; waits for north, west",
    ),
    Move(
        "the offer's time is up, and who is silent could not make up for the refusals",
        at(Phase.OFFER, refuse(P, NORTH), refuse(P, SOUTH)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.offer,
        why="0 silos take part, the study needs 2",
    ),
    Move(
        "who is away is not waited for where the others suffice",
        after(offer(absent=(WEST,)), accept(P, NORTH)),
        accept(P, SOUTH),
        Phase.DEAL,
    ),
    Move(
        "who is away is waited for where the others do not suffice",
        after(offer(absent=(WEST,)), refuse(P, NORTH)),
        accept(P, SOUTH),
        Phase.OFFER,
    ),
    Move(
        "who is away cannot make up for the refusals",
        after(offer(absent=(WEST,)), refuse(P, NORTH)),
        refuse(P, SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why="0 silos take part, the study needs 2",
    ),
    Move("who was away and answers is present", offer(absent=(WEST,)), accept(P, WEST), Phase.OFFER),
    Move("who was away and polls is waited for", offer(absent=(WEST,)), Returned(WEST), Phase.OFFER),
    Move(
        "one is behind: the keys come first",
        after(with_one_behind(), accept(P, NORTH, model="e")),
        accept(P, SOUTH, model="e"),
        Phase.DEAL,
    ),
    Move(
        "one is behind in a roster that has its keys",
        after(with_one_behind(keyed=KEYED), accept(P, NORTH, model="e")),
        accept(P, SOUTH, model="e"),
        Phase.SHARE,
    ),
    Move(
        "nobody holds the model",
        after(offer(expected="e"), *TWO_IN),
        accept(P, WEST),
        Phase.ABORTED,
        (CLEARS,),
        why="none of north, south, west holds the model of the last committed round",
    ),
    Move(
        "those present do not hold the model: somebody away may",
        after(offer(expected="e", absent=(WEST,)), accept(P, NORTH)),
        accept(P, SOUTH),
        Phase.OFFER,
    ),
    Move(
        "nobody who came in time holds the model: it waits for who may",
        after(offer(expected="e"), *TWO_IN),
        Passed(),
        Phase.WAIT,
        now=LIMITS.offer,
        why="none of north, south holds the model of the last committed round; waits for west",
    ),
    Move("who restarts is asked anew", at(Phase.OFFER, *TWO_IN), Restarted(NORTH, "new"), Phase.OFFER),
    Move("the operator stops an offer", offer(), Stopped("enough"), Phase.ABORTED, (CLEARS,), why="enough"),
    # --- wait
    Move("somebody who was away polls: the offer is open again", WAITING, Returned(WEST), Phase.OFFER),
    Move("a late yes makes it enough", WAITING, accept(P, WEST), Phase.DEAL),
    Move("a late no opens the offer again", WAITING, refuse(P, WEST), Phase.OFFER),
    Move(
        "a late refusal that leaves too few",
        after(WAITING, refuse(P, WEST), Passed(), now=2 * LIMITS.offer),
        refuse(P, NORTH),
        Phase.ABORTED,
        (CLEARS,),
        why="1 silos take part, the study needs 2",
    ),
    Move("who restarts meanwhile is asked anew", WAITING, Restarted(SOUTH, "new"), Phase.OFFER),
    Move("the operator stops the waiting", WAITING, Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
    Move(
        "all have taken the keys, one is behind",
        after(BEHIND_TAKES, confirm(P, WEST, Task.TAKE), confirm(P, NORTH, Task.TAKE)),
        confirm(P, SOUTH, Task.TAKE),
        Phase.SHARE,
    ),
    # --- share
    Move("the model arrives", reach(Phase.SHARE), upload(P, NORTH, Note.MODEL), Phase.CATCH_UP),
    Move(
        "the sharer cannot share",
        reach(Phase.SHARE),
        dispute(P, NORTH, Task.SHARE),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes share: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "no model in time",
        reach(Phase.SHARE),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.open,
        why="no share from north within 30 s",
        culprits=(NORTH,),
    ),
    Move(
        "a restart while sharing",
        reach(Phase.SHARE),
        Restarted(WEST, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="west was restarted and has lost its keys",
        culprits=(WEST,),
    ),
    Move("the operator stops the sharing", reach(Phase.SHARE), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- catch up
    Move(
        "all who were behind have caught up",
        reach(Phase.CATCH_UP),
        confirm(P, WEST, Task.CATCH_UP, model="e"),
        Phase.GATHER,
    ),
    Move(
        "one of two has caught up",
        reach(Phase.CATCH_UP, after(offer(expected="e"), *TWO_IN)),
        confirm(P, NORTH, Task.CATCH_UP, model="e"),
        Phase.CATCH_UP,
    ),
    Move(
        "what was shared is another model",
        reach(Phase.CATCH_UP),
        confirm(P, WEST, Task.CATCH_UP, model="other"),
        Phase.ABORTED,
        (CLEARS,),
        why="west holds another model after catch_up than the last committed round's",
        culprits=(WEST,),
    ),
    Move(
        "a silo cannot open the model",
        reach(Phase.CATCH_UP),
        dispute(P, WEST, Task.CATCH_UP),
        Phase.ABORTED,
        (CLEARS,),
        why="west disputes catch_up: data: a row does not fit",
        culprits=(WEST,),
    ),
    Move(
        "catching up takes too long",
        reach(Phase.CATCH_UP),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.open,
        why="no catch_up from west within 30 s",
        culprits=(WEST,),
    ),
    Move(
        "a restart while catching up",
        reach(Phase.CATCH_UP),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move("the operator stops the catching up", reach(Phase.CATCH_UP), Stopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
    # --- any
    *(
        Move("somebody who is not in the roster is present again", without_west(phase), Returned(WEST), phase)
        for phase in Phase
        if phase not in (*OVER, Phase.OFFER, Phase.WAIT)
    ),
)

NOTHING_NEW = (
    ("a second yes", at(Phase.OFFER, accept(P, NORTH)), accept(P, NORTH, key=b"z")),
    ("a no after the yes", at(Phase.OFFER, accept(P, NORTH)), refuse(P, NORTH)),
    ("a yes after the no", at(Phase.OFFER, refuse(P, NORTH)), accept(P, NORTH)),
    ("a poll of somebody who is not away", at(Phase.OFFER, accept(P, NORTH)), Returned(SOUTH)),
    ("a second yes while waiting", WAITING, accept(P, SOUTH, key=b"z")),
    ("a poll of who has accepted while waiting", WAITING, Returned(SOUTH)),
    ("a poll of the process that answered while waiting", WAITING, Restarted(SOUTH, "south-1")),
    (
        "a model held twice",
        after(reach(Phase.CATCH_UP, after(offer(expected="e"), *TWO_IN)), confirm(P, SOUTH, Task.CATCH_UP, model="e")),
        confirm(P, SOUTH, Task.CATCH_UP, model="e"),
    ),
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
    *((f"time in {phase} before its end", reach(phase), Passed()) for phase in Phase if (phase, Passed) in MOVES),
)

OUT_OF_TURN = (
    ("an answer of somebody not invited", offer(), accept(P, "elsewhere")),
    ("an answer after the offer", reach(Phase.GATHER), accept(P, NORTH)),
    ("keys from somebody who does not deal", reach(Phase.DEAL), upload(P, NORTH, Note.KEYS)),
    ("heads instead of keys", reach(Phase.DEAL), upload(P, WEST, Note.HEADS)),
    ("a tensor instead of keys", reach(Phase.DEAL), upload(P, WEST, Tensor.HEADS)),
    ("the model from somebody who is behind", reach(Phase.SHARE), upload(P, WEST, Note.MODEL)),
    ("the model from another than the sharer", reach(Phase.SHARE), upload(P, SOUTH, Note.MODEL)),
    ("heads instead of the model", reach(Phase.SHARE), upload(P, NORTH, Note.HEADS)),
    ("a model that nobody needs", reach(Phase.GATHER), upload(P, NORTH, Note.MODEL)),
    ("a contribution before all have caught up", reach(Phase.CATCH_UP), upload(P, NORTH, Tensor.HEADS)),
    ("a contribution of who is behind", reach(Phase.SHARE), upload(P, WEST, Tensor.HEADS)),
    (
        "catching up though one is not behind",
        reach(Phase.CATCH_UP),
        confirm(P, NORTH, Task.CATCH_UP, model="e"),
    ),
    ("taking while catching up", reach(Phase.CATCH_UP), confirm(P, WEST, Task.TAKE)),
    ("an answer of somebody not invited while waiting", WAITING, accept(P, "elsewhere")),
    ("a dispute while waiting", WAITING, dispute(P, SOUTH, Task.TAKE)),
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
    Returned: Returned(NORTH),
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


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (*OVER, Phase.WAIT)])
def test_every_phase_but_the_waiting_ends_by_itself(phase):
    state = reach(phase, now=5.0)
    just_before = state.deadline - 1e-3
    assert step(state, Passed(), just_before) == (state, [])
    assert step(state, Passed(), state.deadline)[0].phase is not phase


def test_a_round_over_is_over():
    for phase in OVER:
        state = reach(phase)
        assert (state.waiting_for, state.tensor, state.deadline) == ((), None, float("inf"))


def test_the_last_committed_model_is_the_round_s_whatever_most_hold():
    state = after(
        offer(expected="e"), accept(P, NORTH, model="old"), accept(P, SOUTH, model="e"), accept(P, WEST, model="old")
    )
    assert (state.phase, state.model, state.names, state.refusals) == (Phase.DEAL, "e", SILOS, ())
    assert state.behind == (NORTH, WEST)


def test_a_state_that_does_not_know_the_model_takes_the_majority_s():
    """Version 0.1 did not store it."""
    state = after(
        offer(expected=None), accept(P, NORTH, model="new"), accept(P, SOUTH, model="old"), accept(P, WEST, model="new")
    )
    assert (state.phase, state.expected, state.model, state.behind) == (Phase.DEAL, "new", "new", (SOUTH,))


def test_who_is_up_to_date_shares_and_everybody_deals_and_solves():
    places = [Place("5" * 64, 1, attempt) for attempt in (1, 2, 3)]
    sharing, dealing = reach(Phase.SHARE), reach(Phase.DEAL, with_one_behind())
    assert [replace(sharing, place=place).actor for place in places] == [NORTH, SOUTH, NORTH]
    assert [replace(dealing, place=place).actor for place in places] == [WEST, NORTH, SOUTH]
    assert reach(Phase.CATCH_UP).actor == NORTH, "whose note they fetch"


def test_who_is_late_is_away():
    late = after(at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS)), Passed(), now=LIMITS.train)
    assert (late.phase, late.absent) == (Phase.ABORTED, {SOUTH, WEST})
    silent = after(at(Phase.OFFER, *TWO_IN), Passed(), now=LIMITS.offer)
    assert (silent.phase, silent.absent) == (Phase.DEAL, {WEST})
    assert at(Phase.GATHER, dispute(P, SOUTH, Task.CONTRIBUTE)).absent == frozenset(), "who disputes is there"


def test_an_offer_asks_those_away_too_and_waits_for_them_last():
    state = offer(absent=(WEST,))
    assert (state.asked, state.waiting_for) == (SILOS, (NORTH, SOUTH))
    state = after(state, accept(P, NORTH), refuse(P, SOUTH))
    assert (state.phase, state.asked, state.waiting_for) == (Phase.OFFER, (WEST,), (WEST,))


def test_who_returns_is_waited_for():
    state = after(offer(absent=(WEST,)), Returned(WEST), accept(P, NORTH), accept(P, SOUTH))
    assert (state.phase, state.waiting_for) == (Phase.OFFER, (WEST,))


def test_while_it_waits_nobody_is_asked_and_seats_are_kept():
    assert (WAITING.asked, WAITING.waiting_for, WAITING.names) == ((), (NORTH, WEST), (SOUTH,))
    again = after(WAITING, Returned(WEST), now=1000.0)
    assert (again.place, again.names, again.since, again.why) == (P, (SOUTH,), 1000.0, "")
    assert (again.asked, again.waiting_for) == ((NORTH, WEST), (WEST,))
    assert after(again, accept(P, WEST)).phase is Phase.DEAL, "enough, and north is still away"


def test_what_is_relayed_is_fetched_in_the_phase_that_follows():
    for phase, (_, following) in RELAYED.items():
        state = reach(phase)
        state = after(state, *wanted(state))
        assert state.phase is following
        assert following in CONFIRMED


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
