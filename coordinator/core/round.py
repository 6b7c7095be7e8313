"""One attempt at one round as a transition table.

offer (-> wait -> offer)* -> (void)* -> (greet -> deal -> take) -> (share -> catch up (-> judge)?)* -> exchange ->
check -> gather -> add -> sign -> reveal -> open (-> recount, the end) -> (solve -> adopt), from gather on once for
every tensor.

`MOVES` is complete: it says which event is allowed in which phase, and what the event does. `step` is pure; the clock
comes in as an argument. An event that repeats an earlier one changes nothing. An event that is out of turn raises
`OutOfTurnError` and changes nothing. The first effect of every change is `Persist`: the shell stores before it sends.

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

Left to others: what the state says (`core.state`), who is invited and what follows a round (`core.study`), bytes and
signatures (`service`, and the silos).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from coordinator.core import vouching
from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
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
    Stopped,
    Uploaded,
)
from coordinator.core.state import (
    ADDED,
    COLLECTED,
    CONFIRMED,
    JUDGED,
    OVER,
    RELAYED,
    SPARING,
    Dataless,
    Listed,
    Loss,
    Objection,
    Phase,
    Refusal,
    Round,
    Seat,
    Stated,
    Voided,
)
from coordinator.errors import CoordinatorError
from crypto.errors import RosterRefused
from crypto.secagg.spoilt import needed as proving
from crypto.secagg.survivors import threshold
from policies.plan.release import KINDS
from protos.messages import RINGS, Confirm, Note, Part, Signature, Spoilt, Upload, UploadHeader

NO_DATA: Final = "no_data"
"""The one refusal that does not end a silo's part: its hospital may give the data later."""
DATA_SECONDS: Final = 60.0
"""Pause until such a silo is asked again."""


class OutOfTurnError(CoordinatorError):
    """The event does not fit the phase. Nothing changed."""


Outcome = tuple[Round, list[Effect]]


def step(state: Round, event: Event, now: float) -> Outcome:
    """Return the next state and what the shell must do, in order. Raises `OutOfTurnError`."""
    move = MOVES.get((state.phase, type(event)))
    if move is None:
        msg = f"{type(event).__name__} does not fit the phase {state.phase}"
        raise OutOfTurnError(msg)
    after, effects = move(state, event, now)
    return (state, []) if after == state else (after, [Persist(), *effects])


def open_round(state: Round, now: float) -> Round:
    """Begin an attempt with its offer. An attempt that waits begins its offer again and keeps its seats."""
    return replace(state, phase=Phase.OFFER, since=now, why="")


# --- what moves have in common --------------------------------------------------------------------------------------
def _enter(state: Round, phase: Phase, now: float) -> Round:
    return replace(state, phase=phase, since=now, done=frozenset(), held=(), objections=())


def _abort(state: Round, why: str, now: float, culprits: tuple[str, ...] = ()) -> Outcome:
    return replace(_enter(state, Phase.ABORTED, now), why=why, culprits=culprits), [Clear(state.place)]


def _acted(state: Round, silo: str, now: float) -> Outcome:
    """Record that a silo has done its part. The last silo ends the phase."""
    state = replace(state, done=state.done | {silo})
    return (state, []) if state.waiting_for else _end(state, now)


def _with_part(state: Round, part: Part) -> Round:
    return replace(state, parts=tuple(sorted((*state.parts, part), key=lambda one: (one.kind, one.silo))))


def _noted(state: Round, header: UploadHeader) -> Round:
    return _with_part(state, Part(header.kind, header.silo, header.size, header.sha256))


def _set_aside(state: Round, silos: tuple[str, ...], why: str) -> tuple[Round, Effect]:
    losses = sorted((*state.losses, *(Loss(silo, why) for silo in silos)), key=lambda loss: loss.silo)
    return replace(state, losses=tuple(losses)), Lost(state.place, state.phase, silos, why)


def _spares(state: Round) -> bool:
    """Whether the current sum can do without a silo's work from now on.

    With distributed noise every silo's share of the noise must be in the sum. So nobody is spared before the list of
    the survivors is given out, unless the tensor's noise is local.
    """
    local = state.phase in (Phase.GATHER, Phase.ADD) and _is_local(state)
    return state.recovers or state.phase in ADDED or local


