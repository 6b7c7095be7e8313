"""A study as a sequence of rounds: created -> running (<-> waiting, paused) -> finished, ended or aborted.

Round 0 deals keys and sums the domain counts; rounds 1..R train; round R+1 sums the metrics. A silo that is lost in a
round, and without which the round goes on, is asked again with the next offer; it is then behind and catches up. A
round that aborts is attempted again with the silos that still take part, until the study's attempts are used up. If a
list of survivors of that round was given out for signing, only these survivors can make the round, and the study waits
for them. Who is missed too long has left for good (`core.missed`). If one of them has left, the others void the list
first. A silo that refuses leaves the study, and so does one that disputes again and without which the study can go on,
and one that is named because of spoilt sums; the reason is recorded. While a spoilt sum has no name, some silos sit out
(`core.blame`). A silo that is silent is away until it calls again. The study goes on while enough silos remain, and
waits while too few of them are present. While the operator has paused the study, its clock stands still: what silos
still send counts, but time does not.

Pure: the clock comes in as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from coordinator.core import missed, slowness
from coordinator.core.blame import Lists, Verdict, judge, known
from coordinator.core.events import Effect, Event, Passed, Persist, Restarted, RoundStopped
from coordinator.core.missed import Missed
from coordinator.core.round import open_round, step
from coordinator.core.slowness import Slowness
from coordinator.core.state import Phase, PhaseLimits, Round
from coordinator.errors import CoordinatorError
from crypto.errors import RosterRefused
from crypto.secagg.survivors import threshold
from protos.messages import Member, Place, Tensor


class Life(StrEnum):
    """The state of a study."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    """The operator has paused the study, until the operator resumes it."""
    WAITING = "waiting"
    """Too few silos are present. The study goes on by itself when one of the others calls."""
    FINISHED = "finished"
    ENDED = "ended"
    ABORTED = "aborted"


LIVE = frozenset({Life.RUNNING, Life.PAUSED, Life.WAITING})
OVER = frozenset({Life.FINISHED, Life.ENDED, Life.ABORTED})


class StudyStateError(CoordinatorError):
    """The study is not in a state that allows this. Nothing changed."""


@dataclass(frozen=True)
class InvitedSilo:
    """One invited silo. `why` says why it left and is empty while it takes part. `away` is true while it is silent."""

    name: str
    why: str = ""
    away: bool = False

    def while_away(self, absent: frozenset[str]) -> InvitedSilo:
        """Return the silo as it is while these are silent."""
        away = self.name in absent
        return self if away is self.away else replace(self, away=away)


@dataclass(frozen=True)
class Script:
    """What the coordinator needs to know of a study: names, numbers, time limits."""

    study: str
    name: str
    silos: tuple[str, ...]
    min_silos: int
    colluders: int
    recovers: bool
    """Whether a round goes on without a silo that is lost during it."""
    tensors: tuple[tuple[Tensor, ...], ...]
    """The tensors of each round from 0 to R+1."""
    limits: PhaseLimits
    max_attempts: int


@dataclass(frozen=True)
class Progress:
    """State of one study."""

    script: Script
    silos: tuple[InvitedSilo, ...]
    life: Life = Life.CREATED
    round: Round | None = None
    why: str = ""
    paused_at: float = 0.0
    """The time at which the clock was stopped; None while it runs."""
    spoilt: tuple[tuple[str, ...], ...] = ()
    """Sets of which at least one silo is hostile: the list of every sum that is proven to be spoilt, the two silos of a
    complaint that cannot be decided, and alone who is shown to be guilty by what it signed."""
    aside: tuple[str, ...] = ()
    """Silos that sit out since the last spoilt sum, though nothing is proven about them (`core.blame`)."""
    slowness: Slowness = field(default_factory=Slowness)
    """What waiting for each silo has cost the study."""
    missed: tuple[Missed, ...] = ()
    """How long the current round has been without each silo of its list; empty where no list binds."""

    @cached_property
    def active(self) -> tuple[str, ...]:
        """Silos that still take part."""
        return tuple(silo.name for silo in self.silos if not silo.why)

    @cached_property
    def away(self) -> tuple[str, ...]:
        """Silos that take part but are silent."""
        return tuple(silo.name for silo in self.silos if silo.away and not silo.why)

    @cached_property
    def budget(self) -> float:
        """Seconds of waiting that each silo may cost the study (`core.slowness`)."""
        return slowness.budget(self.script.limits, [len(round_) for round_ in self.script.tensors])

    @cached_property
    def asked(self) -> tuple[str, ...]:
        """Silos that take part and are asked: not those at whose silence too many attempts have ended."""
        script = self.script
        try:
            needed = threshold(len(script.silos), script.colluders, script.min_silos)
        except RosterRefused:
            needed = script.min_silos
        return slowness.spared(self.slowness, self.active, needed, self.away)

    @property
    def invitable(self) -> tuple[str, ...]:
        """Silos that are asked, but for those that sit out since a spoilt sum."""
        return tuple(name for name in self.asked if name not in self.aside)

    @property
    def needed(self) -> tuple[str, ...]:
        """Silos that are asked, slow or not, if those that were invited are too few.

        Those that sit out since a spoilt sum are among them only if the others can never be enough, because some have
        left the study.
        """
        others = tuple(name for name in self.active if name not in self.aside)
        return others if len(others) >= self.script.min_silos else self.active

    def clock(self, now: float) -> float:
        """Return the study's own time, which stands still during a pause."""
        return self.paused_at if self.life is Life.PAUSED else now


