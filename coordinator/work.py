"""What a round asks of one silo, and what the silo may send and fetch now. Pure: the engine asks under its lock."""

from __future__ import annotations

from typing import Literal

from coordinator.adding import ring_of
from coordinator.core import study as studies
from coordinator.core.round import CONFIRMED, RELAYED, OutOfTurnError, Phase, Round
from coordinator.core.study import Life, Progress
from coordinator.spool import SUM
from policies import shapes
from policies.study import Study
from protos.messages import Note, Task, Tensor, UploadHeader, Work

SUM_KIND = "sum"
"""How a silo asks for a sum, beside the kinds of notes."""
MAX_NOTE = 4 << 20
"""Bytes of a relayed note: wrapped keys for 256 silos, or the largest heads a study may ask for."""
MAX_MODEL = 16 << 20
"""Bytes of a relayed model beside its values: wrapped keys, priors, names."""
VALUE_BYTES = 8

TASKS = {
    Phase.OFFER: Task.DECIDE,
    Phase.DEAL: Task.DEAL,
    Phase.SHARE: Task.SHARE,
    Phase.GATHER: Task.CONTRIBUTE,
    Phase.SOLVE: Task.SOLVE,
    **CONFIRMED,
}
FETCHED = {Phase.OPEN: SUM_KIND, **{following: str(note) for note, following in RELAYED.values()}}
"""What there is to fetch in a phase."""
_OUTCOMES: dict[Life, Literal["finished", "ended", "aborted"]] = {
    Life.FINISHED: "finished",
    Life.ENDED: "ended",
    Life.ABORTED: "aborted",
}


def work_in(progress: Progress, silo: str, *, told: bool) -> Work | None:
    """What one study asks of one silo now. `told`: the silo knows that the study is over for it."""
    round_ = progress.round
    mine = next((s for s in progress.silos if s.name == silo), None)
    if mine is None or round_ is None:
        return None
    if progress.life in studies.OVER or mine.why:
        outcome = "left" if mine.why else _OUTCOMES.get(progress.life, "ended")
        return None if told else Work(Task.FINISH, round_.place, why=mine.why or progress.why, outcome=outcome)
    if progress.life is Life.PAUSED or silo not in round_.asked:
        return None
    kind = FETCHED.get(round_.phase)
    fetched = round_.total if kind == SUM_KIND else round_.note if kind else None
    return Work(
        task=TASKS[round_.phase],
        place=round_.place,
        tensor=round_.tensor,
        roster=round_.members,
        actor=round_.actor if round_.phase in RELAYED or kind in set(Note) else "",
        size=fetched.size if fetched else 0,
        sha256=fetched.sha256 if fetched else "",
        why=progress.script.name,
    )


def check_upload(round_: Round, study: Study, header: UploadHeader) -> None:
    """Refuse an upload that nobody waits for, or whose size the study does not imply.

    Raises `OutOfTurnError`, ValueError.
    """
    if header.silo not in round_.names:
        msg = f"{header.silo} is not in the roster"
        raise OutOfTurnError(msg)
    if header.tensor is None:
        _check_note(round_, study, header)
    else:
        _check_tensor(round_, study, header, header.tensor)


def check_fetch(round_: Round, silo: str, tensor: Tensor | None, kind: str) -> tuple[str, str]:
    """Slot and file name of what a silo of the roster may fetch now. Raises `OutOfTurnError`."""
    due = kind == FETCHED.get(round_.phase) and (kind != SUM_KIND or tensor is round_.tensor)
    if silo not in round_.names or not due:
        msg = f"in the phase {round_.phase} there is no {kind} for {silo} to fetch"
        raise OutOfTurnError(msg)
    return (str(tensor), SUM) if kind == SUM_KIND else (f"note-{kind}", round_.actor)


def note_limit(study: Study, note: str) -> int:
    """Bytes that a note may have: the model grows with the study, keys and heads have one bound."""
    if note != Note.MODEL:
        return MAX_NOTE
    heads = len(study.data.domains) * shapes.head_width(study)
    return MAX_MODEL + VALUE_BYTES * (shapes.encoder_values(study) + heads)


def _check_note(round_: Round, study: Study, header: UploadHeader) -> None:
    wanted, _ = RELAYED.get(round_.phase, (None, None))
    if header.kind != wanted or header.silo != round_.actor:
        msg = f"the phase {round_.phase} waits for no such note from {header.silo}"
        raise OutOfTurnError(msg)
    limit = note_limit(study, header.kind)
    if header.size > limit:
        msg = f"the note has {header.size} bytes, at most {limit} are relayed"
        raise ValueError(msg)


def _check_tensor(round_: Round, study: Study, header: UploadHeader, tensor: Tensor) -> None:
    if round_.phase is not Phase.GATHER or round_.tensor is not tensor:
        msg = f"the phase {round_.phase} does not gather {tensor}"
        raise OutOfTurnError(msg)
    values = shapes.values(study, header.place.round, tensor)
    size = ring_of(tensor).content_size(values)
    if (header.values, header.size) != (values, size):
        msg = (
            f"{tensor} of this study has {values} values in {size} bytes; "
            f"{header.values} values in {header.size} bytes were announced"
        )
        raise ValueError(msg)
