"""A study as others see it: the operator's status, ended phases, gauges. Pure, except that `measure` sets gauges.

Guarantees: a silo's text goes to others as a sentence (`protos.bounds`), whatever version of the coordinator stored it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from coordinator.core import missed
from coordinator.core import study as studies
from coordinator.core.blame import known
from coordinator.core.events import Clear, Effect
from coordinator.core.slowness import Taken
from coordinator.core.state import OVER, Phase, Round
from coordinator.core.study import InvitedSilo, Life, Progress
from coordinator.metrics import CoordinatorMetrics
from coordinator.storage.shortage import Shortage
from protos.bounds import sentence
from protos.messages import Place, Tensor
from protos.status import MemberStatus, PhaseTime, StudyStatus

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Texts = TypeVar("_Texts", bound="DataclassInstance")

_BRIEF = 200
_NO_DATA = "it has no data for the study yet; the hospital may give it some (`fedward-silo study approve`)"

AWAY, NO_DATA, BUSY = "away", "no data", "busy"
HEARD_SECONDS: Final = 30.0
"""An agent calls every ten seconds. Whoever has called within this time is not away."""
_CALLS = "it calls, but did not answer in time: it computes, or waits for this coordinator's next offer"
_SLOW = (
    "{} attempts have ended at its silence, so it is not asked until two more rounds are committed;"
    " `fedward-coordinator study forgive` asks it again"
)


def describe(progress: Progress, seen: Mapping[str, float], now: float, cut_off: Collection[str] = ()) -> StudyStatus:
    """Describe a study without its history. `seen`: when each silo last called, in seconds since the epoch as `now`.

    A silo that is not waited for any more, but has called just now, is not silent: it has no data, or is busy. Those
    that are `cut_off`, because their certificates were revoked, have called for the last time.
    """
    round_, script = progress.round, progress.script
    return StudyStatus(
        study=script.study,
        name=script.name,
        state=progress.life,
        why=sentence(_standing(progress)),
        round=round_.place.round if round_ else 0,
        rounds=len(script.tensors) - 1,
        attempt=round_.place.attempt if round_ else 0,
        phase=round_.phase if round_ else "",
        tensor=round_.tensor if round_ else None,
        since=round_.since if round_ else 0.0,
        until=_until(progress),
        waiting_for=_waiting_for(progress),
        members=tuple(
            _member(progress, silo, seen.get(silo.name, 0.0), _heard(silo, seen, now, cut_off))
            for silo in progress.silos
        ),
    )


def _until(progress: Progress) -> float:
    """When the phase waits no more; 0 if nothing ends it, as while the study is paused."""
    round_ = progress.round
    if round_ is None or progress.life is not Life.RUNNING:
        return 0.0
    ends = round_.deadline
    return ends if math.isfinite(ends) else 0.0


def _standing(progress: Progress) -> str:
    last = missed.until(progress.missed)
    if progress.life is not Life.WAITING or not last:
        return progress.why
    by = ", ".join(f"{silo} by {datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC" for silo, time in last)
    return f"{progress.why}; who is not back in time has left the study: {by}"


def _heard(silo: InvitedSilo, seen: Mapping[str, float], now: float, cut_off: Collection[str]) -> bool:
    """Whether a silo has called so short a time ago that it is there."""
    return silo.name not in cut_off and now - seen.get(silo.name, 0.0) <= HEARD_SECONDS


def _member(progress: Progress, silo: InvitedSilo, seen: float, heard: bool) -> MemberStatus:  # noqa: FBT001  # private
    taken, round_ = progress.slowness.of(silo.name), progress.round
    aside = not silo.why and silo.name not in progress.asked
    state, why = _state(silo, round_, progress.aside), _why(silo, round_, progress)
    if state == AWAY and heard:
        state, why = (NO_DATA, why) if _without_data(silo, round_) else (BUSY, why or _CALLS)
    return MemberStatus(
        silo.name,
        state,
        sentence(why or (_SLOW.format(taken.attempts) if aside else "")),
        seen,
        slow_seconds=taken.seconds,
        slow_budget=progress.budget,
        lost_attempts=taken.attempts,
        set_aside=aside,
    )


def short(status: StudyStatus, shortage: Shortage | None) -> StudyStatus:
    """Return the status of a study that waits until its coordinator's machine has what it lacks, if it lacks anything.

    It is for operators: the sentence names files of the coordinator.
    """
    if shortage is None or status.state != Life.RUNNING:
        return status
    return replace(status, why=sentence(f"no time passes while the coordinator's machine is short: {shortage.told}"))


def brief(status: StudyStatus) -> StudyStatus:
    """Return a status with short texts, so that a list of many studies fits a message."""
    members = tuple(replace(member, why=sentence(member.why, _BRIEF)) for member in status.members)
    return replace(status, members=members)


def in_sentences(progress: Progress) -> Progress:
    """Return a study whose stored texts are sentences: an older version stored what silos wrote at any length."""
    silos = tuple(_in_sentences(silo, "why") for silo in progress.silos)
    round_ = progress.round
    if round_ is not None:
        refusals = tuple(_in_sentences(one, "explanation") for one in round_.refusals)
        losses = tuple(_in_sentences(one, "why") for one in round_.losses)
        round_ = replace(round_, why=sentence(round_.why), refusals=refusals, losses=losses)
    return replace(progress, silos=silos, why=sentence(progress.why), round=round_)


def _in_sentences(value: _Texts, field: str) -> _Texts:
    """Return the value itself if its text is a sentence, so that nothing seems to have changed."""
    text = getattr(value, field)
    short_ = sentence(text)
    return value if short_ == text else replace(value, **{field: short_})


def ended_phases(before: Progress, after: Progress, effects: Sequence[Effect], now: float) -> list[PhaseTime]:
    """Return the phase that a change ended, if any, with the seconds that it lasted by the study's own clock."""
    old, new = before.round, after.round
    if old is None or old.phase in OVER or new is None:
        return []
    same = (new.place, new.phase, new.cursor, new.actor) == (old.place, old.phase, old.cursor, old.actor)
    if same and not _clears(effects):
        return []
    seconds = before.clock(now) - old.since
    return [PhaseTime(old.place.round, old.place.attempt, old.phase, old.tensor, seconds)]