_PATIENCE = 2
"""So many attempts at one round may end at a silo before the others try without it."""
Outcome = tuple[Progress, list[Effect]]


def create(script: Script) -> Progress:
    """Return a study that nobody has been asked to join yet."""
    return Progress(script, tuple(InvitedSilo(name) for name in script.silos))


def planned(state: Progress, tensors: tuple[tuple[Tensor, ...], ...]) -> Progress:
    """Return a stored, unfinished study under this version's plan. An earlier version may have stored another one.

    Raises `StudyStateError` if the study is within a round that sums other tensors now.
    """
    script, round_ = state.script, state.round
    if script.tensors == tensors:
        return state
    if round_ is not None and round_.tensors != tensors[round_.place.round]:
        then, now = ", ".join(round_.tensors), ", ".join(tensors[round_.place.round])
        msg = f"its round {round_.place.round} sums {then}, but this version sums {now}; create a new study"
        raise StudyStateError(msg)
    return replace(state, script=replace(script, tensors=tensors))


def start(state: Progress, now: float) -> Outcome:
    """Begin with round 0. Raises `StudyStateError` unless the study was just created."""
    if state.life is not Life.CREATED:
        msg = f"the study is {state.life}; only a created study can be started"
        raise StudyStateError(msg)
    place = Place(state.script.study, 0, 1)
    return replace(state, life=Life.RUNNING, round=_attempt(state, place, now)), [Persist()]


def pause(state: Progress, reason: str, now: float) -> Outcome:
    """Hand out no more work, and stop the clock. Raises `StudyStateError` unless the study is running or waiting."""
    if state.life not in (Life.RUNNING, Life.WAITING):
        msg = f"the study is {state.life}; only a running or waiting study can be paused"
        raise StudyStateError(msg)
    return replace(state, life=Life.PAUSED, why=reason, paused_at=now), [Persist()]


def resume(state: Progress, now: float) -> Outcome:
    """Go on where the study stopped, with the time that was left. Silos that it waited for are asked again.

    Raises `StudyStateError` unless the study is paused or waiting.
    """
    if state.round is None or state.life not in (Life.PAUSED, Life.WAITING):
        msg = f"the study is {state.life}; only a paused or waiting study can be resumed"
        raise StudyStateError(msg)
    begin = state.clock(now)
    round_ = replace(state.round, since=state.round.since + now - begin)
    if round_.phase is Phase.WAIT:
        round_ = open_round(round_, now)
    counts = missed.stood(state.missed, begin, now)
    return _in_tune(replace(state, life=Life.RUNNING, round=round_, paused_at=0.0, missed=counts)), [Persist()]


