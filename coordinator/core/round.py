"""One attempt at one round as a transition table.

offer (-> wait -> offer)* -> (void)* -> (greet -> deal -> take) -> (share -> catch up (-> judge)?)* -> exchange ->
check (-> examine, the end) -> gather -> add -> sign -> reveal -> open (-> recount, the end) -> (solve -> adopt), from
gather on once for every tensor.

`MOVES` is complete: it says which event is allowed in which phase, and what the event does. `step` is pure; the clock
comes in as an argument. An event that repeats an earlier one changes nothing. An event that is out of turn raises
`WrongPhaseError` and changes nothing. The first effect of every change is `Persist`: the shell stores before it sends.

From the exchange on, a silo that is late or has lost its keys is set aside for the rest of the attempt, if at least
`Round.threshold` others stay (docs/design/sums.md, "Dropouts"). Anything that it sends then is out of
turn. The list of silos whose contributions are in a sum is fixed when the gathering ends. There is one list for each
tensor, also in later attempts at the same round, because no silo signs a second one. If a listed silo is gone for good,
the next attempt begins with voiding the list (docs/design/sums.md, "Voided lists").

A dispute ends the attempt. If the same silo disputes again in the study, the others go on without it, as if it were
lost: one silo alone cannot use up a study's attempts. Where all silos judge the same bytes (`state.JUDGED`), all are
heard first. If enough of them accept what was opened or solved, they go on without those that object. If several object
to a note, it lies at the silo that made the note. If too few accept an opened sum, those that refused it add the
uploads again. If enough of them state that it is spoilt, the attempt ends, and the round begins anew with other silos
(`core.blame`; docs/design/sums.md, "Spoilt sums"). Nobody is left out of the study whom a list names that may be open:
without that silo the round could not end.

Left to others: how a phase ends and what follows (`core.phases`), what the state says (`core.state`), who is invited
and what follows a round (`core.study`), bytes and signatures (`service`, and the silos).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from coordinator.core import vouching
from coordinator.core.events import (
    Added,
    Answered,
    Complained,
    Confirmed,
    Effect,
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
from coordinator.core.phases import Outcome, abort, acted, complain, end, enter, lose, rostered
from coordinator.core.state import (
    COLLECTED,
    COMPLAINED,
    CONFIRMED,
    ENDING,
    IN_PHASE,
    JUDGED,
    OVER,
    RELAYED,
    SPARING,
    Dataless,
    Examined,
    Listed,
    Objection,
    OfferedKeys,
    Phase,
    Refusal,
    Round,
    Seat,
    Stated,
)
from coordinator.errors import CoordinatorError
from crypto.errors import RosterRefused
from crypto.secagg.survivors import threshold
from protos.messages import RINGS, Complaint, Confirm, Member, Part, Signature, Upload, UploadHeader
from protos.steps import Note, Task

NO_DATA: Final = "no_data"
"""The one refusal that does not end a silo's part: its hospital may give the data later."""
COPIED: Final = "copied_keys"
"""The refusal of a silo that offers another silo's keys as its own. The coordinator states it."""
DATA_SECONDS: Final = 60.0
"""Pause until such a silo is asked again."""


class WrongPhaseError(CoordinatorError):
    """The event does not fit the phase. Nothing changed."""


def step(state: Round, event: Event, now: float) -> Outcome:
    """Return the next state and what the shell must do, in order. Raises `WrongPhaseError`."""
    move = MOVES.get((state.phase, type(event)))
    if move is None:
        msg = f"{type(event).__name__} does not fit the phase {state.phase}"
        raise WrongPhaseError(msg)
    after, effects = move(state, event, now)
    return (state, []) if after == state else (after, [Persist(), *effects])


def open_round(state: Round, now: float) -> Round:
    """Begin an attempt with its offer. An attempt that waits begins its offer again and keeps its seats."""
    return replace(state, phase=Phase.OFFER, since=now, why="")