def _is_local(state: Round) -> bool:
    """Whether the current tensor's noise is local in every mode. The encoder's is not if it is its round's first sum.

    Then it is a sealed step (docs/design/sums.md, "Voided lists").
    """
    return state.cursor > 0 and KINDS[state.tensors[state.cursor]].local_noise


def _lose(state: Round, silos: tuple[str, ...], why: str, now: float) -> Outcome:
    """Handle silos that are late or have lost their keys: the others go on without them, or the attempt ends."""
    if not _spares(state):
        return _abort(state, f"{why}; with distributed noise a dropout aborts the attempt", now, silos)
    after, lost = _set_aside(state, silos, why)
    if len(after.present) < state.threshold:
        rest = f"{len(after.present)} silos are left, but {state.threshold} are needed to open the sums"
        return _abort(state, f"{why}; {rest}", now, silos)
    if state.phase is Phase.SOLVE:
        return (_enter(after, Phase.SOLVE, now) if state.actor in silos else after), [lost]
    if after.waiting_for or state.phase is Phase.ADD:
        return after, [lost]
    after, effects = _end(after, now)
    return after, [lost, *effects]


# --- how phases end -------------------------------------------------------------------------------------------------
def _end(state: Round, now: float) -> Outcome:
    """Go on to the next phase of the plan, because all silos that the phase waits for have acted."""
    if state.phase is Phase.JUDGE:
        return _weighed(state, now)
    if state.phase is Phase.CATCH_UP and state.objections:
        judging = _enter(vouching.doubted(state), Phase.JUDGE, now)
        return (judging, []) if judging.judges else _weighed(judging, now)
    judged = state.objections and state.phase is not Phase.RECOUNT
    return _judged(state, now) if judged else _ENDS[state.phase](state, now)


def _keyed(state: Round, now: float) -> Round:
    """Go on when the whole roster has its keys. Silos that are behind catch up before anything is summed."""
    return _enter(state, Phase.SHARE if state.behind else Phase.EXCHANGE, now)


def _voided_all(state: Round, now: float) -> Outcome:
    """Close the list if enough silos promise to open nothing of it. If not, it may be open, and stays for ever."""
    tensor = state.voiding[0]
    if len(state.signatures) < state.threshold:
        why = (
            f"{len(state.signatures)} silos can void the list of {', '.join(state.list_of(tensor))} for the {tensor} of"
            f" this round, but {state.threshold} would have to; the others have revealed for it"
        )
        return _abort(state, why, now)
    fresh = Voided(tensor, state.promised)
    state = replace(
        state,
        voided=(*(one for one in state.voided if one.tensor is not tensor), fresh),
        listed=tuple(one for one in state.listed if one.tensor is not tensor),
        voiding=state.voiding[1:],
        signatures=(),
    )
    return (_enter(state, Phase.VOID, now) if state.voiding else _rostered(state, now)), []


def _rostered(state: Round, now: float) -> Round:
    """Go on with the roster's keys, which it may have already."""
    return _keyed(state, now) if state.members == state.keyed else _enter(state, Phase.GREET, now)


def _gather(state: Round, now: float) -> Outcome:
    """Begin gathering with the silos that are present, or only with the survivors that an earlier attempt listed."""
    tensor = state.tensors[state.cursor]
    listed = state.list_of(tensor) or state.present
    effects: list[Effect] = []
    if missing := set(listed).difference(state.present):
        return _unlisted(state, missing, now)
    if state.losses and not (state.recovers or _is_local(state)):
        gone = tuple(sorted(state.lost))
        return _abort(state, f"{', '.join(gone)} cannot be missing from the {tensor} with distributed noise", now, gone)
    if spare := tuple(name for name in state.present if name not in listed):
        why = f"{', '.join(spare)}: not in the list of survivors that an earlier attempt gave out for the {tensor}"
        state, lost = _set_aside(state, spare, why)
        effects.append(lost)
    return _enter(replace(state, participants=state.present), Phase.GATHER, now), effects