SHORT: Final = 12
"""Digits of a study's digest in logs and metrics, here and at the silos."""


def ended_attempt(
    before: Progress, after: Progress, effects: Sequence[Effect]
) -> Literal["committed", "aborted"] | None:
    """Return the outcome of the attempt that a change ended, or None if it ended none."""
    if before.round is None or not _clears(effects):
        return None
    further = after.round is not None and after.round.place.round > before.round.place.round
    return "committed" if further or after.life is Life.FINISHED else "aborted"


def newly_signed(before: Progress, after: Progress) -> tuple[Place, Tensor, tuple[str, ...]] | None:
    """Return the sum whose list of survivors enough silos have signed by this change, with that list; else None.

    From here on silos may reveal, so the sum may be opened, whatever becomes of the attempt.
    """
    then, now = before.round, after.round
    if then is None or now is None or then.place != now.place or then.tensor is None or then.phase is not Phase.SIGN:
        return None
    signed = any(one.opening for one in now.listed if one.tensor is then.tensor)
    return (now.place, then.tensor, then.survivors) if signed and now.phase is not Phase.SIGN else None


def measure(
    metrics: CoordinatorMetrics, all_studies: Collection[Progress], changed: tuple[Progress, Progress] | None = None
) -> None:
    """Set the gauges of all studies, or of the one that has `changed` (before, after), which is one of them."""
    lives = [progress.life for progress in all_studies]
    for life in Life:
        metrics.studies.labels(life).set(lives.count(life))
    for progress in all_studies if changed is None else changed[1:]:
        study = progress.script.study[:SHORT]
        metrics.info.labels(study, progress.script.name).set(1)
        if progress.round is not None:
            metrics.round.labels(study).set(progress.round.place.round)
            metrics.waiting.labels(study).set(len(_waiting_for(progress)))
            metrics.away.labels(study).set(len(progress.away) if progress.life in studies.LIVE else 0)
            if changed is None or _may_differ(*changed):
                _measure_slowness(metrics, study, progress)


def _may_differ(before: Progress, after: Progress) -> bool:
    """Whether what each silo has taken may have changed: an event seldom does that, and there are many silos."""
    return before.round is None or before.slowness.taken is not after.slowness.taken


def _measure_slowness(metrics: CoordinatorMetrics, study: str, progress: Progress) -> None:
    known = {one.silo: one for one in progress.slowness.taken}
    for silo in progress.script.silos:
        taken = known.get(silo, Taken(silo))
        metrics.slow.labels(study, silo).set(taken.seconds)
        metrics.silent.labels(study, silo).set(taken.attempts)


def where(place: Place) -> dict[str, object]:
    """Return the log fields for a place."""
    return {"study": place.study[:SHORT], "round": place.round, "attempt": place.attempt}


def _waiting_for(progress: Progress) -> tuple[str, ...]:
    return progress.round.waiting_for if progress.round and progress.life in studies.LIVE else ()


def _state(silo: InvitedSilo, round_: Round | None, aside: Collection[str]) -> str:
    if silo.why:
        return "left"
    if round_ and silo.name in round_.lost:
        return "lost"
    if silo.away:
        return AWAY
    if silo.name in aside:
        return "aside"
    return "active" if round_ and silo.name in round_.names else "invited"


def _why(silo: InvitedSilo, round_: Round | None, progress: Progress) -> str:
    """Return why a silo has left, why the current attempt goes on without it, or that it has no data yet."""
    if silo.why or round_ is None:
        return silo.why
    if silo.name in progress.aside:
        return f"it sits out, though nothing is proven about it: {known(progress.spoilt, progress.script.colluders)}"
    return round_.why_lost(silo.name) or (_NO_DATA if _without_data(silo, round_) else "")


def silent(progress: Progress) -> tuple[str, ...]:
    """Return who is away and has not just said that it lacks data."""
    absent = (silo for silo in progress.silos if silo.name in progress.away)
    return tuple(silo.name for silo in absent if not _without_data(silo, progress.round))


def _without_data(silo: InvitedSilo, round_: Round | None) -> bool:
    """Whether a silo has said of the current attempt that it has no data for the study yet."""
    if round_ is None:
        return False
    return any(one.silo == silo.name for one in round_.dataless) and silo.name in round_.unanswered


def _clears(effects: Sequence[Effect]) -> bool:
    return any(isinstance(effect, Clear) for effect in effects)