def forgive(state: Progress, silo: str) -> Outcome:
    """Forget what waiting for a silo has cost the study, and ask it again: now, or with the next attempt.

    A silo that sits out since a spoilt sum is not asked for this.

    Raises `StudyStateError` if the study is over, or if no such silo takes part in it.
    """
    if state.life in OVER:
        msg = f"the study is {state.life}; only in a study that goes on can a silo be forgiven"
        raise StudyStateError(msg)
    if silo not in state.active:
        msg = f"no silo {silo} takes part in the study; those that do are {', '.join(state.active)}"
        raise StudyStateError(msg)
    state = replace(state, slowness=slowness.forgiven(state.slowness, silo))
    round_ = state.round
    if round_ is not None and round_.phase in (Phase.OFFER, Phase.WAIT) and not round_.required:
        state = replace(state, round=_inviting(round_, state.invitable))
    return state, [Persist()]


def _inviting(round_: Round, silos: tuple[str, ...]) -> Round:
    """Return an attempt that has no roster yet, with more silos invited."""
    return replace(round_, invited=tuple(sorted({*round_.invited, *silos})))


def restart_clock(state: Progress, now: float) -> Outcome:
    """Begin the current phase of a running study again, because time while the coordinator was down does not count."""
    after = _timed(state, now)
    after = replace(after, missed=missed.noticed(after.missed, now))
    if after.round is not None and after.life is Life.RUNNING:
        after = replace(after, round=replace(after.round, since=now))
    return after, ([] if after == state else [Persist()])


def credit(state: Progress, since: float, now: float) -> Outcome:
    """Give the current phase the time back from `since` to `now`, in which the coordinator itself could not work."""
    now = state.clock(now)
    if state.round is None or state.life not in LIVE or now <= (begin := max(since, state.round.since)):
        return state, []
    counts = missed.stood(state.missed, since, now)
    round_ = replace(state.round, since=state.round.since + now - begin)
    return replace(state, round=round_, missed=counts), [Persist()]


def expire(state: Progress, now: float) -> Outcome:
    """Take silos as gone for good that a waiting study has missed too long; nothing in any other state.

    They were in a list that was given out, so the others must void it or, if they cannot, the study ends.
    """
    round_, gone = state.round, missed.gone(state.missed, now)
    if round_ is None or state.life is not Life.WAITING or not gone:
        return state, []
    stayed_away = f"did not come back within {missed.LISTED_DAYS} days"
    why = f"away: it is in a list that was given out in round {round_.place.round}, and {stayed_away}"
    silos = tuple(replace(one, why=one.why or why) if one.name in gone else one for one in state.silos)
    round_, effects = step(round_, RoundStopped(f"{', '.join(gone)} {stayed_away}"), now)
    return _in_tune(_timed(_after_abort(replace(state, silos=silos, round=round_), round_, now), now)), effects


def require_unstarted(state: Progress) -> None:
    """Raise `StudyStateError` unless the study was never started, so that no silo has heard of it."""
    if state.life is not Life.CREATED:
        msg = f"the study is {state.life}; only one that was never started can be deleted"
        raise StudyStateError(msg)


def require_over(state: Progress) -> None:
    """Raise `StudyStateError` unless the study is over."""
    if state.life not in OVER:
        msg = f"the study is {state.life}; only one that is over can be archived"
        raise StudyStateError(msg)


def abort(state: Progress, reason: str, now: float) -> Outcome:
    """Stop a study for good. Raises `StudyStateError` if the study is over already."""
    if state.life in OVER:
        msg = f"the study is {state.life} already"
        raise StudyStateError(msg)
    if state.round is None:
        return replace(state, life=Life.ABORTED, why=reason), [Persist()]
    round_, effects = step(state.round, RoundStopped(reason), state.clock(now))
    return replace(state, life=Life.ABORTED, why=reason, round=round_), effects