def _gathered_all(state: Round, now: float) -> Outcome:
    """List the silos whose contributions have arrived. If an earlier attempt made a list, this one must be equal."""
    tensor, survivors = state.tensors[state.cursor], tuple(sorted(state.done))
    if missing := set(state.list_of(tensor)).difference(survivors):
        return _unlisted(state, missing, now)
    state = replace(state, survivors=survivors)
    return _enter(state, Phase.ADD, now), [Add(state.place, tensor, survivors)]


def _unlisted(state: Round, missing: set[str], now: float) -> Outcome:
    """End the attempt, because silos are missing without which no list of this tensor is signed."""
    why = (
        f"an earlier attempt gave out a list of survivors for the {state.tensors[state.cursor]} of this round that also"
        f" names {', '.join(sorted(missing))}; only that list can be signed"
    )
    return _abort(_leave_out(state, missing & state.repeated), why, now, tuple(sorted(missing)))


def _signed_all(state: Round, now: float) -> Outcome:
    """Have the silos reveal. From now on some may have revealed for the list."""
    signed = tuple(replace(one, opening=True) if one.tensor is state.tensor else one for one in state.listed)
    return _enter(replace(state, listed=signed), Phase.REVEAL, now), []


def _recounted(state: Round, now: float) -> Outcome:
    """End the attempt. If enough silos state the same of the sum, that is the proof that it is spoilt."""
    proof = _proof(state)
    if proof is None:
        said = "; ".join(one.why for one in state.objections) or "they do not state that it is spoilt"
        why = f"{', '.join(state.refusers)} refuse the sum of {state.tensors[state.cursor]}: {said}"
        return _abort(state, why, now)
    stated = ", ".join(one.silo for one in proof.statements)
    why = f"a member spoilt the sum of {proof.tensor} of {', '.join(proof.names)}, as {stated} state"
    if proof.culprit:
        why = f"what {proof.culprit} has signed spoilt the sum of {proof.tensor}, as {stated} state"
    return _abort(replace(state, spoilt=proof), why, now)


def _proof(state: Round) -> Spoilt | None:
    """Return the statements about the sum on which enough silos agree; None if there are not enough."""
    culprits = sorted({one.culprit for one in state.stated})
    groups = [[one for one in state.stated if one.culprit == culprit] for culprit in culprits]
    agreed = max(groups, key=len, default=[])
    if len(agreed) < proving(state.colluders):
        return None
    pems = {member.silo: member.certificate_pem for member in state.members}
    return Spoilt(
        state.place.attempt,
        state.tensors[state.cursor],
        state.survivors,
        state.statement("").sum,
        agreed[0].culprit,
        tuple(Signature(one.silo, one.signature) for one in agreed),
        tuple(pems[one.silo] for one in agreed),
    )


def _settle(state: Round, now: float) -> Outcome:
    """Settle the model when all present silos have opened or adopted.

    The model that most of them hold is the round's model. Silos that hold another model are set aside. "Most" means at
    least the threshold, which is more than half of the roster, so there is at most one such model.
    """
    held = {one.silo: one.model for one in state.held if one.silo not in state.lost}
    models = list(held.values())
    model = max(sorted(set(models)), key=models.count)
    apart = tuple(silo for silo in held if held[silo] != model)
    if apart and models.count(model) < state.threshold:
        why = f"the silos hold different models after {state.phase}; in the minority: {', '.join(apart)}"
        return _abort(state, why, now)
    effects: list[Effect] = []
    if apart:
        state, lost = _set_aside(state, apart, f"{', '.join(apart)}: another model than most silos after {state.phase}")
        effects.append(lost)
    state = replace(state, model=model)
    if state.phase is Phase.OPEN and state.tensor is not None and KINDS[state.tensor].solved:
        return _enter(state, Phase.SOLVE, now), effects
    if state.cursor + 1 < len(state.tensors):
        # The participants have the shares of all tensors. Nothing else of one tensor is needed for the next.
        state = replace(state, cursor=state.cursor + 1, parts=(), survivors=(), signatures=(), uploads=())
        state, spared = _gather(state, now)
        return state, [*effects, *spared]
    state = replace(state, vouches=vouching.vouched(state))
    return _enter(state, Phase.COMMITTED, now), [*effects, Clear(state.place)]


