"""What a round asks of one silo, and what the silo may send and fetch now. Pure; the engine calls it under its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from coordinator.core import study as studies
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import Phase, Round
from coordinator.core.study import Life, Progress
from coordinator.storage.spool import SUM_FILE
from crypto.rings import rings
from crypto.secagg import layout
from crypto.secagg.dealt.bundles import signed
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.dealt.slices import Layout, SliceForm, letter_form
from crypto.secagg.survivors import AttemptRef, roster_digest
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.bounds import sentence
from protos.messages import RINGS, Confirm, Part, Tensor, Upload, UploadHeader, Vouch, Work, note_slot
from protos.steps import OF_TENSOR, SUM, Note, Task, Who

_OUTCOMES: dict[Life, Literal["finished", "ended", "aborted"]] = {
    Life.FINISHED: "finished",
    Life.ENDED: "ended",
    Life.ABORTED: "aborted",
}


def asked_in(progress: Progress) -> frozenset[str]:
    """Return the silos to which `work_in` gives something, unless they know it already."""
    round_ = progress.round
    if round_ is None:
        return frozenset()
    if progress.life in studies.OVER:
        return frozenset(one.name for one in progress.silos)
    left = frozenset(one.name for one in progress.silos if one.why)
    if progress.life is Life.PAUSED or round_.step is None:
        return left
    return left.union(round_.asked)


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
    step = round_.step
    if progress.life is Life.PAUSED or step is None or silo not in round_.asked:
        return None
    return Work(
        task=step.task,
        place=round_.place,
        tensor=round_.tensor,
        roster=() if step.who is Who.INVITED else round_.members,
        actor=round_.actor,
        parts=parts_in(round_),
        why=sentence(progress.script.name),
        **{field: given(round_) for field, given in _FIELDS.items() if field in step.carries},
    )


def _participants(round_: Round) -> tuple[str, ...]:
    return round_.present if round_.phase is Phase.CHECK else round_.participants


def _uploads(round_: Round) -> tuple[Upload, ...]:
    """Return what silos have signed, for those that judge it: their reveals, or what they contributed to a sum."""
    return round_.revealed if round_.phase is Phase.OPEN else round_.given


def _vouches(round_: Round) -> tuple[Vouch, ...]:
    return tuple(Vouch(one.silo, one.certificate_pem, one.signature) for one in round_.vouches)


_FIELDS: Final[dict[str, Callable[[Round], Any]]] = {
    "participants": _participants,
    "survivors": lambda round_: round_.survivors,
    "signatures": lambda round_: round_.signatures,
    "void": lambda round_: round_.tensor and round_.void_of(round_.tensor),
    "uploads": _uploads,
    "spoilt": lambda round_: round_.spoilt,
    "vouches": _vouches,
    "complaint": lambda round_: round_.complaint,
}
"""What the state says of the fields that only some steps carry (`protos.steps`)."""


def parts_in(round_: Round) -> tuple[Part, ...]:
    """Return what the work of the current phase names. For a complaint that is the one note that it is about."""
    kinds = round_.step.fetches if round_.step else ()
    givers: tuple[str, ...] = ("", *round_.names)
    if round_.phase is Phase.EXAMINE and round_.complaint is not None:
        givers = (round_.complaint.owner,)
    among = frozenset(givers)
    return tuple(part for part in round_.parts if part.kind in kinds and part.silo in among)


def check_upload(round_: Round, study: Study, header: UploadHeader) -> None:
    """Refuse an upload that no phase waits for, or whose size is not the size in this study.

    Raises `WrongPhaseError`, ValueError.
    """
    check_present(round_, header.silo)
    if header.tensor is None or header.kind == Note.REVEAL:
        _check_note(round_, study, header)
    else:
        _check_tensor(round_, study, header, header.tensor)


def check_present(round_: Round, silo: str) -> None:
    """Raise `WrongPhaseError` if a silo is not in the roster or was set aside."""
    if silo not in round_.present:
        msg = f"{silo} {'was set aside in this attempt' if silo in round_.lost else 'is not in the roster'}"
        raise WrongPhaseError(msg)


def check_fetch(
    round_: Round, silo: str, tensor: Tensor | None, kind: str, of_silos: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """Return slot and file name of what a present silo of the roster may fetch now, by the silo whose it is.

    Raises `WrongPhaseError`.
    """
    check_present(round_, silo)
    given = tuple(one.part for one in round_.given) if round_.phase is Phase.RECOUNT else ()
    due = {part.silo for part in (*parts_in(round_), *given, *_by_owner(round_)) if part.kind == kind}
    for of_silo in of_silos:
        if of_silo not in due or (kind in (*OF_TENSOR, *RINGS) and tensor is not round_.tensor):
            whose = of_silo or "the coordinator"
            msg = f"in the phase {round_.phase} there is no {kind} of {whose} for {silo} to fetch"
            raise WrongPhaseError(msg)
    if kind == SUM:
        return {"": (str(tensor), SUM_FILE)}
    slot = str(tensor) if kind in RINGS else note_slot(kind, round_.tensor if kind in OF_TENSOR else None)
    return {of_silo: (slot, of_silo) for of_silo in of_silos}


def _by_owner(round_: Round) -> tuple[Part, ...]:
    """Return the notes of the kinds that are fetched by their owners' names: of shares those of the participants."""
    kinds, among = round_.step.by_owner if round_.step else (), frozenset(_participants(round_))
    return tuple(
        part for part in round_.parts if part.kind in kinds and (part.silo in among or part.kind != Note.SHARES)
    )