def advance(state: Progress, event: Event, now: float) -> Outcome:
    """Hand an event to the current round, and go on to the next round if it is over. Raises `WrongPhaseError`."""
    if state.round is None or state.life not in LIVE:
        msg = f"the study is {state.life}"
        raise StudyStateError(msg)
    now, before = state.clock(now), state.round
    most = slowness.patience(state.slowness, before, state.budget) if isinstance(event, Passed) else 0.0
    round_, effects = step(replace(before, patience=most), event, now)
    if not effects:
        return state, []
    silent = isinstance(event, Passed | Restarted)
    seen = slowness.observed(state.slowness, before, round_, now, most=state.budget, silent=silent)
    state, round_ = replace(state, slowness=seen), replace(round_, patience=0.0)
    if round_.phase is Phase.WAIT and not round_.required:
        state = _relieved(state, round_)
        if not set(state.needed) <= set(round_.invited):
            # Who is missing is worse than who is slow.
            round_ = open_round(_inviting(_without_those(round_, state.aside), state.needed), now)
    state = replace(state, round=round_, silos=tuple(silo.while_away(round_.absent) for silo in state.silos))
    if round_.phase is Phase.COMMITTED:
        state = _after_commit(state, round_, now)
    elif round_.phase is Phase.ABORTED:
        state = _after_abort(state, round_, now)
    return _in_tune(_timed(state, now)), effects


def _relieved(state: Progress, round_: Round) -> Progress:
    """Have those sit out that do not come, and no longer others that are there, if these are enough then.

    Otherwise a hostile silo that has put another one aside could stop the study by staying away itself.
    """

    def enough(aside: tuple[str, ...]) -> bool:
        there = set(state.active).difference(aside, round_.absent)
        return len(there) >= state.script.min_silos

    if not state.aside or enough(state.aside):
        return state
    verdict = _verdict(state, state.spoilt, round_)
    return replace(state, aside=verdict.aside) if not verdict.over and enough(verdict.aside) else state


def _without_those(round_: Round, silos: tuple[str, ...]) -> Round:
    """Return an attempt that has no roster yet, to which these are not invited any more."""
    invited = tuple(name for name in round_.invited if name not in silos)
    seats = tuple(seat for seat in round_.seats if seat.member.silo not in silos)
    return replace(round_, invited=invited, seats=seats)


def _timed(state: Progress, now: float) -> Progress:
    """Count how long the round is without each silo of its list."""
    return replace(state, missed=missed.counted(state.missed, state.round, now))


def _in_tune(state: Progress) -> Progress:
    """Take from the round whether the study runs or waits. A paused or ended study stays so."""
    if state.round is None or state.life not in (Life.RUNNING, Life.WAITING):
        return state
    waits = state.round.phase is Phase.WAIT
    return replace(state, life=Life.WAITING if waits else Life.RUNNING, why=state.round.why)


def _attempt(
    state: Progress,
    place: Place,
    now: float,
    *,
    expected: str = "",
    keyed: tuple[Member, ...] = (),
    before: Round | None = None,
) -> Round:
    """Begin an attempt. `before` is the attempt at the same round that failed, whose lists bind this one.

    If its sum is proven to be spoilt, they bind nobody any more, and the round begins anew.

    A silo at which several attempts at the round ended is not asked again in this round, if enough others are there.
    """
    script, active, asked = state.script, set(state.active), state.asked
    anew = before is not None and before.spoilt is not None and before.spoilt.attempt == before.place.attempt
    listed = () if before is None or anew else before.listed
    spoilers = () if before is None else (*before.spoilers, *before.culprits)
    blank = Round(
        place=place,
        tensors=script.tensors[place.round],
        invited=asked,
        listed=listed,
        voiding=tuple(one.tensor for one in listed if not active.issuperset(one.silos)),
        voided=() if before is None or anew else before.voided,
        spoilt=None if before is None else before.spoilt,
        vouches=() if state.round is None else state.round.vouches,
        shown=() if state.round is None else state.round.all_shown,
        unshared=() if before is None else before.unshared,
        silos=len(script.silos),
        complaints=() if state.round is None else state.round.complaints,
        spoilers=spoilers,
        min_silos=script.min_silos,
        colluders=script.colluders,
        recovers=script.recovers,
        limits=script.limits,
        keyed=keyed,
        expected=expected,
        absent=frozenset(state.away),
    )
    there = state.invitable
    there = there if len(there) >= script.min_silos else state.needed
    steady = tuple(name for name in there if spoilers.count(name) < _PATIENCE)
    able = steady if len(steady) >= script.min_silos else there
    return open_round(replace(blank, invited=blank.required or able), now)