_ENDS: dict[Phase, Callable[[Round, float], Outcome]] = {
    Phase.VOID: _voided_all,
    Phase.GREET: lambda state, now: (_enter(state, Phase.DEAL, now), []),
    Phase.TAKE: lambda state, now: (_keyed(state, now), []),
    Phase.CATCH_UP: lambda state, now: (_enter(state, Phase.EXCHANGE, now), []),
    Phase.EXCHANGE: lambda state, now: (_enter(state, Phase.CHECK, now), []),
    Phase.CHECK: _gather,
    Phase.GATHER: _gathered_all,
    Phase.SIGN: _signed_all,
    Phase.REVEAL: lambda state, now: (_enter(state, Phase.OPEN, now), []),
    Phase.OPEN: _settle,
    Phase.RECOUNT: _recounted,
    Phase.ADOPT: _settle,
}
"""What follows when all silos that a phase waits for have acted and nobody objects."""


# --- moves ----------------------------------------------------------------------------------------------------------
def _answered(state: Round, event: Answered, now: float) -> Outcome:
    silo, answer = event.silo, event.answer
    if silo not in state.invited:
        msg = f"{silo} is not invited to this attempt"
        raise OutOfTurnError(msg)
    if silo not in state.unanswered:
        return state, []
    if answer.refusal == NO_DATA:
        dataless = (*(one for one in state.dataless if one.silo != silo), Dataless(silo, now + DATA_SECONDS))
        return _consider(replace(state, absent=state.absent | {silo}, dataless=dataless), now)
    state = _present(state, silo, now)
    if answer.member is None:
        refusal = Refusal(silo, answer.refusal, answer.explanation)
        return _consider(replace(state, refusals=(*state.refusals, refusal)), now)
    seats = sorted([*state.seats, Seat(answer.member, answer.session, answer.model)], key=lambda s: s.member.silo)
    return _consider(replace(state, seats=tuple(seats)), now)


def _consider(state: Round, now: float) -> Outcome:
    """End the offer if its time is up, or if all present silos have answered and the seats suffice or never will."""
    due = now >= state.deadline
    if not due and not state.absent.issuperset(state.unanswered):
        return state, []
    lacking = state.lacking or _lacking_data(state)
    if not lacking:
        return _close_offer(state, now)
    if not state.unanswered or not state.possible:
        return _abort(state, lacking, now)
    if not due:
        return state, []
    state = replace(state, absent=state.absent.union(state.unanswered))
    why = f"{lacking}; the round waits for {', '.join(state.unanswered)}"
    without = sorted(one.silo for one in state.dataless if one.silo in state.unanswered)
    if without:
        why += f" (no data yet: {', '.join(without)})"
    return replace(_enter(state, Phase.WAIT, now), why=why), []


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
        return _abort(state, str(error), now)
    effects: list[Effect] = []
    if stranded := vouching.stranded(state):
        state = replace(state, seats=tuple(seat for seat in state.seats if seat.member.silo not in stranded))
        why = f"{', '.join(stranded)}: behind, and too few silos have signed the model of the last round to share it"
        effects.append(Lost(state.place, state.phase, stranded, why))
    if len(state.seats) < state.threshold:
        return _abort(state, _too_few(state, state.threshold), now)
    return (_enter(state, Phase.VOID, now) if state.voiding else _rostered(state, now)), effects


def _relayed(state: Round, event: Uploaded, now: float) -> Outcome:
    """Take the note of the actor: keys, the model, or solved heads."""
    header, (wanted, following) = event.header, RELAYED[state.phase]
    if header.kind != wanted or header.silo != state.actor:
        msg = f"the phase {state.phase} waits for {state.actor}'s {wanted}"
        raise OutOfTurnError(msg)
    return _enter(_noted(state, header), following, now), []


