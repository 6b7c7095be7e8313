"""What a round asks of one silo, and what the silo may send and fetch now. Pure; the engine calls it under its lock."""

from __future__ import annotations

from typing import Literal

from coordinator.core import study as studies
from coordinator.core.round import OutOfTurnError
from coordinator.core.state import ADDED, COLLECTED, CONFIRMED, RELAYED, SUMMING, Phase, Round
from coordinator.core.study import Life, Progress
from coordinator.storage.spool import SUM_FILE
from crypto.rings import rings
from crypto.secagg import layout
from crypto.secagg.dealt.bundles import signed
from crypto.secagg.dealt.complaints import Complaint
from crypto.secagg.survivors import AttemptRef, roster_digest
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.bounds import sentence
from protos.messages import RINGS, SUM, Confirm, Note, Part, Task, Tensor, Upload, UploadHeader, Vouch, Work, note_slot

TASKS = {
    Phase.OFFER: Task.DECIDE,
    Phase.GREET: Task.GREET,
    Phase.DEAL: Task.DEAL,
    Phase.SHARE: Task.SHARE,
    Phase.EXCHANGE: Task.EXCHANGE,
    Phase.GATHER: Task.CONTRIBUTE,
    Phase.REVEAL: Task.REVEAL,
    Phase.SOLVE: Task.SOLVE,
    **CONFIRMED,
}
FETCHED: dict[Phase, tuple[str, ...]] = {
    Phase.DEAL: (Note.GREETING,),
    Phase.TAKE: (Note.GREETING, Note.KEYS),
    Phase.CATCH_UP: (Note.MODEL,),
    Phase.CHECK: (Note.SHARES,),
    Phase.EXAMINE: (Note.SHARES,),
    Phase.JUDGE: (Note.MODEL,),
    Phase.GATHER: (Note.SHARES,),
    Phase.OPEN: (SUM, Note.REVEAL),
    Phase.ADOPT: (Note.HEADS,),
}
"""The kinds that can be fetched in a phase, if they were sent. Shares are kept only until the first tensor is done."""
OF_TENSOR = (SUM, Note.REVEAL)
"""The kinds that are fetched by the name of their tensor."""
_OUTCOMES: dict[Life, Literal["finished", "ended", "aborted"]] = {
    Life.FINISHED: "finished",
    Life.ENDED: "ended",
    Life.ABORTED: "aborted",
}


def work_in(progress: Progress, silo: str, *, told: bool) -> Work | None:
    """Return what one study asks of one silo now. `told`: the silo knows that the study is over for it."""
    round_ = progress.round
    mine = next((s for s in progress.silos if s.name == silo), None)
    if mine is None or round_ is None:
        return None
    if progress.life in studies.OVER or mine.why:
        outcome = "left" if mine.why else _OUTCOMES.get(progress.life, "ended")
        lost = round_.why_lost(silo)
        why = mine.why or (f"{progress.why}; the last round went on without {silo}: {lost}" if lost else progress.why)
        return None if told else Work(Task.FINISH, round_.place, why=sentence(why), outcome=outcome)
    if progress.life is Life.PAUSED or silo not in round_.asked:
        return None
    return Work(
        task=TASKS[round_.phase],
        place=round_.place,
        tensor=round_.tensor,
        roster=round_.members,
        actor=round_.actor,
        parts=parts_in(round_),
        participants=_participants(round_),
        survivors=round_.survivors if round_.phase in (*ADDED, Phase.RECOUNT) else (),
        signatures=round_.signatures if round_.phase is Phase.REVEAL else (),
        void=round_.void_of(round_.tensor) if round_.phase is Phase.GATHER and round_.tensor else None,
        uploads=_uploads(round_),
        spoilt=round_.spoilt if round_.phase is Phase.OFFER else None,
        vouches=_vouches(round_) if round_.phase is Phase.CATCH_UP else (),
        complaint=round_.complaint if round_.phase is Phase.EXAMINE else None,
        why=sentence(progress.script.name),
    )


def _participants(round_: Round) -> tuple[str, ...]:
    if round_.phase is Phase.CHECK:
        return round_.present
    return round_.participants if round_.phase in (*SUMMING, Phase.RECOUNT) else ()


def _uploads(round_: Round) -> tuple[Upload, ...]:
    """Return what silos have signed, for those that judge it: their reveals, or what they contributed to a sum."""
    if round_.phase is Phase.OPEN:
        return round_.revealed
    return round_.given if round_.phase is Phase.RECOUNT else ()


def _vouches(round_: Round) -> tuple[Vouch, ...]:
    return tuple(Vouch(one.silo, one.certificate_pem, one.signature) for one in round_.vouches)