def _answered(state: Round, event: Answered, now: float) -> Outcome:
    silo, answer = event.silo, event.answer
    if silo not in state.invited:
        msg = f"{silo} is not invited to this attempt"
        raise WrongPhaseError(msg)
    if silo not in state.unanswered:
        return state, []
    if answer.refusal == NO_DATA:
        dataless = (*(one for one in state.dataless if one.silo != silo), Dataless(silo, now + DATA_SECONDS))
        return _consider(replace(state, absent=state.absent | {silo}, dataless=dataless), now)
    state = _present(state, silo, now)
    if answer.member is None:
        refusal = Refusal(silo, answer.refusal, answer.explanation)
        return _consider(replace(state, refusals=(*state.refusals, refusal)), now)
    if owner := _owner(state, answer.member):
        why = f"it offers keys that {owner} has offered before, and only {owner} can have them"
        return _consider(replace(state, refusals=(*state.refusals, Refusal(silo, COPIED, why))), now)
    seats = sorted([*state.seats, Seat(answer.member, answer.session, answer.model)], key=lambda s: s.member.silo)
    return _consider(replace(state, seats=tuple(seats)), now)


def _owner(state: Round, member: Member) -> str:
    """Return the silo whose keys a member offers as its own; empty if they are its own.

    Others see a silo's keys in a roster, so the silo has offered them before. No honest silo goes on in a roster in
    which two have one key, and it could not say which of the two has copied.
    """
    mine = OfferedKeys.by(member)
    return next((one.silo for one in state.all_shown if mine.is_of(one)), "")


def _consider(state: Round, now: float) -> Outcome:
    """End the offer if its time is up, or if all present silos have answered and the seats suffice or never will."""
    due = now >= state.deadline
    if not due and not state.absent.issuperset(state.unanswered):
        return state, []
    lacking = state.lacking or _lacking_data(state)
    if not lacking:
        return _close_offer(state, now)
    if not state.unanswered or not state.possible:
        return abort(state, lacking, now)
    if not due:
        return state, []
    state = replace(state, absent=state.absent.union(state.unanswered))
    why = f"{lacking}; the round waits for {', '.join(state.unanswered)}"
    without = sorted(one.silo for one in state.dataless if one.silo in state.unanswered)
    if without:
        why += f" (no data yet: {', '.join(without)})"
    return replace(enter(state, Phase.WAIT, now), why=why), []


def _lacking_data(state: Round) -> str:
    """Say what the roster lacks without the silos that have no data yet; empty if nothing.

    Whoever is only away may never come back, and the attempt ends; a hospital that will give its data is waited for.
    """
    if not {one.silo for one in state.dataless}.intersection(state.unanswered):
        return ""
    try:
        needed = threshold(state.silos, state.colluders, state.min_silos)
    except RosterRefused:
        return ""
    return _too_few(state, needed) if len(state.seats) < needed else ""


def _too_few(state: Round, needed: int) -> str:
    return f"{len(state.seats)} silos take part, but {needed} of {state.silos} must sign who is in a sum"


def _close_offer(state: Round, now: float) -> Outcome:
    """Fix the roster. Silos that have not answered are away."""
    state = replace(state, model=state.expected, absent=state.absent.union(state.unanswered))
    try:
        state = replace(state, threshold=threshold(state.silos, state.colluders, state.min_silos))
    except RosterRefused as error:
        return abort(state, str(error), now)
    effects: list[Effect] = []
    if stranded := vouching.stranded(state):
        state = replace(state, seats=tuple(seat for seat in state.seats if seat.member.silo not in stranded))
        why = f"{', '.join(stranded)}: behind, and too few silos have signed the model of the last round to share it"
        effects.append(Lost(state.place, state.phase, stranded, why))
    if len(state.seats) < state.threshold:
        return abort(state, _too_few(state, state.threshold), now)
    return (enter(state, Phase.VOID, now) if state.voiding else rostered(state, now)), effects


def _with_part(state: Round, part: Part) -> Round:
    return replace(state, parts=tuple(sorted((*state.parts, part), key=lambda one: (one.kind, one.silo))))


def _noted(state: Round, header: UploadHeader) -> Round:
    return _with_part(state, Part(header.kind, header.silo, header.size, header.sha256))


_FETCHED_IN = {Phase.DEAL: Phase.TAKE, Phase.SHARE: Phase.CATCH_UP, Phase.SOLVE: Phase.ADOPT}
"""The phase that follows at once when the actor has sealed its note. The others fetch it there."""


