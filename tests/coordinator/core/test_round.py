"""Every move of one attempt, as a table that can be read as its documentation.

The round of the table has the silos north, south and west, needs two of them, and sums heads, then the encoder. Its
place is round 1, attempt 1, so the actor, who deals and solves, is the third by name: west. One of three silos may
collude, so no sum can be opened without all three; where one is lost and the others go on, the round has FIVE silos,
of which four must stay, and its actor is polar.
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
    Complained,
    Confirmed,
    Event,
    Lost,
    Passed,
    Persist,
    Restarted,
    Returned,
    Revoked,
    RoundStopped,
    Uploaded,
)
from coordinator.core.round import COPIED, DATA_SECONDS, MOVES, NO_DATA, WrongPhaseError, step
from coordinator.core.state import (
    ADDED,
    COLLECTED,
    CONFIRMED,
    OVER,
    RELAYED,
    SPARING,
    Listed,
    Loss,
    Phase,
    Round,
)
from protos.messages import FALSE_MODEL, Answer, Confirm, Part, Place, Signature, Tensor
from protos.steps import SUM, Note, Task
from support.rounds import (
    CATCHING_UP,
    FIVE,
    LIMITS,
    SHA,
    SILOS,
    TOTAL,
    accept,
    complaint,
    confirm,
    dispute,
    member,
    offer,
    part,
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
    effects: tuple[Add | Clear | Lost, ...] = ()
    now: float = 1.0
    why: str = ""
    anew: bool = False
    """Whether the phase begins again."""
    culprits: tuple[str, ...] = ()


TWO_IN = (accept(P, NORTH), accept(P, SOUTH))
OPEN_2 = reach(Phase.OPEN, cursor=1)
KEYED = tuple(member(silo) for silo in SILOS)
WAITING = after(after(offer(colluders=0), accept(P, SOUTH)), Passed(), now=LIMITS.offer)
TWO_OF_THREE = after(offer(colluders=0), *TWO_IN)
"""Two have accepted, and are enough."""
VOIDING = reach(Phase.VOID)
Q = VOIDING.place
BEHIND_TAKES = reach(Phase.TAKE, with_one_behind())


def without_west(phase: Phase) -> Round:
    """A phase of an attempt that goes on without west, which is away."""
    state = offer(expected="e", absent=(WEST,), colluders=0)
    behind = "old" if phase in CATCHING_UP else "e"
    return reach(phase, after(state, accept(P, NORTH, model=behind), accept(P, SOUTH, model="e")))


EAST, POLAR = FIVE[0], FIVE[2]
SHORT = "2 silos are left, but 3 are needed to open the sums"
RESTART = "was restarted and has lost its keys"
DISPUTES = "south disputes contribute: data: a row does not fit"


def of_five(phase: Phase, *, cursor: int = 0, **changes) -> Round:
    """The first moment of a phase of a round of five, of whom the last is behind where the phase needs it."""
    begin = with_one_behind if phase in CATCHING_UP else offer
    return reach(phase, begin(**{"silos": FIVE, **changes}), cursor=cursor)


def but(state: Round, *silent: str, model: str = "m") -> Round:
    """Everybody who is waited for has acted, but for these."""
    names = [silo for silo in state.waiting_for if silo not in silent]
    return after(state, *(event for event in wanted(state, model) if author(event) in names))


def author(event: Event) -> str:
    return event.header.silo if isinstance(event, Uploaded) else event.silo


FOUR = (EAST, NORTH, POLAR, WEST)
ENDS = (
    (Phase.EXCHANGE, Phase.CHECK, ()),
    (Phase.CHECK, Phase.GATHER, ()),
    (Phase.GATHER, Phase.ADD, (Add(P, Tensor.HEADS, FOUR),)),
    (Phase.SIGN, Phase.REVEAL, ()),
    (Phase.REVEAL, Phase.OPEN, ()),
    (Phase.OPEN, Phase.SOLVE, ()),
    (Phase.ADOPT, Phase.GATHER, ()),
)
"""Phases of the sums in which everybody acts, with what follows when all but south have."""


def lost(phase: Phase, *silos: str, why: str) -> Lost:
    return Lost(P, phase, silos, why)


FOUR_BUT_POLAR = (EAST, NORTH, SOUTH, WEST)
THREE_BUT_POLAR = (EAST, NORTH, SOUTH)
NOT_ADOPTED = "disputes adopt: data: a row does not fit"
OBJECTIONS = "north disputes {task}: data: a row does not fit; south disputes {task}: data: a row does not fit"


def unopened(silo: str) -> Confirmed:
    return Confirmed(silo, Confirm(P, Task.OPEN, Tensor.HEADS, dispute="data", explanation="a row does not fit"))


def false(silo: str) -> Confirmed:
    """A silo's signed word that the note is not the model that it holds."""
    return Confirmed(silo, Confirm(P, Task.JUDGE, dispute=FALSE_MODEL, explanation="another", signature=b"signed"))


BEHIND = reach(
    Phase.CATCH_UP,
    step(offer(silos=FIVE, expected="e"), accept(P, "polar"), 0.0)[0],
)
JUDGING = after(BEHIND, dispute(P, "polar", Task.CATCH_UP))
OF_A_THIRD = (Phase.JUDGE, Phase.EXAMINE)
"""Phases that two silos alone never come to."""
EXAMINING = after(of_five(Phase.CHECK), complaint(P, NORTH, SOUTH, liar=SOUTH))
DEALT_WRONGLY = "south has dealt wrong shares to north, as the key of its note shows to everybody"