def parts_in(round_: Round) -> tuple[Part, ...]:
    """Return what can be fetched in the current phase. Of the shares these are only the participants'."""
    kinds = FETCHED.get(round_.phase, ())
    givers = _participants(round_) if round_.phase in (Phase.CHECK, Phase.GATHER) else ("", *round_.names)
    if round_.phase is Phase.EXAMINE and round_.complaint is not None:
        givers = (round_.complaint.owner,)
    return tuple(part for part in round_.parts if part.kind in kinds and part.silo in givers)


def check_upload(round_: Round, study: Study, header: UploadHeader) -> None:
    """Refuse an upload that no phase waits for, or whose size is not the size in this study.

    Raises `OutOfTurnError`, ValueError.
    """
    check_present(round_, header.silo)
    if header.tensor is None or header.kind == Note.REVEAL:
        _check_note(round_, study, header)
    else:
        _check_tensor(round_, study, header, header.tensor)


def check_present(round_: Round, silo: str) -> None:
    """Raise `OutOfTurnError` if a silo is not in the roster or was set aside."""
    if silo not in round_.present:
        msg = f"{silo} {'was set aside in this attempt' if silo in round_.lost else 'is not in the roster'}"
        raise OutOfTurnError(msg)


def check_fetch(round_: Round, silo: str, tensor: Tensor | None, kind: str, of_silo: str) -> tuple[str, str]:
    """Return slot and file name of what a present silo of the roster may fetch now. Raises `OutOfTurnError`."""
    check_present(round_, silo)
    given = tuple(one.part for one in round_.given) if round_.phase is Phase.RECOUNT else ()
    due = any((part.kind, part.silo) == (kind, of_silo) for part in (*parts_in(round_), *given))
    if not due or (kind in (*OF_TENSOR, *RINGS) and tensor is not round_.tensor):
        msg = f"in the phase {round_.phase} there is no {kind} of {of_silo or 'the coordinator'} for {silo} to fetch"
        raise OutOfTurnError(msg)
    if kind == SUM:
        return str(tensor), SUM_FILE
    if kind in RINGS:
        return str(tensor), of_silo
    return note_slot(kind, round_.tensor if kind in OF_TENSOR else None), of_silo


def liar_of(round_: Round, silo: str, confirm: Confirm, note: bytes) -> str:
    """Return who lied, a silo that complains with evidence about shares, or the owner of the note that holds them."""
    return complaint_of(silo, confirm).liar(note, map(str, round_.tensors), round_.names)


def complaint_of(silo: str, confirm: Confirm) -> Complaint:
    """Return what a silo signs that complains with evidence."""
    place = confirm.place
    return Complaint.read(place.study, (place.round, place.attempt), confirm.culprit, silo, confirm.evidence)


def signed_note(round_: Round, study: Study, header: UploadHeader, note: bytes) -> tuple[bytes, bytes]:
    """Return what the sender of a shares note has to have signed in it, and its signature.

    Without this check a silo could send a note whose upload it has signed, and which no reader accepts: the readers
    would dispute it, each against itself. Raises `RecoveryRefused` for a malformed note.
    """
    place = header.place
    own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in round_.members)
    attempt = AttemptRef(place.study, roster_digest(place.study, own), place.round, place.attempt)
    tensors = list(map(str, round_.tensors))
    return signed(note, header.silo, attempt, tensors, round_.names, quorum.needed(study))


def _check_note(round_: Round, study: Study, header: UploadHeader) -> None:
    phase = round_.phase
    wanted = COLLECTED.get(phase) or RELAYED.get(phase, (None, None))[0]
    if header.kind != wanted or header.silo not in round_.asked or header.tensor is not _note_tensor(round_):
        msg = f"the phase {phase} waits for no such note from {header.silo}"
        raise OutOfTurnError(msg)
    limit = note_limit(study, header.place.round, header.kind)
    if header.size > limit:
        msg = f"the note has {header.size} bytes, but at most {limit} are relayed"
        raise ValueError(msg)


def _note_tensor(round_: Round) -> Tensor | None:
    return round_.tensor if round_.phase is Phase.REVEAL else None


def _check_tensor(round_: Round, study: Study, header: UploadHeader, tensor: Tensor) -> None:
    if round_.phase is not Phase.GATHER or round_.tensor is not tensor:
        msg = f"the phase {round_.phase} does not gather {tensor}"
        raise OutOfTurnError(msg)
    ring = rings.ring_of(plan(study).ring(tensor))
    values = layout.sealed_values(plan(study).release(header.place.round, tensor).values, len(study.silos))
    size = ring.content_size(values)
    if (header.kind, header.values, header.size) != (ring.kind, values, size):
        msg = (
            f"{tensor} of this study has {values} values in {size} bytes of {ring.kind}, but the header announces "
            f"{header.values} values in {header.size} bytes of {header.kind}"
        )
        raise ValueError(msg)