def _collected(state: Round, event: Uploaded, now: float) -> Outcome:
    """Take one silo's note of a kind that every silo sends: a greeting, its shares, or its reveal for a tensor."""
    header, wanted = event.header, COLLECTED[state.phase]
    if header.kind != wanted or header.tensor is not state.tensor or header.silo not in state.present:
        msg = f"the phase {state.phase} waits for the {wanted} of the present silos"
        raise OutOfTurnError(msg)
    return (state, []) if header.silo in state.done else _acted(_noted(state, header), header.silo, now)


def _gathered(state: Round, event: Uploaded, now: float) -> Outcome:
    header = event.header
    if header.kind not in RINGS or header.tensor is not state.tensor or header.silo not in state.present:
        msg = f"the phase {state.phase} gathers {state.tensor} from the participants"
        raise OutOfTurnError(msg)
    if event.signature and header.silo not in state.done:
        sent = Upload(Part(header.kind, header.silo, header.size, header.sha256), event.signature)
        uploads = sorted((*state.uploads, sent), key=lambda one: one.part.silo)
        state = replace(state, uploads=tuple(uploads))
    return _acted(state, header.silo, now)


def _added(state: Round, event: Added, now: float) -> Outcome:
    tensor = state.tensors[state.cursor]
    opening = any(one.opening for one in state.listed if one.tensor is tensor)
    listed = (*(one for one in state.listed if one.tensor is not tensor), Listed(tensor, state.survivors, opening))
    return _enter(replace(_with_part(state, event.total), listed=listed), Phase.SIGN, now), []


def _disputed(state: Round, event: Confirmed, now: float) -> Outcome:
    """Take a dispute. A present silo may say at any time that it cannot do its task."""
    silo, confirm = event.silo, event.confirm
    if silo not in state.present:
        msg = f"{silo} is not in the roster, or was set aside in this attempt"
        raise OutOfTurnError(msg)
    if not confirm.dispute:
        msg = f"the phase {state.phase} does not wait for {confirm.task}"
        raise OutOfTurnError(msg)
    return _complain(_dropped(state, silo), silo, _words(silo, confirm), now)


def _dropped(state: Round, silo: str) -> Round:
    """Record that a silo has left the attempt: it has dropped its keys, so its next roster needs new ones."""
    return replace(state, dropped=state.dropped | {silo})


def _words(silo: str, confirm: Confirm) -> str:
    what = f"{confirm.task} of {confirm.tensor}" if confirm.tensor else str(confirm.task)
    return f"{silo} disputes {what}: {confirm.dispute}: {confirm.explanation}"


def _complain(state: Round, silo: str, why: str, now: float) -> Outcome:
    """End the attempt because of a dispute that lies at one silo. If one has before, the others go on without it.

    They do so at once if the phase can spare a silo and enough others stay, else from the next attempt on.
    """
    if silo not in state.complaints:
        return _abort(replace(state, complaints=tuple(sorted((*state.complaints, silo)))), why, now, (silo,))
    why += "; it has disputed before, so the others go on without it"
    state = replace(state, repeated=state.repeated | {silo})
    after, effects = _lose(state, (silo,), why, now) if state.phase in SPARING else _abort(state, why, now, (silo,))
    return (_leave_out(after, {silo}) if after.phase is Phase.ABORTED else after), effects


def _complained(state: Round, event: Complained, now: float) -> Outcome:
    """End the attempt because of what a silo has sealed for another. Nothing was uploaded yet.

    Nobody is set aside for having complained: if the evidence does not show who lied, it is one of the two.
    """
    silo, confirm = event.silo, event.confirm
    due = confirm.task is CONFIRMED[state.phase] and silo in state.present and silo not in state.done
    if not due or confirm.culprit not in state.names or confirm.culprit == silo:
        msg = f"{silo} has nothing to complain about in the phase {state.phase}"
        raise OutOfTurnError(msg)
    if not event.liar:
        pair = tuple(sorted((silo, confirm.culprit)))
        why = f"{' and '.join(pair)} contradict each other, and one of them lies: {_words(silo, confirm)}"
        return _abort(replace(state, blamed=pair), why, now)
    why = f"{event.liar} has dealt wrong shares to {silo}, as the key of its note shows to everybody"
    if event.liar == silo:
        why = f"{silo} complained falsely about {confirm.culprit}, as the key of that note shows to everybody"
    return _abort(replace(state, blamed=(event.liar,)), why, now)


