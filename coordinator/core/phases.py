"""How the phases of an attempt end, and what follows: the next phase of the plan, or the end of the attempt.

`core.round` says what each event changes. Whatever ends a phase comes here: all silos have acted (`acted`), a silo is
lost (`lose`), or a dispute lies at one silo (`complain`). The tables `_ENDS` and `_OBJECTED` say what follows. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator.core import vouching
from coordinator.core.events import Add, Clear, Effect, Lost
from coordinator.core.state import ADDED, JUDGED, SPARING, Loss, Phase, Round, Voided
from crypto.secagg.spoilt import needed as proving
from policies.plan.release import KINDS
from protos.messages import Signature, Spoilt
from protos.steps import Note

Outcome = tuple[Round, list[Effect]]


def enter(state: Round, phase: Phase, now: float) -> Round:
    """Begin a phase, in which nobody has acted yet."""
    return replace(state, phase=phase, since=now, done=frozenset(), held=(), objections=())


def abort(state: Round, why: str, now: float, culprits: tuple[str, ...] = ()) -> Outcome:
    """End the attempt. `culprits`: the silos at which it ends."""
    return replace(enter(state, Phase.ABORTED, now), why=why, culprits=culprits), [Clear(state.place)]


def acted(state: Round, silo: str, now: float) -> Outcome:
    """Record that a silo has done its part. The last silo ends the phase."""
    state = replace(state, done=state.done | {silo})
    return (state, []) if state.waiting_for else end(state, now)


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


def lose(state: Round, silos: tuple[str, ...], why: str, now: float) -> Outcome:
    """Handle silos that are late or have lost their keys: the others go on without them, or the attempt ends."""
    if not _spares(state):
        return abort(state, f"{why}; with distributed noise a dropout aborts the attempt", now, silos)
    after, lost = _set_aside(state, silos, why)
    if len(after.present) < state.threshold:
        rest = f"{len(after.present)} silos are left, but {state.threshold} are needed to open the sums"
        return abort(state, f"{why}; {rest}", now, silos)
    if state.phase is Phase.SOLVE:
        return (enter(after, Phase.SOLVE, now) if state.actor in silos else after), [lost]
    if after.waiting_for or state.phase is Phase.ADD:
        return after, [lost]
    after, effects = end(after, now)
    return after, [lost, *effects]


def end(state: Round, now: float) -> Outcome:
    """Go on to the next phase of the plan, because all silos that the phase waits for have acted."""
    if state.objections and state.phase in JUDGED:
        return _OBJECTED.get(state.phase, _judged)(state, now)
    return _ENDS[state.phase](state, now)


def _keyed(state: Round, now: float) -> Round:
    """Go on when the whole roster has its keys. Silos that are behind catch up before anything is summed."""
    return enter(state, Phase.SHARE if state.behind else Phase.EXCHANGE, now)


def _voided_all(state: Round, now: float) -> Outcome:
    """Close the list if enough silos promise to open nothing of it. If not, it may be open, and stays for ever."""
    tensor = state.voiding[0]
    if len(state.signatures) < state.threshold:
        why = (
            f"{len(state.signatures)} silos can void the list of {', '.join(state.list_of(tensor))} for the {tensor} of"
            f" this round, but {state.threshold} would have to; the others have revealed for it"
        )
        return abort(state, why, now)
    fresh = Voided(tensor, state.promised)
    state = replace(
        state,
        voided=(*(one for one in state.voided if one.tensor is not tensor), fresh),
        listed=tuple(one for one in state.listed if one.tensor is not tensor),
        voiding=state.voiding[1:],
        signatures=(),
    )
    return (enter(state, Phase.VOID, now) if state.voiding else rostered(state, now)), []


def rostered(state: Round, now: float) -> Round:
    """Go on with the roster's keys, which it may have already."""
    return _keyed(state, now) if state.members == state.keyed else enter(state, Phase.GREET, now)


def _gather(state: Round, now: float) -> Outcome:
    """Begin gathering with the silos that are present, or only with the survivors that an earlier attempt listed."""
    tensor = state.tensors[state.cursor]
    listed = state.list_of(tensor) or state.present
    effects: list[Effect] = []
    if missing := set(listed).difference(state.present):
        return _unlisted(state, missing, now)
    if state.losses and not (state.recovers or _is_local(state)):
        gone = tuple(sorted(state.lost))
        return abort(state, f"{', '.join(gone)} cannot be missing from the {tensor} with distributed noise", now, gone)
    if spare := tuple(name for name in state.present if name not in listed):
        why = f"{', '.join(spare)}: not in the list of survivors that an earlier attempt gave out for the {tensor}"
        state, lost = _set_aside(state, spare, why)
        effects.append(lost)
    return enter(replace(state, participants=state.present), Phase.GATHER, now), effects