def _relayed(state: Round, event: Uploaded, now: float) -> Outcome:
    """Take the note of the actor: keys, the model, or solved heads."""
    header, wanted = event.header, RELAYED[state.phase]
    if header.kind != wanted or header.silo != state.actor:
        msg = f"the phase {state.phase} waits for {state.actor}'s {wanted}"
        raise WrongPhaseError(msg)
    return enter(_noted(state, header), _FETCHED_IN[state.phase], now), []


def _collected(state: Round, event: Uploaded, now: float) -> Outcome:
    """Take one silo's note of a kind that every silo sends: a greeting, its shares, or its reveal for a tensor."""
    header, wanted = event.header, COLLECTED[state.phase]
    if header.kind != wanted or header.tensor is not state.tensor or header.silo not in state.present:
        msg = f"the phase {state.phase} waits for the {wanted} of the present silos"
        raise WrongPhaseError(msg)
    if header.silo in state.done:
        return state, []
    if header.kind == Note.REVEAL:
        state = _with_upload(state, event)
    return acted(_noted(state, header), header.silo, now)


def _gathered(state: Round, event: Uploaded, now: float) -> Outcome:
    header = event.header
    if header.kind not in RINGS or header.tensor is not state.tensor or header.silo not in state.present:
        msg = f"the phase {state.phase} gathers {state.tensor} from the participants"
        raise WrongPhaseError(msg)
    if header.silo not in state.done:
        state = _with_upload(state, event)
    return acted(state, header.silo, now)


def _with_upload(state: Round, event: Uploaded) -> Round:
    """Keep what a silo has signed of the current tensor, which others may have to judge."""
    if not event.signature:
        return state
    header = event.header
    sent = Upload(Part(header.kind, header.silo, header.size, header.sha256), event.signature)
    return replace(state, uploads=tuple(sorted((*state.uploads, sent), key=lambda one: one.part.silo)))


def _added(state: Round, event: Added, now: float) -> Outcome:
    tensor = state.tensors[state.cursor]
    opening = any(one.opening for one in state.listed if one.tensor is tensor)
    listed = (*(one for one in state.listed if one.tensor is not tensor), Listed(tensor, state.survivors, opening))
    return enter(replace(_with_part(state, event.total), listed=listed), Phase.SIGN, now), []


def _disputed(state: Round, event: Confirmed, now: float) -> Outcome:
    """Take a dispute. A present silo may say at any time that it cannot do its task."""
    silo, confirm = event.silo, event.confirm
    if silo not in state.present:
        msg = f"{silo} is not in the roster, or was set aside in this attempt"
        raise WrongPhaseError(msg)
    if not confirm.dispute:
        msg = f"the phase {state.phase} does not wait for {confirm.task}"
        raise WrongPhaseError(msg)
    return complain(_dropped(state, silo), silo, _words(silo, confirm), now)


def _dropped(state: Round, silo: str) -> Round:
    """Record that a silo has left the attempt: it has dropped its keys, so its next roster needs new ones."""
    return replace(state, dropped=state.dropped | {silo})


def _words(silo: str, confirm: Confirm) -> str:
    what = f"{confirm.task} of {confirm.tensor}" if confirm.tensor else str(confirm.task)
    return f"{silo} disputes {what}: {confirm.dispute}: {confirm.explanation}"


def _complained(state: Round, event: Complained, now: float) -> Outcome:
    """End the attempt because of what a silo has offered, sent or sealed for another. Nothing was uploaded yet.

    Nobody is set aside for having complained: if the evidence does not show who lied, it is one of the two. If it does,
    the others examine it first.
    """
    silo, confirm = event.silo, event.confirm
    due = confirm.task is COMPLAINED[state.phase] and silo in state.asked
    if not due or confirm.culprit not in state.names or confirm.culprit == silo:
        msg = f"{silo} has nothing to complain about in the phase {state.phase}"
        raise WrongPhaseError(msg)
    # Nobody can examine a note that is not there, whatever evidence comes with the complaint.
    there = any(part.kind == Note.SHARES and part.silo == confirm.culprit for part in state.parts)
    if not (event.liar and there):
        pair = tuple(sorted((silo, confirm.culprit)))
        why = f"{' and '.join(pair)} contradict each other, and one of them lies: {_words(silo, confirm)}"
        return abort(replace(state, blamed=pair), why, now)
    complaint = Complaint(silo, confirm.culprit, confirm.evidence, confirm.signature)
    examining = enter(replace(state, complaint=complaint, liar=event.liar), Phase.EXAMINE, now)
    return (examining, []) if examining.waiting_for else end(examining, now)