def _leave_out(state: Round, silos: set[str] | frozenset[str]) -> Round:
    """Leave silos out of the study from the next attempt on, but for those without which the round cannot end."""
    needed = {name for one in state.listed if one.opening for name in one.silos}
    return replace(state, left_out=state.left_out.union(silos - needed))


def _objected(state: Round, silo: str, why: str, now: float, dispute: str = "") -> Outcome:
    """Record what a silo objects to. It has done its part; what follows is judged when all have been heard."""
    if silo in state.done:
        return state, []
    state = _dropped(state, silo)
    objections = sorted((*state.objections, Objection(silo, why, dispute)), key=lambda one: one.silo)
    return _acted(replace(state, objections=tuple(objections)), silo, now)


def _judged(state: Round, now: float) -> Outcome:
    """Judge what silos object to, after all have been heard."""
    objections = [one for one in state.objections if one.silo in state.present]
    against, why = tuple(one.silo for one in objections), "; ".join(one.why for one in objections)
    content = [name for name in state.present if name not in against]
    state = replace(state, objections=())
    if not against:
        return _end(state, now)
    if state.phase in ADDED and len(content) >= state.threshold:
        state, lost = _set_aside(state, against, why)
        state, effects = _settle(state, now)
        return state, [lost, *effects]
    if state.phase is Phase.OPEN and len(against) >= proving(state.colluders) and state.given:
        return replace(_enter(state, Phase.RECOUNT, now), refusers=against), []
    if len(against) == 1:
        return _complain(state, against[0], why, now)
    return _against_actor(state, content, why, now) if state.actor else _abort(state, why, now)


def _against_actor(state: Round, content: list[str], why: str, now: float) -> Outcome:
    """Let another silo solve, if several object to the actor's heads. Else the attempt ends because of its note."""
    if state.phase is Phase.ADOPT:
        after, lost = _set_aside(state, tuple(sorted({*content, state.actor})), why)
        if len(after.present) >= state.threshold:
            unsolved = tuple(part for part in after.parts if part.kind != Note.HEADS)
            return _enter(replace(after, parts=unsolved), Phase.SOLVE, now), [lost]
    return _complain(state, state.actor, f"several silos object to what {state.actor} has made: {why}", now)


def _weighed(state: Round, now: float) -> Outcome:
    """Draw the conclusion from what those say who hold the model that somebody refuses (`core.vouching`).

    If enough have signed that the note is false, it was, and who made it leaves the study. If all say that it is right,
    it lies at who refuses it. Otherwise nobody can tell, and another silo shares.
    """
    said, sharer, doubts = vouching.verdict(state), state.actor, state.doubts
    refused = "; ".join(one.why for one in doubts)
    if len(said.false) > state.colluders:
        why = f"{sharer} has shared a false model, as {', '.join(said.false)} have signed, who hold the right one"
        named = _leave_out(vouching.passed_over(state), {sharer})
        return _abort(named, f"{why}; {refused}", now, (sharer,))
    if said.right and not said.false:
        fine = f"{refused}; {', '.join(said.right)} hold the model that {sharer} shared"
        if len(doubts) == 1:
            return _complain(state, doubts[0].silo, fine, now)
        return _abort(state, fine, now, tuple(one.silo for one in doubts))
    after = vouching.passed_over(state)
    if after.sharers:
        return _enter(after, Phase.SHARE, now), []
    return _abort(after, f"{refused}; it lies at {sharer} or at who refuses, and nobody else can share", now, (sharer,))