def _without(state: Progress, round_: Round) -> Progress:
    """Record that the silos that refused have left, or were left out, each with its reason."""
    reasons = {r.silo: f"{r.reason}: {r.explanation}" for r in round_.refusals}
    if len(set(state.active).difference(reasons, round_.left_out)) >= state.script.min_silos:
        reasons |= dict.fromkeys(sorted(round_.left_out), f"left out: {round_.why}")
    return replace(state, silos=tuple(replace(s, why=s.why or reasons.get(s.name, "")) for s in state.silos))


def _after_commit(state: Progress, round_: Round, now: float) -> Progress:
    state = replace(_without(state, round_), slowness=slowness.committed(state.slowness))
    following = round_.place.round + 1
    if following == len(state.script.tensors):
        return replace(state, life=Life.FINISHED, why="all rounds are committed")
    place = Place(state.script.study, following, 1)
    # Who has disputed has dropped the keys, and could neither catch up nor take part with them.
    keyed = () if round_.dropped else round_.members
    return replace(state, round=_attempt(state, place, now, expected=round_.model, keyed=keyed))


def _verdict(state: Progress, lists: Lists, round_: Round) -> Verdict:
    """Return what follows from the spoilt lists for those that are left. Raises `RosterRefused`, as `_judged`."""
    script, place = state.script, round_.place
    needed = threshold(len(script.silos), script.colluders, script.min_silos)
    return judge(state.active, lists, script.colluders, needed, place.round + place.attempt, away=round_.absent)


def _judged(state: Progress, round_: Round) -> Progress:
    """Record a spoilt sum or a complaint, and what follows from it.

    Ends the study after a spoilt sum if nobody else can be spared: the same silos would only spoil another one.

    Raises `RosterRefused` if the study has too few silos.
    """
    proof, place = round_.spoilt, round_.place
    spoilt = proof is not None and proof.attempt == place.attempt
    if proof is not None and spoilt:
        lists = (*state.spoilt, (proof.culprit,) if proof.culprit else proof.names)
    elif round_.blamed:
        lists = (*state.spoilt, round_.blamed)
    else:
        return state
    verdict = _verdict(state, lists, round_)
    reasons = dict.fromkeys(verdict.named, f"named: {round_.why}; {verdict.why}")
    silos = tuple(replace(one, why=one.why or reasons.get(one.name, "")) for one in state.silos)
    state = replace(state, silos=silos, spoilt=lists, aside=verdict.aside)
    return replace(state, life=Life.ENDED, why=f"{round_.why}; {verdict.why}") if verdict.over and spoilt else state


def _after_abort(state: Progress, round_: Round, now: float) -> Progress:
    state = _judged(_without(state, round_), round_)
    if state.life in OVER:
        return state
    place = round_.place
    if len(state.active) < state.script.min_silos:
        left = "; ".join(f"{s.name} left ({s.why})" for s in state.silos if s.why)
        return replace(state, life=Life.ENDED, why=f"{round_.why}; {left}" if left else round_.why)
    if place.attempt >= state.script.max_attempts:
        words = (round_.why, known(state.spoilt, state.script.colluders))
        why = "; ".join(word for word in words if word)
        return replace(state, life=Life.ENDED, why=f"attempt {place.attempt} of round {place.round}: {why}")
    # Every new attempt after a failure gets new keys, because the silo that caused it may have kept the old ones.
    following = Place(place.study, place.round, place.attempt + 1)
    return replace(state, round=_attempt(state, following, now, expected=round_.expected, before=round_))