def _gathered_all(state: Round, now: float) -> Outcome:
    """List the silos whose contributions have arrived. If an earlier attempt made a list, this one must be equal."""
    tensor, survivors = state.tensors[state.cursor], tuple(sorted(state.done))
    if missing := set(state.list_of(tensor)).difference(survivors):
        return _unlisted(state, missing, now)
    state = replace(state, survivors=survivors)
    return enter(state, Phase.ADD, now), [Add(state.place, tensor, survivors)]


def _unlisted(state: Round, missing: set[str], now: float) -> Outcome:
    """End the attempt, because silos are missing without which no list of this tensor is signed."""
    why = (
        f"an earlier attempt gave out a list of survivors for the {state.tensors[state.cursor]} of this round that also"
        f" names {', '.join(sorted(missing))}; only that list can be signed"
    )
    return abort(_leave_out(state, missing & state.repeated), why, now, tuple(sorted(missing)))


def _signed_all(state: Round, now: float) -> Outcome:
    """Have the silos reveal. From now on some may have revealed for the list."""
    signed = tuple(replace(one, opening=True) if one.tensor is state.tensor else one for one in state.listed)
    return enter(replace(state, listed=signed), Phase.REVEAL, now), []


def _recounted(state: Round, now: float) -> Outcome:
    """End the attempt. If enough silos state the same of the sum, that is the proof that it is spoilt."""
    proof = _proof(state)
    if proof is None:
        said = "; ".join(one.why for one in state.objections) or "they do not state that it is spoilt"
        why = f"{', '.join(state.refusers)} refuse the sum of {state.tensors[state.cursor]}: {said}"
        return abort(state, why, now)
    stated = ", ".join(one.silo for one in proof.statements)
    why = f"a member spoilt the sum of {proof.tensor} of {', '.join(proof.names)}, as {stated} state"
    if proof.culprit:
        why = f"what {proof.culprit} has signed spoilt the sum of {proof.tensor}, as {stated} state"
    return abort(replace(state, spoilt=proof), why, now)


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
    least the threshold, which is more than half of the roster, so there is at most one such model. If fewer hold it,
    the attempt ends. If they are still more than may be hostile, and the others are not, an honest silo is among them,
    and the attempt ends at the others.
    """
    gone = state.lost
    held = {one.silo: one.model for one in state.held if one.silo not in gone}
    models = list(held.values())
    model = max(sorted(set(models)), key=models.count)
    apart = tuple(silo for silo in held if held[silo] != model)
    if apart and models.count(model) < state.threshold:
        why = f"the silos hold different models after {state.phase}; in the minority: {', '.join(apart)}"
        sure = models.count(model) > state.colluders >= len(apart)
        return abort(state, why, now, apart if sure else ())
    effects: list[Effect] = []
    if apart:
        state, lost = _set_aside(state, apart, f"{', '.join(apart)}: another model than most silos after {state.phase}")
        effects.append(lost)
    state = replace(state, model=model)
    if state.phase is Phase.OPEN and state.tensor is not None and KINDS[state.tensor].solved:
        return enter(state, Phase.SOLVE, now), effects
    if state.cursor + 1 < len(state.tensors):
        # The shares are those of all tensors. Nothing else of one tensor is needed for the next.
        shares = tuple(part for part in state.parts if part.kind == Note.SHARES)
        state = replace(state, cursor=state.cursor + 1, parts=shares, survivors=(), signatures=(), uploads=())
        state, spared = _gather(state, now)
        return state, [*effects, *spared]
    state = replace(state, vouches=vouching.vouched(state))
    return enter(state, Phase.COMMITTED, now), [*effects, Clear(state.place)]


def complain(state: Round, silo: str, why: str, now: float) -> Outcome:
    """End the attempt because of a dispute that lies at one silo. If one has before, the others go on without it.

    They do so at once if the phase can spare a silo and enough others stay, else from the next attempt on.
    """
    if silo not in state.complaints:
        return abort(replace(state, complaints=tuple(sorted((*state.complaints, silo)))), why, now, (silo,))
    why += "; it has disputed before, so the others go on without it"
    state = replace(state, repeated=state.repeated | {silo})
    after, effects = lose(state, (silo,), why, now) if state.phase in SPARING else abort(state, why, now, (silo,))
    return (_leave_out(after, {silo}) if after.phase is Phase.ABORTED else after), effects


def _leave_out(state: Round, silos: set[str] | frozenset[str]) -> Round:
    """Leave silos out of the study from the next attempt on, but for those without which the round cannot end."""
    needed = {name for one in state.listed if one.opening for name in one.silos}
    return replace(state, left_out=state.left_out.union(silos - needed))


def _judged(state: Round, now: float) -> Outcome:
    """Judge what silos object to, after all have been heard."""
    present = state.present
    objections = [one for one in state.objections if one.silo in present]
    against, why = tuple(one.silo for one in objections), "; ".join(one.why for one in objections)
    content = [name for name in state.present if name not in against]
    state = replace(state, objections=())
    if not against:
        return end(state, now)
    if state.phase in ADDED and len(content) >= state.threshold:
        state, lost = _set_aside(state, against, why)
        state, effects = _settle(state, now)
        return state, [lost, *effects]
    if state.phase is Phase.OPEN and len(against) >= proving(state.colluders) and state.given:
        return replace(enter(state, Phase.RECOUNT, now), refusers=against), []
    if len(against) == 1:
        return complain(state, against[0], why, now)
    return _against_actor(state, content, why, now) if state.actor else abort(state, why, now)


def _doubted(state: Round, now: float) -> Outcome:
    """Ask those who hold the model whether the note is false that somebody refuses."""
    judging = enter(vouching.doubted(state), Phase.JUDGE, now)
    return (judging, []) if judging.judges else _weighed(judging, now)


def _against_actor(state: Round, content: list[str], why: str, now: float) -> Outcome:
    """Let another silo solve, if several object to the actor's heads. Else the attempt ends because of its note."""
    if state.phase is Phase.ADOPT:
        after, lost = _set_aside(state, tuple(sorted({*content, state.actor})), why)
        if len(after.present) >= state.threshold:
            unsolved = tuple(part for part in after.parts if part.kind != Note.HEADS)
            return enter(replace(after, parts=unsolved), Phase.SOLVE, now), [lost]
    return complain(state, state.actor, f"several silos object to what {state.actor} has made: {why}", now)


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
        return abort(named, f"{why}; {refused}", now, (sharer,))
    if said.right and not said.false:
        fine = f"{refused}; {', '.join(said.right)} hold the model that {sharer} shared"
        if len(doubts) == 1:
            return complain(state, doubts[0].silo, fine, now)
        return abort(state, fine, now, tuple(one.silo for one in doubts))
    after = vouching.passed_over(state)
    if after.sharers:
        return enter(after, Phase.SHARE, now), []
    return abort(after, f"{refused}; it lies at {sharer} or at who refuses, and nobody else can share", now, (sharer,))