def _confirmed(state: Round, event: Confirmed, now: float) -> Outcome:
    silo, confirm = event.silo, event.confirm
    concerned = {Phase.CATCH_UP: state.behind, Phase.RECOUNT: state.refusers}.get(state.phase, state.present)
    if state.phase is Phase.JUDGE:
        concerned = state.judges
    of_tensor = state.phase in (Phase.VOID, Phase.SIGN, Phase.OPEN, Phase.RECOUNT)
    due = confirm.task is CONFIRMED[state.phase] and (not of_tensor or confirm.tensor is state.tensor)
    if confirm.dispute and silo in concerned and due and state.phase in (*JUDGED, Phase.RECOUNT):
        return _objected(state, silo, _words(silo, confirm), now, confirm.dispute)
    if confirm.dispute or silo not in concerned or not due:
        return _disputed(state, event, now)
    if silo in state.done:
        return state, []
    if state.phase is Phase.CATCH_UP and confirm.model != state.model:
        why = f"{silo} holds another model after {confirm.task} than the model of the last committed round"
        return _objected(state, silo, why, now)
    if state.phase is Phase.CATCH_UP:
        state = vouching.joined(state, event)
    if state.phase is Phase.SIGN or (state.phase is Phase.VOID and confirm.signature):
        signatures = sorted((*state.signatures, Signature(silo, confirm.signature)), key=lambda one: one.silo)
        state = replace(state, signatures=tuple(signatures))
    if state.phase is Phase.RECOUNT:
        stated = (*state.stated, Stated(silo, confirm.culprit, confirm.signature))
        state = replace(state, stated=tuple(sorted(stated, key=lambda one: one.silo)))
    if state.phase in (Phase.OPEN, Phase.ADOPT):
        held = sorted((*state.held, vouching.held(event)), key=lambda one: one.silo)
        state = replace(state, held=tuple(held))
    return _acted(state, silo, now)


def _restarted(state: Round, event: Restarted, now: float) -> Outcome:
    if state.phase is Phase.RECOUNT:  # it needs no keys
        return state, []
    seat = next((seat for seat in state.seats if seat.member.silo == event.silo), None)
    if seat is None or seat.session == event.session or event.silo in state.lost:
        return state, []
    if state.phase in (Phase.OFFER, Phase.WAIT):
        seats = tuple(s for s in state.seats if s is not seat)
        return _present(replace(state, seats=seats), event.silo, now), []
    why = f"{event.silo} was restarted and has lost its keys"
    if state.phase in SPARING:
        return _lose(state, (event.silo,), why, now)
    return _abort(state, why, now, (event.silo,))


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
    if state.phase is Phase.RECOUNT:  # those that have spoken may be enough, and silence here lies at nobody
        return _recounted(state, now)
    late = state.waiting_for
    why = f"no {state.phase} from {', '.join(late) or 'the coordinator'} within {state.deadline - state.since:g} s"
    state = replace(state, absent=state.absent.union(late))
    if late and state.phase in SPARING:
        return _lose(state, late, why, now)
    return _abort(state, why, now, late)


def _revoked(state: Round, event: Revoked, now: float) -> Outcome:
    """Wait no longer for silos that nobody hears any more, as if their time were up."""
    gone = tuple(name for name in state.waiting_for if name in event.silos)
    if not gone:
        return state, []
    if state.phase is Phase.RECOUNT:
        state = replace(state, done=state.done.union(gone))
        return (state, []) if state.waiting_for else _recounted(state, now)
    why = f"the certificate of {', '.join(gone)} was revoked"
    state = replace(state, absent=state.absent.union(gone))
    return _lose(state, gone, why, now) if state.phase in SPARING else _abort(state, why, now, gone)


def _stopped(state: Round, event: Stopped, now: float) -> Outcome:
    return _abort(state, event.reason, now)


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
    **dict.fromkeys(((phase, Complained) for phase in (Phase.TAKE, Phase.CHECK)), _complained),
    **dict.fromkeys(((phase, Restarted) for phase in _LIVE), _restarted),
    **dict.fromkeys(((phase, Returned) for phase in _LIVE), _returned),
    **dict.fromkeys(((phase, Passed) for phase in _LIVE if phase is not Phase.WAIT), _passed),
    **dict.fromkeys(((phase, Revoked) for phase in _LIVE if phase not in (Phase.OFFER, Phase.WAIT)), _revoked),
    **dict.fromkeys(((phase, Stopped) for phase in _LIVE), _stopped),
}