def _examined(state: Round, event: Confirmed, now: float) -> Outcome:
    """Take what a silo finds that examines a complaint, or that it cannot. The two themselves have no say."""
    if event.silo not in state.concerned or event.confirm.task is not Task.EXAMINE:
        msg = f"the phase {state.phase} waits for what others find who examine the complaint"
        raise WrongPhaseError(msg)
    return _confirmed(state, event, now)


def _objected(state: Round, silo: str, why: str, now: float, dispute: str = "") -> Outcome:
    """Record what a silo objects to. It has done its part; what follows is judged when all have been heard."""
    if silo in state.done:
        return state, []
    state = _dropped(state, silo)
    objections = sorted((*state.objections, Objection(silo, why, dispute)), key=lambda one: one.silo)
    return acted(replace(state, objections=tuple(objections)), silo, now)


def _confirmed(state: Round, event: Confirmed, now: float) -> Outcome:
    silo, confirm = event.silo, event.confirm
    step = IN_PHASE[state.phase]
    due = confirm.task is step.task and (not step.of_tensor or confirm.tensor is state.tensor)
    if silo not in state.concerned or not due or (confirm.dispute and state.phase not in JUDGED):
        return _disputed(state, event, now)
    if confirm.dispute:
        return _objected(state, silo, _words(silo, confirm), now, confirm.dispute)
    if silo in state.done:
        return state, []
    if state.phase is Phase.CATCH_UP and confirm.model != state.model:
        why = f"{silo} holds another model after {confirm.task} than the model of the last committed round"
        return _objected(state, silo, why, now)
    keep = _KEPT.get(state.phase)
    return acted(keep(state, event) if keep else state, silo, now)


def _voided(state: Round, event: Confirmed) -> Round:
    """A silo that has revealed for the list, and so cannot void it, signs nothing."""
    return _signed(state, event) if event.confirm.signature else state


def _signed(state: Round, event: Confirmed) -> Round:
    signatures = (*state.signatures, Signature(event.silo, event.confirm.signature))
    return replace(state, signatures=tuple(sorted(signatures, key=lambda one: one.silo)))


def _stated(state: Round, event: Confirmed) -> Round:
    stated = (*state.stated, Stated(event.silo, event.confirm.culprit, event.confirm.signature))
    return replace(state, stated=tuple(sorted(stated, key=lambda one: one.silo)))


def _found(state: Round, event: Confirmed) -> Round:
    found = (*state.examined, Examined(event.silo, event.confirm.culprit))
    return replace(state, examined=tuple(sorted(found, key=lambda one: one.silo)))


def _held(state: Round, event: Confirmed) -> Round:
    return replace(state, held=tuple(sorted((*state.held, vouching.held(event)), key=lambda one: one.silo)))


_KEPT: dict[Phase, Callable[[Round, Confirmed], Round]] = {
    Phase.VOID: _voided,
    Phase.CATCH_UP: vouching.joined,
    Phase.SIGN: _signed,
    Phase.OPEN: _held,
    Phase.RECOUNT: _stated,
    Phase.EXAMINE: _found,
    Phase.ADOPT: _held,
}
"""What the state keeps of a confirmation."""


def _restarted(state: Round, event: Restarted, now: float) -> Outcome:
    seat = next((seat for seat in state.seats if seat.member.silo == event.silo), None)
    if seat is None or seat.session == event.session or event.silo in state.lost:
        return state, []
    if state.phase in (Phase.OFFER, Phase.WAIT):
        seats = tuple(s for s in state.seats if s is not seat)
        return _present(replace(state, seats=seats), event.silo, now), []
    why = f"{event.silo} was restarted and has lost its keys"
    if state.phase in SPARING:
        return lose(state, (event.silo,), why, now)
    return abort(state, why, now, (event.silo,))


def _returned(state: Round, event: Returned, now: float) -> Outcome:
    if any(one.silo == event.silo and now < one.again for one in state.dataless):
        return state, []
    state = replace(state, dataless=tuple(one for one in state.dataless if one.silo != event.silo))
    return (_present(state, event.silo, now) if event.silo in state.absent else state), []