TABLE = (
    # --- offer
    Move("a first yes waits for the others", offer(), accept(P, NORTH), Phase.OFFER),
    Move("a refusal waits for the others", offer(), refuse(P, NORTH), Phase.OFFER),
    Move("the last yes fixes the roster", at(Phase.OFFER, *TWO_IN), accept(P, WEST), Phase.GREET),
    Move("the last answer may be a no", TWO_OF_THREE, refuse(P, WEST), Phase.GREET),
    Move(
        "the keys of the round before still fit",
        after(offer(keyed=tuple(member(s) for s in SILOS)), *TWO_IN),
        accept(P, WEST),
        Phase.EXCHANGE,
    ),
    Move(
        "one new key means new keys for all",
        after(offer(keyed=tuple(member(s) for s in SILOS)), *TWO_IN),
        accept(P, WEST, key=b"n"),
        Phase.GREET,
    ),
    Move(
        "too few take part",
        at(Phase.OFFER, accept(P, NORTH), refuse(P, SOUTH)),
        refuse(P, WEST),
        Phase.ABORTED,
        (CLEARS,),
        why="1 silos take part, the study needs 2",
    ),
    Move("the offer's time is up with enough silos", TWO_OF_THREE, Passed(), Phase.GREET, now=LIMITS.offer),
    Move(
        "the offer's time is up with too few: it waits for the others",
        at(Phase.OFFER, accept(P, SOUTH)),
        Passed(),
        Phase.WAIT,
        now=LIMITS.offer,
        why="1 silos take part, the study needs 2; the round waits for north, west",
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
        after(offer(absent=(WEST,), colluders=0), accept(P, NORTH)),
        accept(P, SOUTH),
        Phase.GREET,
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
        Phase.GREET,
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
        why="none of north, south holds the model of the last committed round; the round waits for west",
    ),
    Move("who restarts is asked anew", at(Phase.OFFER, *TWO_IN), Restarted(NORTH, "new"), Phase.OFFER),
    Move(
        "more may collude than the roster could withstand",
        after(offer(min_silos=2, colluders=3), *TWO_IN),
        accept(P, WEST),
        Phase.ABORTED,
        (CLEARS,),
        why="a study of 3 silos is too small for 3 colluders and at least 2 silos in a sum: 4 silos would have to sign;"
        " invite more silos",
    ),
    Move(
        "the threshold counts the study's silos and not those who came",
        after(offer(), *TWO_IN),
        refuse(P, WEST),
        Phase.ABORTED,
        (CLEARS,),
        why="2 silos take part, but 3 of 3 must sign who is in a sum",
    ),
    Move("the operator stops an offer", offer(), RoundStopped("enough"), Phase.ABORTED, (CLEARS,), why="enough"),
    # --- wait
    Move("somebody who was away polls: the offer is open again", WAITING, Returned(WEST), Phase.OFFER),
    Move("a late yes makes it enough", WAITING, accept(P, WEST), Phase.GREET),
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
    Move("the operator stops the waiting", WAITING, RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- void
    Move("the last has voided", but(VOIDING, WEST), confirm(Q, WEST, Task.VOID, Tensor.HEADS), Phase.GREET),
    Move(
        "one of three has revealed and cannot void",
        but(VOIDING, WEST),
        Confirmed(WEST, Confirm(Q, Task.VOID, Tensor.HEADS)),
        Phase.ABORTED,
        (Clear(Q),),
        why="2 silos can void the list of north, south, west, zero for the heads of this round, but 3 would have to;"
        " the others have revealed for it",
    ),
    Move(
        "somebody disputes the voiding",
        VOIDING,
        dispute(Q, SOUTH, Task.VOID),
        Phase.ABORTED,
        (Clear(Q),),
        why="south disputes void: data: a row does not fit",
        culprits=(SOUTH,),
    ),
    Move(
        "somebody restarts while voiding",
        VOIDING,
        Restarted(SOUTH, "new"),
        Phase.ABORTED,
        (Clear(Q),),
        why=f"south {RESTART}",
        culprits=(SOUTH,),
    ),
    Move(
        "somebody is late in voiding",
        but(VOIDING, WEST),
        Passed(),
        Phase.ABORTED,
        (Clear(Q),),
        now=LIMITS.open,
        why=f"no void from west within {LIMITS.open:g} s",
        culprits=(WEST,),
    ),
    Move(
        "somebody outside polls while it voids",
        replace(VOIDING, absent=frozenset({"east"})),
        Returned("east"),
        Phase.VOID,
    ),
    Move("the operator stops the voiding", VOIDING, RoundStopped("x"), Phase.ABORTED, (Clear(Q),), why="x"),
    # --- greet
    Move("one has greeted", reach(Phase.GREET), upload(P, NORTH, Note.GREETING), Phase.GREET),
    Move(
        "all have greeted",
        at(Phase.GREET, upload(P, SOUTH, Note.GREETING), upload(P, NORTH, Note.GREETING)),
        upload(P, WEST, Note.GREETING),
        Phase.DEAL,
    ),
    Move(
        "a silo cannot greet",
        reach(Phase.GREET),
        dispute(P, NORTH, Task.GREET),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes greet: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "a greeting is late: without it the roster has no keys",
        but(of_five(Phase.GREET), SOUTH),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.keys,
        why="no greet from south within 20 s",
        culprits=(SOUTH,),
    ),
    Move(
        "a restart while greeting",
        of_five(Phase.GREET),
        Restarted(SOUTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why=f"south {RESTART}",
        culprits=(SOUTH,),
    ),
    Move("the operator stops the greeting", reach(Phase.GREET), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
    Move("the operator stops the dealing", reach(Phase.DEAL), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- take
    Move("one has taken the keys", reach(Phase.TAKE), confirm(P, WEST, Task.TAKE), Phase.TAKE),
    Move(
        "all have taken the keys",
        at(Phase.TAKE, confirm(P, WEST, Task.TAKE), confirm(P, NORTH, Task.TAKE)),
        confirm(P, SOUTH, Task.TAKE),
        Phase.EXCHANGE,
    ),
    Move(
        "a silo cannot open its package: the others are heard first",
        reach(Phase.TAKE),
        dispute(P, NORTH, Task.TAKE),
        Phase.TAKE,
    ),
    Move(
        "a silo alone cannot open its package",
        at(Phase.TAKE, dispute(P, NORTH, Task.TAKE), confirm(P, WEST, Task.TAKE)),
        confirm(P, SOUTH, Task.TAKE),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes take: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "all but the dealer cannot open their packages",
        at(Phase.TAKE, dispute(P, NORTH, Task.TAKE), confirm(P, WEST, Task.TAKE)),
        dispute(P, SOUTH, Task.TAKE),
        Phase.ABORTED,
        (CLEARS,),
        why=f"several silos object to what west has made: {OBJECTIONS.format(task='take')}",
        culprits=(WEST,),
    ),
    Move(
        "a silo alone cannot open its package, and is restarted",
        at(Phase.TAKE, dispute(P, NORTH, Task.TAKE), confirm(P, WEST, Task.TAKE)),
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why=f"north {RESTART}",
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
    Move("the operator stops the taking", reach(Phase.TAKE), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
    Move("the operator stops the sharing", reach(Phase.SHARE), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- catch up
    Move(
        "all who were behind have caught up",
        reach(Phase.CATCH_UP),
        confirm(P, WEST, Task.CATCH_UP, model="e"),
        Phase.EXCHANGE,
    ),
    Move(
        "one of two has caught up",
        reach(Phase.CATCH_UP, after(offer(expected="e"), *TWO_IN)),
        confirm(P, NORTH, Task.CATCH_UP, model="e"),
        Phase.CATCH_UP,
    ),
    *(
        Move(
            f"what was shared is another model, with the digest {model!r}",
            reach(Phase.CATCH_UP),
            confirm(P, WEST, Task.CATCH_UP, model=model),
            Phase.JUDGE,
        )
        for model in ("d", "f")
    ),
    Move(
        "a silo cannot open the model",
        reach(Phase.CATCH_UP),
        dispute(P, WEST, Task.CATCH_UP),
        Phase.JUDGE,
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
    Move(
        "the operator stops the catching up",
        reach(Phase.CATCH_UP),
        RoundStopped("x"),
        Phase.ABORTED,
        (CLEARS,),
        why="x",
    ),
    # --- judge: polar was behind, south shares; east, north and west hold the model
    Move("one of three says that the note is false", JUDGING, false(NORTH), Phase.JUDGE),
    Move(
        "enough hold another model: the sharer is named",
        after(JUDGING, false(EAST), false(NORTH)),
        confirm(P, WEST, Task.JUDGE),
        Phase.ABORTED,
        (CLEARS,),
        why="south has shared a false model, as east, north have signed, who hold the right one; "
        "polar disputes catch_up: data: a row does not fit",
        culprits=(SOUTH,),
    ),
    Move(
        "one silo's word names nobody: another shares",
        after(JUDGING, false(NORTH), confirm(P, EAST, Task.JUDGE)),
        confirm(P, WEST, Task.JUDGE),
        Phase.SHARE,
    ),
    Move(
        "a fault is no statement about the note: another shares",
        after(JUDGING, *(dispute(P, name, Task.JUDGE) for name in (NORTH, EAST))),
        dispute(P, WEST, Task.JUDGE),
        Phase.SHARE,
    ),
    Move(
        "all hold the model that was shared: it lies at who refuses it",
        after(JUDGING, confirm(P, NORTH, Task.JUDGE), confirm(P, EAST, Task.JUDGE)),
        confirm(P, WEST, Task.JUDGE),
        Phase.ABORTED,
        (CLEARS,),
        why="polar disputes catch_up: data: a row does not fit; east, north, west hold the model that south shared",
        culprits=("polar",),
    ),
    Move(
        "no verdict in time",
        after(JUDGING, confirm(P, NORTH, Task.JUDGE), confirm(P, EAST, Task.JUDGE)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.open,
        why="no judge from west within 30 s",
        culprits=(WEST,),
    ),
    Move(
        "a restart while judging",
        JUDGING,
        Restarted(NORTH, "new"),
        Phase.ABORTED,
        (CLEARS,),
        why="north was restarted and has lost its keys",
        culprits=(NORTH,),
    ),
    Move(
        "the certificate of a judge is revoked",
        after(JUDGING, confirm(P, NORTH, Task.JUDGE), confirm(P, EAST, Task.JUDGE)),
        Revoked((WEST,)),
        Phase.ABORTED,
        (CLEARS,),
        why="the certificate of west was revoked",
        culprits=(WEST,),
    ),
    Move("the operator stops the judging", JUDGING, RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    Move(
        "somebody who is away is present again while others judge",
        replace(JUDGING, absent=frozenset({WEST})),
        Returned(WEST),
        Phase.JUDGE,
    ),
    # --- exchange
    Move("one has sent its shares", reach(Phase.EXCHANGE), upload(P, NORTH, Note.SHARES), Phase.EXCHANGE),
    Move(
        "all have sent their shares",
        at(Phase.EXCHANGE, upload(P, SOUTH, Note.SHARES), upload(P, NORTH, Note.SHARES)),
        upload(P, WEST, Note.SHARES),
        Phase.CHECK,
    ),
    Move(
        "a silo cannot share",
        reach(Phase.EXCHANGE),
        dispute(P, NORTH, Task.EXCHANGE),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes exchange: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "the operator stops the exchange", reach(Phase.EXCHANGE), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"
    ),
    # --- check
    Move("one has read its shares", reach(Phase.CHECK), confirm(P, NORTH, Task.CHECK), Phase.CHECK),
    Move("all have read their shares", but(reach(Phase.CHECK), WEST), confirm(P, WEST, Task.CHECK), Phase.GATHER),
    Move("the operator stops the check", reach(Phase.CHECK), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    Move(
        "a silo complains without evidence: one of the two lies, and nobody is blamed alone",
        replace(reach(Phase.CHECK), complaints=(NORTH,)),
        complaint(P, NORTH, SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why="north and south contradict each other, and one of them lies: north disputes check: recovery: x",
    ),
    Move(
        "a silo complains about offered keys that are none: nobody leaves for having said so",
        replace(reach(Phase.GREET), complaints=(NORTH,)),
        complaint(P, NORTH, SOUTH, task=Task.GREET),
        Phase.ABORTED,
        (CLEARS,),
        why="north and south contradict each other, and one of them lies: north disputes greet: recovery: x",
    ),
    Move(
        "who deals complains about a greeting",
        replace(reach(Phase.DEAL), complaints=(WEST,)),
        complaint(P, WEST, NORTH, task=Task.DEAL),
        Phase.ABORTED,
        (CLEARS,),
        why="north and west contradict each other, and one of them lies: west disputes deal: recovery: x",
    ),
    Move(
        "a silo complains that the dealt keys do not open for it",
        reach(Phase.TAKE),
        complaint(P, SOUTH, NORTH, task=Task.TAKE),
        Phase.ABORTED,
        (CLEARS,),
        why="north and south contradict each other, and one of them lies: south disputes take: recovery: x",
    ),
    # --- examine
    Move(
        "a silo complains, and the key of the note shows that its owner lied: the third finds out, too",
        replace(reach(Phase.CHECK), complaints=(NORTH,)),
        complaint(P, NORTH, SOUTH, liar=SOUTH),
        Phase.EXAMINE,
    ),
    Move(
        "who lied dealt wrong shares",
        reach(Phase.EXAMINE),
        confirm(P, WEST, Task.EXAMINE, culprit=SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why=f"{DEALT_WRONGLY}; west examined it",
    ),
    Move(
        "who lied is the silo that complained",
        at(Phase.CHECK, complaint(P, NORTH, SOUTH, liar=NORTH)),
        confirm(P, WEST, Task.EXAMINE, culprit=NORTH),
        Phase.ABORTED,
        (CLEARS,),
        why="north complained falsely about south, as the key of that note shows to everybody; west examined it",
    ),
    Move(
        "two silos are left, and nobody can examine",
        without_west(Phase.CHECK),
        complaint(P, NORTH, SOUTH, liar=SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why=DEALT_WRONGLY,
    ),
    Move("one of three has examined", EXAMINING, confirm(P, WEST, Task.EXAMINE, culprit=SOUTH), Phase.EXAMINE),
    Move(
        "one finds otherwise, who may be hostile",
        after(EXAMINING, *(confirm(P, name, Task.EXAMINE, culprit=SOUTH) for name in (WEST, EAST))),
        confirm(P, POLAR, Task.EXAMINE, culprit=NORTH),
        Phase.ABORTED,
        (CLEARS,),
        why=f"{DEALT_WRONGLY}; east, west examined it",
    ),
    Move(
        "two find otherwise, of whom one at most is hostile: the coordinator is wrong",
        after(EXAMINING, *(confirm(P, name, Task.EXAMINE, culprit=NORTH) for name in (WEST, EAST))),
        confirm(P, POLAR, Task.EXAMINE, culprit=SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why="north and south contradict each other; east, west find another liar than the coordinator",
    ),
    Move("one cannot examine it", EXAMINING, dispute(P, WEST, Task.EXAMINE), Phase.EXAMINE),
    Move(
        "nobody can examine it",
        after(EXAMINING, *(dispute(P, name, Task.EXAMINE) for name in (WEST, EAST))),
        dispute(P, POLAR, Task.EXAMINE),
        Phase.ABORTED,
        (CLEARS,),
        why=DEALT_WRONGLY,
    ),
    Move(
        "two are late, and it lies at neither",
        after(EXAMINING, confirm(P, EAST, Task.EXAMINE, culprit=SOUTH)),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.keys,
        why=f"{DEALT_WRONGLY}; east examined it",
    ),
    Move(
        "two are revoked, and the third has examined it",
        after(EXAMINING, confirm(P, EAST, Task.EXAMINE, culprit=SOUTH)),
        Revoked((WEST, POLAR)),
        Phase.ABORTED,
        (CLEARS,),
        why=f"{DEALT_WRONGLY}; east examined it",
    ),
    Move(
        "somebody who is not in the roster is present again",
        replace(EXAMINING, absent=frozenset({"elsewhere"})),
        Returned("elsewhere"),
        Phase.EXAMINE,
    ),
    Move("the operator stops it", reach(Phase.EXAMINE), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
        "a contribution is late: the others are added",
        but(of_five(Phase.GATHER), SOUTH),
        Passed(),
        Phase.ADD,
        (
            lost(Phase.GATHER, SOUTH, why="no gather from south within 100 s"),
            Add(P, Tensor.HEADS, FOUR),
        ),
        now=LIMITS.train,
    ),
    Move(
        "who restarts after its upload is in the sum all the same",
        but(of_five(Phase.GATHER), WEST),
        Restarted(NORTH, "new"),
        Phase.GATHER,
        (lost(Phase.GATHER, NORTH, why=f"north {RESTART}"),),
    ),
    Move("the operator stops the gathering", reach(Phase.GATHER), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- add
    Move("the sum is there", reach(Phase.ADD), Added(TOTAL), Phase.SIGN),
    Move(
        "a coordinator that cannot add says so in time",
        reach(Phase.ADD),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.train,
        why="no add from the coordinator within 100 s",
    ),
    Move("adding fails", reach(Phase.ADD), RoundStopped("no room"), Phase.ABORTED, (CLEARS,), why="no room"),
    # --- sign
    Move("one has signed", reach(Phase.SIGN), confirm(P, NORTH, Task.SIGN, Tensor.HEADS), Phase.SIGN),
    Move(
        "all have signed",
        but(reach(Phase.SIGN), SOUTH),
        confirm(P, SOUTH, Task.SIGN, Tensor.HEADS),
        Phase.REVEAL,
    ),
    Move(
        "a silo does not sign",
        reach(Phase.SIGN),
        dispute(P, NORTH, Task.SIGN),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes sign: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move("the operator stops the signing", reach(Phase.SIGN), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- reveal
    Move("one has revealed", reach(Phase.REVEAL), upload(P, NORTH, Note.REVEAL, Tensor.HEADS), Phase.REVEAL),
    Move(
        "all have revealed",
        but(reach(Phase.REVEAL), SOUTH),
        upload(P, SOUTH, Note.REVEAL, Tensor.HEADS),
        Phase.OPEN,
    ),
    Move(
        "a silo finds too few signatures",
        reach(Phase.REVEAL),
        dispute(P, NORTH, Task.REVEAL),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes reveal: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move("the operator stops the revealing", reach(Phase.REVEAL), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- open
    Move("one has opened", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN, Tensor.HEADS), Phase.OPEN),
    Move(
        "all have opened heads, which are to be solved",
        but(reach(Phase.OPEN), WEST),
        confirm(P, WEST, Task.OPEN, Tensor.HEADS),
        Phase.SOLVE,
    ),
    Move(
        "all have opened the last tensor",
        but(OPEN_2, WEST),
        confirm(P, WEST, Task.OPEN, Tensor.ENCODER),
        Phase.COMMITTED,
        (CLEARS,),
    ),
    Move(
        "three open the same sum, and one of them differently: too few hold one model",
        but(reach(Phase.OPEN), SOUTH),
        confirm(P, SOUTH, Task.OPEN, Tensor.HEADS, model="other"),
        Phase.ABORTED,
        (CLEARS,),
        why="the silos hold different models after open; in the minority: south",
        culprits=(SOUTH,),
    ),
    Move(
        "one of five opens the sum differently: the others go on",
        but(of_five(Phase.OPEN), EAST),
        confirm(P, EAST, Task.OPEN, Tensor.HEADS, model="other"),
        Phase.SOLVE,
        (lost(Phase.OPEN, EAST, why="east: another model than most silos after open"),),
    ),
    Move(
        "one of five opens the last sum differently: the others' model is committed",
        but(of_five(Phase.OPEN, cursor=1), EAST),
        confirm(P, EAST, Task.OPEN, Tensor.ENCODER, model="other"),
        Phase.COMMITTED,
        (lost(Phase.OPEN, EAST, why="east: another model than most silos after open"), CLEARS),
    ),
    Move(
        "the sum does not open for one of three",
        but(reach(Phase.OPEN), NORTH),
        unopened(NORTH),
        Phase.ABORTED,
        (CLEARS,),
        why="north disputes open of heads: data: a row does not fit",
        culprits=(NORTH,),
    ),
    Move(
        "the sum does not open for one of five: the others go on",
        but(of_five(Phase.OPEN), NORTH),
        unopened(NORTH),
        Phase.SOLVE,
        (lost(Phase.OPEN, NORTH, why="north disputes open of heads: data: a row does not fit"),),
    ),
    Move(
        "the sum does not open for two of five: those two add the uploads again",
        after(but(of_five(Phase.OPEN), NORTH, SOUTH), unopened(NORTH)),
        unopened(SOUTH),
        Phase.RECOUNT,
    ),
    Move(
        "the sum does not open for two of five, and an older version did not keep what was signed",
        replace(after(but(of_five(Phase.OPEN), NORTH, SOUTH), unopened(NORTH)), uploads=()),
        unopened(SOUTH),
        Phase.ABORTED,
        (CLEARS,),
        why=OBJECTIONS.format(task="open of heads"),
    ),
    # --- recount
    Move("the operator stops the recount", reach(Phase.RECOUNT), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    Move(
        "all have added the uploads again: a member spoilt the sum",
        but(reach(Phase.RECOUNT), WEST),
        confirm(P, WEST, Task.RECOUNT, Tensor.HEADS),
        Phase.ABORTED,
        (CLEARS,),
        why="a member spoilt the sum of heads of north, south, west, as north, south, west state",
    ),
    Move(
        "one is late, and the others' statements suffice",
        but(reach(Phase.RECOUNT), WEST),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.train,
        why="a member spoilt the sum of heads of north, south, west, as north, south state",
    ),
    Move(
        "one is revoked, and the others' statements suffice",
        but(reach(Phase.RECOUNT), WEST),
        Revoked((WEST,)),
        Phase.ABORTED,
        (CLEARS,),
        why="a member spoilt the sum of heads of north, south, west, as north, south state",
    ),
    Move(
        "one statement is no proof",
        but(reach(Phase.RECOUNT), SOUTH, WEST),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.train,
        why="north, south, west refuse the sum of heads: they do not state that it is spoilt",
    ),
    Move(
        "the coordinator's sum is another than that of the uploads, which lies at none of the silos",
        after(
            replace(reach(Phase.RECOUNT), complaints=(SOUTH,)),
            *(dispute(P, silo, Task.RECOUNT, Tensor.HEADS) for silo in (NORTH, SOUTH)),
        ),
        dispute(P, WEST, Task.RECOUNT, Tensor.HEADS),
        Phase.ABORTED,
        (CLEARS,),
        why="north, south, west refuse the sum of heads: "
        + "; ".join(f"{silo} disputes recount of heads: data: a row does not fit" for silo in SILOS),
    ),
    Move(
        "the sum does not open for one of five, which is then restarted",
        after(but(of_five(Phase.OPEN), NORTH, SOUTH), unopened(NORTH), Restarted(NORTH, "new")),
        confirm(P, SOUTH, Task.OPEN, Tensor.HEADS),
        Phase.SOLVE,
    ),
    Move(
        "the last opening is late: the others have committed",
        but(of_five(Phase.OPEN, cursor=1), SOUTH),
        Passed(),
        Phase.COMMITTED,
        (lost(Phase.OPEN, SOUTH, why="no open from south within 30 s"), CLEARS),
        now=LIMITS.open,
    ),
    Move("the operator stops the opening", reach(Phase.OPEN), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
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
        "no heads in time: the next solver begins",
        of_five(Phase.SOLVE),
        Passed(),
        Phase.SOLVE,
        (lost(Phase.SOLVE, POLAR, why="no solve from polar within 40 s"),),
        now=LIMITS.solve,
        anew=True,
    ),
    Move(
        "the solver restarts: the next one begins",
        of_five(Phase.SOLVE),
        Restarted(POLAR, "new"),
        Phase.SOLVE,
        (lost(Phase.SOLVE, POLAR, why=f"polar {RESTART}"),),
        anew=True,
    ),
    Move(
        "no heads in time, and nobody to spare",
        reach(Phase.SOLVE),
        Passed(),
        Phase.ABORTED,
        (CLEARS,),
        now=LIMITS.solve,
        why=f"no solve from west within 40 s; {SHORT}",
        culprits=(WEST,),
    ),
    Move("the operator stops the solving", reach(Phase.SOLVE), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- adopt
    Move("one has adopted", reach(Phase.ADOPT), confirm(P, NORTH, Task.ADOPT, model="solved"), Phase.ADOPT),
    Move(
        "all have adopted; the next tensor follows",
        but(reach(Phase.ADOPT), WEST, model="solved"),
        confirm(P, WEST, Task.ADOPT, model="solved"),
        Phase.GATHER,
    ),
    Move(
        "three adopt, one of them other heads",
        but(reach(Phase.ADOPT), WEST, model="solved"),
        confirm(P, WEST, Task.ADOPT, model="other"),
        Phase.ABORTED,
        (CLEARS,),
        why="the silos hold different models after adopt; in the minority: west",
        culprits=(WEST,),
    ),
    Move(
        "one of five adopts other heads",
        but(of_five(Phase.ADOPT), WEST, model="solved"),
        confirm(P, WEST, Task.ADOPT, model="other"),
        Phase.GATHER,
        (lost(Phase.ADOPT, WEST, why="west: another model than most silos after adopt"),),
    ),
    Move(
        "two of five adopt other heads",
        but(after(of_five(Phase.ADOPT), confirm(P, EAST, Task.ADOPT, model="other")), WEST),
        confirm(P, WEST, Task.ADOPT, model="third"),
        Phase.ABORTED,
        (CLEARS,),
        why="the silos hold different models after adopt; in the minority: east, west",
    ),
    Move(
        "one of three adopts no heads",
        but(reach(Phase.ADOPT), SOUTH),
        dispute(P, SOUTH, Task.ADOPT),
        Phase.ABORTED,
        (CLEARS,),
        why="south disputes adopt: data: a row does not fit",
        culprits=(SOUTH,),
    ),
    Move(
        "one of five adopts no heads: the others go on",
        but(of_five(Phase.ADOPT), SOUTH),
        dispute(P, SOUTH, Task.ADOPT),
        Phase.GATHER,
        (lost(Phase.ADOPT, SOUTH, why="south disputes adopt: data: a row does not fit"),),
    ),
    Move(
        "the heads are not what the sum implies: another silo solves",
        after(but(of_five(Phase.ADOPT), *FOUR_BUT_POLAR), *(dispute(P, silo, Task.ADOPT) for silo in THREE_BUT_POLAR)),
        dispute(P, WEST, Task.ADOPT),
        Phase.SOLVE,
        (lost(Phase.ADOPT, POLAR, why="; ".join(f"{silo} {NOT_ADOPTED}" for silo in FOUR_BUT_POLAR)),),
    ),
    Move(
        "two of three adopt no heads of the third, without which nothing can be opened",
        after(but(reach(Phase.ADOPT), NORTH, SOUTH), dispute(P, NORTH, Task.ADOPT)),
        dispute(P, SOUTH, Task.ADOPT),
        Phase.ABORTED,
        (CLEARS,),
        why=f"several silos object to what west has made: {OBJECTIONS.format(task='adopt')}",
        culprits=(WEST,),
    ),
    Move("the operator stops the adopting", reach(Phase.ADOPT), RoundStopped("x"), Phase.ABORTED, (CLEARS,), why="x"),
    # --- a loss, in whatever phase
    *(
        Move(
            f"one of five restarts in {phase}: the keys and the model are everybody's",
            of_five(phase),
            Restarted(SOUTH, "new"),
            Phase.ABORTED,
            (CLEARS,),
            why=f"south {RESTART}",
            culprits=(SOUTH,),
        )
        for phase in (Phase.DEAL, Phase.TAKE, *CATCHING_UP)
    ),
    *(
        Move(
            f"one of five restarts in {phase}: the others go on",
            of_five(phase),
            Restarted(SOUTH, "new"),
            phase,
            (lost(phase, SOUTH, why=f"south {RESTART}"),),
        )
        for phase in SPARING
    ),
    *(
        Move(
            f"one of three restarts in {phase}: too few stay",
            reach(phase),
            Restarted(SOUTH, "new"),
            Phase.ABORTED,
            (CLEARS,),
            why=f"south {RESTART}; {SHORT}",
            culprits=(SOUTH,),
        )
        for phase in SPARING
    ),
    *(
        Move(
            f"one of five restarts in {phase} with distributed noise",
            of_five(phase, recovers=False),
            Restarted(SOUTH, "new"),
            Phase.ABORTED,
            (CLEARS,),
            why=f"south {RESTART}; with distributed noise a dropout aborts the attempt",
            culprits=(SOUTH,),
        )
        for phase in SPARING
        if phase not in ADDED
    ),
    *(
        Move(
            f"one of five restarts in {phase} with distributed noise, and its noise is in the sum",
            of_five(phase, recovers=False),
            Restarted(SOUTH, "new"),
            phase,
            (lost(phase, SOUTH, why=f"south {RESTART}"),),
        )
        for phase in ADDED
    ),
    *(
        Move(
            f"one of five that has disputed before disputes again in {phase}",
            replace(of_five(phase), complaints=(SOUTH,)),
            dispute(P, SOUTH, Task.CONTRIBUTE),
            phase,
            (lost(phase, SOUTH, why=f"{DISPUTES}; it has disputed before, so the others go on without it"),),
        )
        for phase in SPARING
        if phase is not Phase.ADD
    ),
    *(
        Move(
            f"one of five is the last that {phase} waits for, and restarts",
            but(of_five(phase), SOUTH),
            Restarted(SOUTH, "new"),
            following,
            (lost(phase, SOUTH, why=f"south {RESTART}"), *adds),
        )
        for phase, following, adds in ENDS
    ),
    *(
        Move(
            f"one of five is late in {phase}: the others go on",
            but(of_five(phase), SOUTH),
            Passed(),
            following,
            (lost(phase, SOUTH, why=f"no {phase} from south within {LIMITS.of(phase):g} s"), *adds),
            now=LIMITS.of(phase),
        )
        for phase, following, adds in ENDS
    ),
    *(
        Move(
            f"two of five are late in {phase}: too few stay",
            but(of_five(phase), SOUTH, WEST),
            Passed(),
            Phase.ABORTED,
            (CLEARS,),
            now=LIMITS.of(phase),
            why=f"no {phase} from south, west within {LIMITS.of(phase):g} s; 3 silos are left, but 4 are"
            " needed to open the sums",
            culprits=(SOUTH, WEST),
        )
        for phase, *_ in ENDS
    ),
    *(
        Move(
            f"one of five is late in {phase} with distributed noise",
            but(of_five(phase, recovers=False), SOUTH),
            Passed(),
            Phase.ABORTED,
            (CLEARS,),
            now=LIMITS.of(phase),
            why=f"no {phase} from south within {LIMITS.of(phase):g} s;"
            " with distributed noise a dropout aborts the attempt",
            culprits=(SOUTH,),
        )
        for phase, *_ in ENDS
        if phase not in ADDED
    ),
    *(
        Move(
            f"with distributed noise one of five holds another model after {phase}: the sum has its noise",
            but(of_five(phase, recovers=False), EAST),
            confirm(P, EAST, CONFIRMED[phase], Tensor.HEADS, model="other"),
            following,
            (lost(phase, EAST, why=f"east: another model than most silos after {phase}"),),
        )
        for phase, following in ((Phase.OPEN, Phase.SOLVE), (Phase.ADOPT, Phase.GATHER))
    ),
    *(
        Move(
            f"one of five is late in {phase} of the encoder, which is the round's {place} sum, with distributed noise",
            but(of_five(phase, recovers=False, tensors=tensors, cursor=len(tensors) - 1), SOUTH),
            Passed(),
            Phase.ABORTED if first else Phase.ADD,
            (CLEARS,)
            if first
            else (
                lost(phase, SOUTH, why=f"no {phase} from south within {LIMITS.of(phase):g} s"),
                Add(P, Tensor.ENCODER, FOUR),
            ),
            now=LIMITS.of(phase),
            why=f"no {phase} from south within {LIMITS.of(phase):g} s;"
            " with distributed noise a dropout aborts the attempt"
            if first
            else "",
            culprits=(SOUTH,) if first else (),
        )
        for phase in (Phase.GATHER,)
        for first, place, tensors in (
            (True, "first", (Tensor.ENCODER,)),
            (False, "second", (Tensor.HEADS, Tensor.ENCODER)),
        )
    ),
    Move(
        "with distributed noise nobody may be missing from the next sum",
        but(of_five(Phase.OPEN, recovers=False, tensors=(Tensor.COUNTS, Tensor.METRICS)), EAST),
        confirm(P, EAST, Task.OPEN, Tensor.COUNTS, model="other"),
        Phase.ABORTED,
        (lost(Phase.OPEN, EAST, why="east: another model than most silos after open"), CLEARS),
        why="east cannot be missing from the metrics with distributed noise",
        culprits=(EAST,),
    ),
    # --- any
    *(
        Move("somebody who is not in the roster is present again", without_west(phase), Returned(WEST), phase)
        for phase in Phase
        if phase not in (*OVER, Phase.OFFER, Phase.WAIT, Phase.VOID, *OF_A_THIRD)
    ),
)

LATER = (*SPARING[1:],)
GREETED = at(Phase.GREET, upload(P, NORTH, Note.GREETING))


def without_south(phase: Phase) -> Round:
    """A phase of the sums of five, of whom south was lost in the exchange."""
    return reach(phase, after(of_five(Phase.EXCHANGE), Restarted(SOUTH, "new")))


NOTHING_NEW = (
    ("a restart of somebody who adds the uploads again", reach(Phase.RECOUNT), Restarted(NORTH, "new")),
    ("a restart of somebody who examines a complaint", reach(Phase.EXAMINE), Restarted(WEST, "new")),
    ("a restart of who lied", reach(Phase.EXAMINE), Restarted(SOUTH, "new")),
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
    ("a greeting that is repeated", GREETED, upload(P, NORTH, Note.GREETING)),
    ("shares that are repeated", but(of_five(Phase.EXCHANGE), SOUTH), upload(P, NORTH, Note.SHARES)),
    ("a reveal that is repeated", but(of_five(Phase.REVEAL), SOUTH), upload(P, NORTH, Note.REVEAL, Tensor.HEADS)),
    (
        "a signature that is repeated with other bytes",
        but(of_five(Phase.SIGN), SOUTH),
        Confirmed(NORTH, Confirm(P, Task.SIGN, Tensor.HEADS, signature=b"other")),
    ),
    (
        "an opening that is repeated with another model",
        but(of_five(Phase.OPEN), SOUTH),
        confirm(P, NORTH, Task.OPEN, Tensor.HEADS, model="other"),
    ),
    *((f"a restart of who was lost before {phase}", without_south(phase), Restarted(SOUTH, "new")) for phase in LATER),
    *((f"time in {phase} before its end", reach(phase), Passed()) for phase in Phase if (phase, Passed) in MOVES),
)

SAYING = tuple(phase for phase in LATER if phase not in (Phase.ADD, Phase.SOLVE))


def said_by_south(phase: Phase) -> Event:
    """What south would have sent in a phase, had it not been lost."""
    return next(event for event in wanted(of_five(phase)) if author(event) == SOUTH)


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
    ("a tensor that was gathered before", reach(Phase.GATHER, cursor=1), upload(P, NORTH, Tensor.HEADS)),
    ("a note while gathering", reach(Phase.GATHER), upload(P, WEST, Note.KEYS)),
    ("a contribution from outside the roster", reach(Phase.GATHER), upload(P, "elsewhere", Tensor.HEADS)),
    ("a contribution while adding", reach(Phase.ADD), upload(P, NORTH, Tensor.HEADS)),
    ("a complaint about oneself", reach(Phase.CHECK), complaint(P, NORTH, NORTH)),
    ("a complaint about somebody outside", reach(Phase.CHECK), complaint(P, NORTH, "elsewhere")),
    ("a complaint from outside", reach(Phase.CHECK), complaint(P, "elsewhere", NORTH)),
    ("a complaint about what is not due", reach(Phase.CHECK), complaint(P, NORTH, SOUTH, task=Task.TAKE)),
    ("a complaint after a yes", at(Phase.CHECK, confirm(P, NORTH, Task.CHECK)), complaint(P, NORTH, SOUTH)),
    ("a dispute of who lied", reach(Phase.EXAMINE), dispute(P, SOUTH, Task.EXAMINE)),
    ("what who complained finds", reach(Phase.EXAMINE), confirm(P, NORTH, Task.EXAMINE, culprit=SOUTH)),
    ("a dispute of the check that comes late", reach(Phase.EXAMINE), dispute(P, WEST, Task.CHECK)),
    ("a second complaint", EXAMINING, complaint(P, WEST, SOUTH, liar=SOUTH)),
    ("a contribution after adding", reach(Phase.OPEN), upload(P, NORTH, Tensor.HEADS)),
    ("a second sum", reach(Phase.OPEN), Added(Part(SUM, "", 1, SHA))),
    ("a sum while gathering", reach(Phase.GATHER), Added(TOTAL)),
    ("a confirmation from outside", reach(Phase.OPEN), confirm(P, "elsewhere", Task.OPEN, Tensor.HEADS)),
    ("a dispute from outside", reach(Phase.GATHER), dispute(P, "elsewhere", Task.CONTRIBUTE)),
    ("the opening of another tensor", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN, Tensor.ENCODER)),
    ("an opening without its tensor", reach(Phase.OPEN), confirm(P, NORTH, Task.OPEN)),
    ("taking while opening", reach(Phase.OPEN), confirm(P, NORTH, Task.TAKE)),
    ("opening while taking", reach(Phase.TAKE), confirm(P, NORTH, Task.OPEN, Tensor.HEADS)),
    ("a greeting from outside", GREETED, upload(P, "elsewhere", Note.GREETING)),
    ("shares instead of a greeting", GREETED, upload(P, SOUTH, Note.SHARES)),
    ("a tensor instead of a greeting", GREETED, upload(P, SOUTH, Tensor.HEADS)),
    ("a greeting instead of shares", reach(Phase.EXCHANGE), upload(P, SOUTH, Note.GREETING)),
    ("a reveal instead of a contribution", reach(Phase.GATHER), upload(P, SOUTH, Note.REVEAL, Tensor.HEADS)),
    ("a reveal of another tensor", reach(Phase.REVEAL), upload(P, SOUTH, Note.REVEAL, Tensor.ENCODER)),
    ("a contribution instead of a reveal", reach(Phase.REVEAL), upload(P, SOUTH, Tensor.HEADS)),
    ("a signature for another tensor", reach(Phase.SIGN), confirm(P, SOUTH, Task.SIGN, Tensor.ENCODER)),
    ("opening while signing", reach(Phase.SIGN), confirm(P, SOUTH, Task.OPEN, Tensor.HEADS)),
    ("signing while opening", reach(Phase.OPEN), confirm(P, SOUTH, Task.SIGN, Tensor.HEADS)),
    ("a signature while revealing", reach(Phase.REVEAL), confirm(P, SOUTH, Task.SIGN, Tensor.HEADS)),
    (
        "heads of a solver who was lost",
        after(of_five(Phase.SOLVE), Restarted(POLAR, "x")),
        upload(P, POLAR, Note.HEADS),
    ),
    *((f"in {phase}, what a lost silo sends", without_south(phase), said_by_south(phase)) for phase in SAYING),
    *((f"in {phase}, a lost silo's dispute", without_south(phase), dispute(P, SOUTH, Task.OPEN)) for phase in SAYING),
    ("a confirmation while dealing", reach(Phase.DEAL), confirm(P, NORTH, Task.TAKE)),
    ("a confirmation while gathering", reach(Phase.GATHER), confirm(P, NORTH, Task.TAKE)),
)


@pytest.mark.parametrize("move", TABLE, ids=lambda move: f"{move.state.phase}: {move.says}")
def test_move(move):
    state, effects = step(move.state, move.event, move.now)
    assert state.phase is move.to
    assert effects == [Persist(), *move.effects]
    assert (state.why, state.culprits) == (move.why, move.culprits)
    if state.phase is not move.state.phase or move.anew:
        assert (state.since, state.done) == (move.now, frozenset())
    else:
        assert state.since == move.state.since, "acting within a phase must not prolong it"


LIKE_LATE = tuple(phase for phase, event in MOVES if event is Revoked)
"""Phases in which nobody waits for who was revoked."""


def test_the_table_has_every_move_there_is():
    revocations = {(phase, Revoked) for phase in LIKE_LATE}
    idle = {(Phase.RECOUNT, Restarted), (Phase.EXAMINE, Restarted)}  # nobody needs keys there: in NOTHING_NEW
    assert {(move.state.phase, type(move.event)) for move in TABLE} | revocations | idle == set(MOVES)


@pytest.mark.parametrize("phase", LIKE_LATE)
@pytest.mark.parametrize("recovers", [True, False])
def test_who_is_revoked_is_as_one_whose_time_is_up(phase, recovers):
    state = replace(reach(phase), recovers=recovers)
    late = state.waiting_for
    after, effects = step(state, Revoked(late), 1.0)
    if not late:
        assert (after, effects) == (state, [])
        return
    timely, same = step(state, Passed(), state.deadline)
    assert (after.phase, after.absent, after.culprits) == (timely.phase, timely.absent, timely.culprits)
    assert (after.lost, after.survivors) == (timely.lost, timely.survivors)
    assert [type(one) for one in effects] == [type(one) for one in same]
    assert step(state, Revoked(tuple(sorted(set(state.names) - set(late)))), 1.0) == (state, [])


@pytest.mark.parametrize(("says", "state", "event"), NOTHING_NEW, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_so_already_changes_nothing(says, state, event):
    assert step(state, event, 1.0) == (state, [])


@pytest.mark.parametrize(("says", "state", "event"), OUT_OF_TURN, ids=lambda v: v if isinstance(v, str) else "")
def test_out_of_turn(says, state, event):
    before = replace(state)
    with pytest.raises(WrongPhaseError):
        step(state, event, 1.0)
    assert state == before


EXAMPLES: dict[type, Event] = {
    Answered: accept(P, NORTH),
    Uploaded: upload(P, NORTH, Tensor.HEADS),
    Added: Added(TOTAL),
    Confirmed: confirm(P, NORTH, Task.TAKE),
    Complained: complaint(P, NORTH, SOUTH),
    Restarted: Restarted(NORTH, "new"),
    Returned: Returned(NORTH),
    Revoked: Revoked((NORTH,)),
    Passed: Passed(),
    RoundStopped: RoundStopped("x"),
}


@pytest.mark.parametrize("phase", Phase)
def test_what_is_not_in_the_table_is_out_of_turn(phase):
    assert set(EXAMPLES) == set(get_args(Event))
    state = reach(phase)
    for kind, event in EXAMPLES.items():
        if (phase, kind) not in MOVES:
            with pytest.raises(WrongPhaseError, match=f"{kind.__name__} does not fit the phase {phase}"):
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
    assert (state.phase, state.model, state.names, state.refusals) == (Phase.GREET, "e", SILOS, ())
    assert state.behind == (NORTH, WEST)


def test_who_is_late_is_away():
    late = after(at(Phase.GATHER, upload(P, NORTH, Tensor.HEADS)), Passed(), now=LIMITS.train)
    assert (late.phase, late.absent) == (Phase.ABORTED, {SOUTH, WEST})
    lost_ = after(but(of_five(Phase.GATHER), SOUTH), Passed(), now=LIMITS.train)
    assert (lost_.phase, lost_.absent, lost_.lost) == (Phase.ADD, {SOUTH}, {SOUTH})
    back = after(lost_, Returned(SOUTH))
    assert (back.absent, back.lost) == (frozenset(), {SOUTH}), "it is heard of, and lost to this attempt all the same"
    silent = after(TWO_OF_THREE, Passed(), now=LIMITS.offer)
    assert (silent.phase, silent.absent) == (Phase.GREET, {WEST})
    assert at(Phase.GATHER, dispute(P, SOUTH, Task.CONTRIBUTE)).absent == frozenset(), "who disputes is there"


def test_a_dispute_of_a_tensor_names_it():
    said = Confirm(P, Task.OPEN, Tensor.HEADS, dispute="opening", explanation="the masks do not cancel")
    why = after(but(at(Phase.OPEN), SOUTH), Confirmed(SOUTH, said)).why
    assert why == "south disputes open of heads: opening: the masks do not cancel"


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
    assert after(again, accept(P, WEST)).phase is Phase.GREET, "enough, and north is still away"


def test_what_is_relayed_is_fetched_in_the_phase_that_follows():
    following = {Phase.DEAL: Phase.TAKE, Phase.SHARE: Phase.CATCH_UP, Phase.SOLVE: Phase.ADOPT}
    assert set(following) == set(RELAYED)
    for phase, note in RELAYED.items():
        state = reach(phase)
        state = after(state, *wanted(state))
        assert state.phase is following[phase]
        assert state.phase in CONFIRMED
        assert note in state.step.fetches


def test_the_roster_is_sorted_whatever_the_order_of_answers():
    state = after(offer(), accept(P, WEST), accept(P, NORTH), accept(P, SOUTH))
    assert state.names == tuple(sorted(SILOS))
    assert state.members == tuple(member(silo) for silo in sorted(SILOS))


def test_what_everybody_seals_is_kept_until_it_was_fetched():
    for phase, note in COLLECTED.items():
        state = of_five(phase)
        ended = after(state, *wanted(state))
        assert ended.phase is not phase
        assert [one for one in ended.parts if one.kind == note] == [part(silo, note) for silo in FIVE]


def test_who_is_lost_is_named_with_the_reason_and_asked_for_nothing():
    state = without_south(Phase.GATHER)
    assert state.losses == (Loss(SOUTH, f"south {RESTART}"),)
    assert (state.participants, state.asked, state.names) == (FOUR, FOUR, FIVE)
    for phase in LATER:
        assert SOUTH not in without_south(phase).asked


def test_who_uploaded_and_then_vanished_is_in_the_sum_and_in_its_list():
    state = after(but(of_five(Phase.GATHER), WEST), Restarted(NORTH, "new"), upload(P, WEST, Tensor.HEADS))
    assert (state.phase, state.survivors, state.present) == (Phase.ADD, FIVE, (EAST, POLAR, SOUTH, WEST))
    state = reach(Phase.SIGN, state)
    assert state.asked == (EAST, POLAR, SOUTH, WEST)
    state = reach(Phase.OPEN, state)
    assert state.survivors == FIVE
    assert [one.silo for one in state.signatures] == [EAST, POLAR, SOUTH, WEST]


def test_the_signatures_are_the_silos_own_in_order_of_name():
    state = but(of_five(Phase.SIGN), SOUTH)
    state = after(state, confirm(P, SOUTH, Task.SIGN, Tensor.HEADS))
    assert state.signatures == tuple(Signature(silo, f"{silo}'s".encode()) for silo in FIVE)


def test_a_signature_over_the_publication_is_none_over_the_list():
    state = reach(Phase.OPEN, offer(tensors=(Tensor.METRICS,)))
    said = Confirm(P, Task.OPEN, Tensor.METRICS, "m", publication=b"p", signature=b"north's")
    assert after(state, Confirmed(NORTH, said)).signatures == state.signatures


def test_lists_of_several_tensors_are_voided_one_after_the_other():
    first, second = Tensor.HEADS, Tensor.METRICS
    listed = tuple(Listed(tensor, (*SILOS, "zero")) for tensor in (first, second))
    begun = replace(offer(tensors=(first, second)), place=Q, listed=listed, voiding=(first, second))
    state = reach(Phase.VOID, begun)
    assert state.tensor is first
    state = after(state, *wanted(state))
    assert (state.phase, state.tensor, state.listed, state.signatures) == (Phase.VOID, second, listed[1:], ())
    state = after(state, *wanted(state))
    assert (state.phase, state.listed, state.voiding) == (Phase.GREET, (), ())
    assert [one.tensor for one in state.voided] == [first, second]
    again = replace(VOIDING, place=Place(P.study, 1, 3), voided=state.voided)
    again = after(again, *wanted(again))
    assert [(one.tensor, one.void.through) for one in again.voided] == [(second, 1), (first, 2)]


def test_a_silo_that_signed_and_then_vanished_has_signed_all_the_same():
    state = after(but(of_five(Phase.SIGN), SOUTH), Restarted(NORTH, "new"))
    assert (state.phase, state.asked) == (Phase.SIGN, (SOUTH,))
    state = after(state, confirm(P, SOUTH, Task.SIGN, Tensor.HEADS))
    assert [one.silo for one in state.signatures] == list(FIVE)
    assert state.asked == (EAST, POLAR, SOUTH, WEST)


def test_the_next_tensor_is_gathered_from_those_who_are_left():
    state = reach(Phase.GATHER, after(of_five(Phase.ADD), Restarted(SOUTH, "new")), cursor=1)
    assert (state.tensor, state.participants) == (Tensor.ENCODER, FOUR)
    assert (state.survivors, state.signatures, state.held) == ((), (), ())
    assert {one.kind for one in state.parts} == {Note.SHARES}


def test_the_model_that_most_hold_is_the_round_s_whatever_the_lost_held():
    state = but(of_five(Phase.OPEN, cursor=1), EAST, SOUTH, model="most's")
    state = after(state, confirm(P, SOUTH, Task.OPEN, Tensor.ENCODER, model="other"), Restarted(SOUTH, "new"))
    assert (state.held[2].silo, state.held[2].model) == (SOUTH, "other")
    state = after(state, confirm(P, EAST, Task.OPEN, Tensor.ENCODER, model="most's"))
    assert (state.phase, state.model, state.lost) == (Phase.COMMITTED, "most's", {SOUTH})


def test_losses_add_up_over_the_attempt():
    """Ten silos, one of whom may collude: six must stay, whenever the others are lost."""
    ten = tuple(f"s{number}" for number in range(10))
    state, gone = reach(Phase.EXCHANGE, offer(silos=ten)), []
    assert state.threshold == 6
    for phase, silo in zip(
        (Phase.EXCHANGE, Phase.GATHER, Phase.SIGN, Phase.OPEN), ("s9", "s0", "s4", "s7"), strict=True
    ):
        state = after(reach(phase, state), Restarted(silo, "new"))
        gone.append(silo)
        assert (state.phase, state.lost) == (phase, set(gone))
    final = after(state, Restarted("s1", "new"))
    assert (final.phase, final.why) == (
        Phase.ABORTED,
        f"s1 {RESTART}; 5 silos are left, but 6 are needed to open the sums",
    )
    assert reach(Phase.COMMITTED, state).lost == set(gone)


def test_what_the_study_needs_at_the_least_must_stay_too():
    state = of_five(Phase.GATHER, min_silos=5)
    assert (state.threshold, after(state, Restarted(SOUTH, "new")).phase) == (5, Phase.ABORTED)


def test_every_solver_may_be_lost_but_as_many_as_must_stay():
    ten = tuple(f"s{number}" for number in range(10))
    state, solvers = reach(Phase.SOLVE, offer(silos=ten)), []
    while state.phase is Phase.SOLVE:
        solvers.append(state.actor)
        state = after(state, Passed(), now=state.deadline)
    assert (solvers, state.phase) == (["s2", "s3", "s4", "s5", "s6"], Phase.ABORTED)


def test_the_second_tensor_forgets_the_first_s_sum():
    state = reach(Phase.ADOPT)
    assert {TOTAL, part(WEST, Note.HEADS), part(NORTH, Note.REVEAL), part(NORTH, Note.SHARES)} <= set(state.parts)
    state = after(state, *wanted(state))
    assert (state.phase, state.tensor) == (Phase.GATHER, Tensor.ENCODER)
    assert state.parts == tuple(part(silo, Note.SHARES) for silo in (NORTH, SOUTH, WEST)), "who drops out may be asked"


def lacks_data(silo):
    return Answered(silo, replace(refuse(P, silo).answer, refusal=NO_DATA))


def test_who_has_no_data_yet_keeps_its_place_and_is_asked_again_after_a_pause():
    state = after(offer(), accept(P, NORTH), accept(P, SOUTH), lacks_data(WEST))
    assert (state.refusals, state.absent, state.phase, state.asked) == ((), {WEST}, Phase.OFFER, ())
    waiting = after(state, Passed(), now=LIMITS.offer)
    assert waiting.phase is Phase.WAIT
    assert waiting.why.endswith("the round waits for west (no data yet: west)")
    for polled in (step(state, Returned(WEST), DATA_SECONDS - 1), step(waiting, Returned(WEST), DATA_SECONDS - 1)):
        assert polled[1] == [], "it polls all the time, and is not asked all the time"
    later = LIMITS.offer + DATA_SECONDS
    again = after(waiting, Returned(WEST), now=later)
    assert (again.phase, again.absent, again.asked) == (Phase.OFFER, set(), (WEST,))
    assert after(again, accept(P, WEST), now=later).phase is Phase.GREET


def test_a_round_that_nobody_could_open_waits_for_no_data():
    state = after(offer(colluders=3), accept(P, NORTH), accept(P, SOUTH), lacks_data(WEST))
    assert state.phase is Phase.ABORTED


def test_a_round_goes_on_without_who_has_no_data_if_the_others_suffice():
    state = after(offer(colluders=0), accept(P, NORTH), accept(P, SOUTH), lacks_data(WEST))
    assert (state.phase, state.names, state.absent) == (Phase.GREET, (NORTH, SOUTH), {WEST})


@pytest.mark.parametrize("which", ["public_key", "kem_key"])
def test_who_offers_keys_that_another_has_offered_before_is_refused_by_name(which):
    north = member("north")
    copy = replace(member("west"), **{which: getattr(north, which)})
    answer = Answered("west", Answer(P, "west-1", member=copy))
    state = after(offer(), accept(P, "north"), accept(P, "south"), answer)
    (refusal,) = state.refusals
    assert (refusal.silo, refusal.reason) == ("west", COPIED)
    assert "keys that north has offered before, and only north can have them" in refusal.explanation
    # It is no use to be the first in the next attempt: the owner's keys are known.
    again = replace(offer(), shown=state.all_shown)
    assert after(again, answer).refusals[0].silo == "west"
    assert after(again, accept(P, "north"), accept(P, "west")).refusals == ()