def _examined_all(state: Round, now: float) -> Outcome:
    """End the attempt by the name of who lied, unless more silos find otherwise than may be hostile."""
    complaint = state.complaint
    if complaint is None:
        return abort(state, "there is no complaint to examine", now)
    found = {one.silo: one.liar for one in state.examined}
    alike = [silo for silo, liar in found.items() if liar == state.liar]
    unlike = [silo for silo, liar in found.items() if liar != state.liar]
    if len(unlike) > state.colluders:
        pair = tuple(sorted((complaint.silo, complaint.owner)))
        why = f"{' and '.join(pair)} contradict each other; {', '.join(unlike)} find another liar than the coordinator"
        return abort(replace(state, blamed=pair), why, now)
    why = f"{complaint.owner} has dealt wrong shares to {complaint.silo}, as the key of its note shows to everybody"
    if state.liar == complaint.silo:
        why = f"{complaint.silo} complained falsely about {complaint.owner}, as the key of that note shows to everybody"
    checked = f"; {', '.join(alike)} examined it" if alike else ""
    return abort(replace(state, blamed=(state.liar,)), why + checked, now)


_ENDS: dict[Phase, Callable[[Round, float], Outcome]] = {
    Phase.VOID: _voided_all,
    Phase.GREET: lambda state, now: (enter(state, Phase.DEAL, now), []),
    Phase.TAKE: lambda state, now: (_keyed(state, now), []),
    Phase.CATCH_UP: lambda state, now: (enter(state, Phase.EXCHANGE, now), []),
    Phase.JUDGE: _weighed,
    Phase.EXCHANGE: lambda state, now: (enter(state, Phase.CHECK, now), []),
    Phase.CHECK: _gather,
    Phase.EXAMINE: _examined_all,
    Phase.GATHER: _gathered_all,
    Phase.SIGN: _signed_all,
    Phase.REVEAL: lambda state, now: (enter(state, Phase.OPEN, now), []),
    Phase.OPEN: _settle,
    Phase.RECOUNT: _recounted,
    Phase.ADOPT: _settle,
}
"""What follows when all silos that a phase waits for have acted and nobody objects."""
_OBJECTED: dict[Phase, Callable[[Round, float], Outcome]] = {
    Phase.CATCH_UP: _doubted,
    Phase.JUDGE: _weighed,
    Phase.EXAMINE: _examined_all,
    Phase.RECOUNT: _recounted,
}
"""What follows when silos object, where it is not what follows in every other phase: `_judged`."""