def _present(state: Round, silo: str, now: float) -> Round:
    """Record that a silo has called. The offer waits for it again. An attempt that waits for silos opens its offer."""
    state = replace(state, absent=state.absent - {silo})
    return open_round(state, now) if state.phase is Phase.WAIT else state


def _passed(state: Round, event: Passed, now: float) -> Outcome:  # noqa: ARG001  # the event carries nothing
    """Record that time has passed. Silos that are late are away from now on, but do not leave the study."""
    if now < state.deadline:
        return state, []
    if state.phase is Phase.OFFER:
        return _consider(state, now)
    late = state.waiting_for
    why = f"no {state.phase} from {', '.join(late) or 'the coordinator'} within {state.deadline - state.since:g} s"
    state = replace(state, absent=state.absent.union(late))
    if late and state.phase in SPARING:
        return lose(state, late, why, now)
    return abort(state, why, now, late)


def _revoked(state: Round, event: Revoked, now: float) -> Outcome:
    """Wait no longer for silos that nobody hears any more, as if their time were up."""
    gone = tuple(name for name in state.waiting_for if name in event.silos)
    if not gone:
        return state, []
    why = f"the certificate of {', '.join(gone)} was revoked"
    state = replace(state, absent=state.absent.union(gone))
    return lose(state, gone, why, now) if state.phase in SPARING else abort(state, why, now, gone)


def _nothing(state: Round, event: Restarted, now: float) -> Outcome:  # noqa: ARG001  # nothing comes of it
    """Change nothing: nobody needs keys to add uploads or to examine a complaint."""
    return state, []


def _heard(state: Round, event: Passed, now: float) -> Outcome:  # noqa: ARG001  # the event carries nothing
    """End the phase: those that have spoken may be enough, and silence here lies at nobody."""
    return (state, []) if now < state.deadline else end(state, now)


def _unheard(state: Round, event: Revoked, now: float) -> Outcome:
    """Go on without silos that nobody hears any more: their silence, too, lies at nobody."""
    gone = state.done.union(name for name in state.waiting_for if name in event.silos)
    if gone == state.done:
        return state, []
    state = replace(state, done=gone)
    return (state, []) if state.waiting_for else end(state, now)


def _stopped(state: Round, event: RoundStopped, now: float) -> Outcome:
    return abort(state, event.reason, now)


# Each move takes exactly the event type that it is listed under, but the type Callable cannot say so.
Move = Callable[[Round, Any, float], Outcome]
_LIVE = tuple(phase for phase in Phase if phase not in OVER)
MOVES: dict[tuple[Phase, type[Event]], Move] = {
    (Phase.OFFER, Answered): _answered,
    (Phase.WAIT, Answered): _answered,
    (Phase.GATHER, Uploaded): _gathered,
    (Phase.GATHER, Confirmed): _disputed,
    (Phase.ADD, Added): _added,
    **dict.fromkeys(((phase, Uploaded) for phase in RELAYED), _relayed),
    **dict.fromkeys(((phase, Confirmed) for phase in RELAYED), _disputed),
    **dict.fromkeys(((phase, Uploaded) for phase in COLLECTED), _collected),
    **dict.fromkeys(((phase, Confirmed) for phase in COLLECTED), _disputed),
    **dict.fromkeys(((phase, Confirmed) for phase in CONFIRMED), _confirmed),
    **dict.fromkeys(((phase, Complained) for phase in COMPLAINED), _complained),
    **dict.fromkeys(((phase, Restarted) for phase in _LIVE), _restarted),
    **dict.fromkeys(((phase, Returned) for phase in _LIVE), _returned),
    **dict.fromkeys(((phase, Passed) for phase in _LIVE if phase is not Phase.WAIT), _passed),
    **dict.fromkeys(((phase, Revoked) for phase in _LIVE if phase not in (Phase.OFFER, Phase.WAIT)), _revoked),
    **dict.fromkeys(((phase, RoundStopped) for phase in _LIVE), _stopped),
    **dict.fromkeys(((phase, Restarted) for phase in ENDING), _nothing),
    **dict.fromkeys(((phase, Passed) for phase in ENDING), _heard),
    **dict.fromkeys(((phase, Revoked) for phase in ENDING), _unheard),
    (Phase.EXAMINE, Confirmed): _examined,
}