def forms_of(round_: Round, kind: str, owners: Iterable[str]) -> dict[str, SliceForm]:
    """Return where the slices lie in a greeting or shares note of each of these members."""
    circle = round_.circle
    if kind == Note.GREETING:
        return {owner: letter_form(circle.later(owner)) for owner in owners}
    return {owner: Layout.of(map(str, round_.tensors), circle.holders(owner)).form for owner in owners}


def liar_of(round_: Round, silo: str, confirm: Confirm, note: bytes) -> str:
    """Return who lied, a silo that complains with evidence about shares, or the owner of the note that holds them."""
    holders = round_.circle.holders(confirm.culprit)
    return complaint_of(silo, confirm).liar(note, map(str, round_.tensors), holders)


def complaint_of(silo: str, confirm: Confirm) -> ShareComplaint:
    """Return what a silo signs that complains with evidence."""
    place = confirm.place
    return ShareComplaint.read(place.study, (place.round, place.attempt), confirm.culprit, silo, confirm.evidence)


def signed_note(round_: Round, study: Study, header: UploadHeader, note: bytes) -> tuple[bytes, bytes]:
    """Return what the sender of a shares note has to have signed in it, and its signature.

    Without this check a silo could send a note whose upload it has signed, and which no reader accepts: the readers
    would dispute it, each against itself. Raises `RecoveryRefused` for a malformed note.
    """
    place = header.place
    own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in round_.members)
    attempt = AttemptRef(place.study, roster_digest(place.study, own), place.round, place.attempt)
    tensors = list(map(str, round_.tensors))
    holders, needed = round_.circle.holders(header.silo), round_.circle.shares(quorum.needed(study))
    return signed(note, header.silo, attempt, tensors, holders, needed)


def _check_note(round_: Round, study: Study, header: UploadHeader) -> None:
    step = round_.step
    wanted, tensor = (step.note, round_.tensor if step.of_tensor else None) if step else (None, None)
    if header.kind != wanted or header.silo not in round_.asked or header.tensor is not tensor:
        msg = f"the phase {round_.phase} waits for no such note from {header.silo}"
        raise WrongPhaseError(msg)
    limit = note_limit(study, header.place.round, header.kind)
    if header.size > limit:
        msg = f"the note has {header.size} bytes, but at most {limit} are relayed"
        raise ValueError(msg)


def _check_tensor(round_: Round, study: Study, header: UploadHeader, tensor: Tensor) -> None:
    if round_.phase is not Phase.GATHER or round_.tensor is not tensor:
        msg = f"the phase {round_.phase} does not gather {tensor}"
        raise WrongPhaseError(msg)
    ring = rings.ring_of(plan(study).ring(tensor))
    values = layout.sealed_values(plan(study).release(header.place.round, tensor).values, len(study.silos))
    size = ring.content_size(values)
    if (header.kind, header.values, header.size) != (ring.kind, values, size):
        msg = (
            f"{tensor} of this study has {values} values in {size} bytes of {ring.kind}, but the header announces "
            f"{header.values} values in {header.size} bytes of {header.kind}"
        )
        raise ValueError(msg)
