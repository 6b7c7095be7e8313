"""Every state of a study at the real coordinator's core, with honest silos and one that does what it likes.

The honest silos do what they are asked, by the real rules of their promises. One of them may fall silent or lose its
keys, so many times in all. The hostile one answers, disputes, complains, spoils a sum or is silent, in any phase and at
any moment of it. In a phase honest silos answer in the order of their names: the core collects what they say, and what
follows depends on who has said it and not on the order. Names are not merged, because the silo that deals is chosen by
its place among the names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from time import monotonic
from typing import NamedTuple

from coordinator.core import study as studies
from coordinator.core.events import Added, Answered, Complained, Confirmed, Event, Passed, Restarted, Returned, Uploaded
from coordinator.core.missed import LISTED_SECONDS, Missed
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import COLLECTED, CONFIRMED, RELAYED, Phase, PhaseLimits, Round
from coordinator.core.study import LIVE, Progress, Script
from protos import record
from protos.messages import Answer, Confirm, Member, Part, Tensor, UploadHeader
from protos.steps import SUM, Note, Task
from silo_agent.core.bonds import Bonds, SurvivorsError
from support.searched_silo import NAMES, SUM_DIGEST

LIMITS = PhaseLimits(1.0, 1.0, 1.0, 1.0, 1.0)
TENSOR = Tensor.COUNTS


class Standing(NamedTuple):
    """A study, the honest silos' bonds, and what the hostile one has done to the current sum."""

    progress: Progress
    bonds: tuple[Bonds, ...]
    spoilt: bool = False
    """Whether the hostile silo has spoilt the current sum."""
    silent: frozenset[str] = frozenset()
    """Honest silos that say nothing in this phase."""
    faults: int = 0


@dataclass
class Reached:
    """What a search has found."""

    states: int = 0
    ends: int = 0
    """States in which the study is over."""
    finished: int = 0
    named: int = 0
    """States in which the hostile silo has left the study by name."""
    recounts: int = 0
    waits: int = 0
    """States in which the study waits for the hostile silo."""
    seconds: float = 0.0
    fault: str = ""
    """What is broken, and how it comes to that, one event a line; empty if nothing is."""


@dataclass
class RoundSearch:
    """One search."""

    silos: int
    min_silos: int
    attempts: int
    hostile: int
    recovers: bool = True
    faults: int = 0
    """So often an honest silo falls silent or loses its keys."""
    restarts: bool = False
    """Whether the coordinator ends and begins again from what it has stored, in every state."""
    reached: Reached = field(default_factory=Reached)

    def run(self) -> Reached:
        """Search all states. Stops at the first that breaks something."""
        began = monotonic()
        names = NAMES[: self.silos]
        self._names, self._bad = names, names[self.hostile]
        script = Script(
            "5" * 64, "searched", names, self.min_silos, 1, self.recovers, ((TENSOR,),), LIMITS, self.attempts
        )
        progress, _ = studies.start(studies.create(script), 0.0)
        first = Standing(progress, (Bonds(),) * len(names))
        start = _key(first)
        parents: dict[object, tuple[object, str]] = {start: (None, "")}
        back: dict[object, list[object]] = {}
        ends, open_ = [], deque([(start, first)])
        while open_ and not self.reached.fault:
            key, state = open_.popleft()
            self._count(state)
            if wrong := self._wrong(state):
                self.reached.fault = _told(parents, key, wrong)
            if state.progress.life not in LIVE:
                ends.append(key)
                continue
            self.reached.waits += self._waits(state)
            for words, following, fair in self._events(state):
                after = _key(following)
                if after == key:
                    continue
                if fair:
                    back.setdefault(after, []).append(key)
                if after not in parents:
                    parents[after] = (key, words)
                    open_.append((after, following))
        if not self.reached.fault:
            self._must_end(parents, back, ends)
        self.reached.seconds = monotonic() - began
        return self.reached

    def _count(self, state: Standing) -> None:
        reached, progress = self.reached, state.progress
        reached.states += 1
        reached.ends += progress.life not in LIVE
        reached.finished += progress.life is studies.Life.FINISHED
        reached.named += any(one.why for one in progress.silos if one.name == self._bad)
        reached.recounts += progress.round is not None and progress.round.phase is Phase.RECOUNT

    def _wrong(self, state: Standing) -> str:
        for one in state.progress.silos:
            if one.why and one.name != self._bad:
                return f"{one.name}, which is honest, leaves the study: {one.why}"
        if self.restarts and _restarted(state.progress) != state.progress:
            return "a coordinator that begins again goes on from another state"
        return ""

    def _waits(self, state: Standing) -> bool:
        """Whether the hostile silo is missing: it was listed, and has not left. The operator sees its name."""
        round_ = _round(state)
        return round_.phase is Phase.WAIT and self._bad in round_.unanswered

    def _must_end(
        self, parents: dict[object, tuple[object, str]], back: dict[object, list[object]], ends: list[object]
    ) -> None:
        """Every state must reach an end by what honest silos do and by time alone."""
        good, open_ = set(ends), list(ends)
        while open_:
            for before in back.get(open_.pop(), ()):
                if before not in good:
                    good.add(before)
                    open_.append(before)
        if stuck := next((key for key in parents if key not in good), None):
            self.reached.fault = _told(parents, stuck, "the study never ends, whatever honest silos do")

    # --- what may happen ------------------------------------------------------------------------------------------
    def _events(self, state: Standing) -> Iterator[tuple[str, Standing, bool]]:
        round_ = _round(state)
        asked = [name for name in round_.asked if name not in state.silent]
        honest = next((name for name in asked if name != self._bad), None)
        if round_.phase is Phase.ADD:
            yield from self._apply(state, "the sum is added", Added(Part(SUM, "", 1, SUM_DIGEST)))
            return
        for name in sorted(round_.absent - {self._bad}):
            yield from self._apply(state, f"{name} calls again", Returned(name))
        if honest is not None:
            yield from self._answers(state, honest)
            if state.faults < self.faults:
                silent = state._replace(silent=state.silent | {honest}, faults=state.faults + 1)
                yield f"{honest} falls silent", silent, False
                broke = state._replace(faults=state.faults + 1)
                yield from self._apply(broke, f"{honest} loses its keys", Restarted(honest, "t"), fair=False)
        elif self._waits(state):
            yield f"{self._bad} stays away", self._stayed_away(state), True
        elif round_.phase is not Phase.WAIT:
            words = f"nobody else says anything in {round_.phase}"
            yield from self._apply(state, words, Passed(), now=round_.deadline)
        if self._bad in (*round_.names, *asked):
            yield from self._mischief(state, self._bad in asked)
        if self._bad in round_.absent:
            yield from self._apply(state, f"{self._bad} calls again", Returned(self._bad), fair=False)

    def _stayed_away(self, state: Standing) -> Standing:
        """The study after so long that the hostile silo has left, while honest silos have just fallen silent."""
        counts = tuple(replace(one, seconds=LISTED_SECONDS * (one.silo == self._bad)) for one in state.progress.missed)
        progress, _ = studies.expire(replace(state.progress, missed=counts), 0.0)
        return self._settled(state, progress)

    def _answers(self, state: Standing, name: str) -> Iterator[tuple[str, Standing, bool]]:
        """What an honest silo does."""
        round_, number = _round(state), self._names.index(name)
        place, before = round_.place, state.bonds[number]
        words = f"{name} does its part of {round_.phase}"
        try:
            bonds = _bound(before, round_)
        except SurvivorsError:
            dispute = Confirmed(name, Confirm(place, _task(round_), round_.tensor, dispute="survivors"))
            yield from self._apply(state, f"{name} disputes {round_.phase}", dispute)
            return
        state = _with(state, number, bonds or before)
        if bonds is None:
            yield from self._apply(state, f"{name} cannot void", self._event(round_, name, signature=b""))
            return
        if round_.phase is Phase.OPEN and state.spoilt:
            refuses = Confirmed(name, Confirm(place, Task.OPEN, TENSOR, dispute="opening"))
            yield from self._apply(state, f"{name} refuses the sum", refuses)
            return
        yield from self._apply(state, words, self._event(round_, name))
        dealt = round_.phase is Phase.TAKE and any(
            one.silo == self._bad for one in round_.parts if one.kind == Note.KEYS
        )
        if dealt or (round_.phase is Phase.CHECK and self._bad in round_.present):
            for liar in (self._bad, ""):
                words = f"{name} complains about {self._bad}, {'with' if liar else 'without'} evidence"
                yield from self._apply(state, words, _complained(round_, name, self._bad, liar), fair=False)

    def _mischief(self, state: Standing, asked: bool) -> Iterator[tuple[str, Standing, bool]]:
        """What the hostile silo does, besides nothing."""
        round_, bad = _round(state), self._bad
        for words, event in self._lies(round_) if asked else ():
            yield from self._apply(state, f"{bad} {words}", event, fair=False)
        if asked and round_.phase is Phase.GATHER:
            spoilt = state._replace(spoilt=True)
            yield from self._apply(spoilt, f"{bad} spoils the sum", self._event(round_, bad), fair=False)
        if round_.phase not in (Phase.OFFER, Phase.WAIT):
            dispute = Confirmed(bad, Confirm(round_.place, _task(round_), round_.tensor, dispute="nothing"))
            yield from self._apply(state, f"{bad} disputes in {round_.phase}", dispute, fair=False)
            yield from self._apply(state, f"{bad} loses its keys", Restarted(bad, "t"), fair=False)

    def _lies(self, round_: Round) -> Iterator[tuple[str, Event]]:
        """What the hostile silo says when it is asked, and what follows from evidence."""
        bad, place, phase = self._bad, round_.place, round_.phase
        yield f"does its part of {phase}", self._event(round_, bad)
        match phase:
            case Phase.OFFER:
                yield "refuses", Answered(bad, Answer(place, "s", "spent"))
            case Phase.VOID:
                yield "voids nothing", self._event(round_, bad, signature=b"")
            case Phase.RECOUNT:
                for other in round_.survivors:
                    yield f"states that {other} has spoilt the sum", self._event(round_, bad, culprit=other)
            case Phase.EXAMINE:
                for other in round_.names:
                    yield f"finds that {other} has lied", self._event(round_, bad, culprit=other)
            case Phase.TAKE | Phase.CHECK:
                for other, liar in product(round_.names, (bad, "")):
                    evidence = "with evidence against itself" if liar else "without evidence"
                    yield f"complains about {other}, {evidence}", _complained(round_, bad, other, liar)

    def _event(self, round_: Round, name: str, *, signature: bytes = b"s", culprit: str = "") -> Event:
        """What a silo says that does its part."""
        place, phase, tensor = round_.place, round_.phase, round_.tensor
        if phase is Phase.OFFER:
            key = name.encode()
            member = Member(name, key, key.ljust(32), key.ljust(1184), b"s")
            return Answered(name, Answer(place, "s", member=member))
        if phase in RELAYED or phase in COLLECTED or phase is Phase.GATHER:
            kind = RELAYED[phase] if phase in RELAYED else COLLECTED.get(phase, "ckks")
            of = tensor if phase in (Phase.GATHER, Phase.REVEAL) else None
            values = 1 if phase is Phase.GATHER else 0
            return Uploaded(UploadHeader(place, kind, of, name, values, 1, SUM_DIGEST), b"s")
        task = CONFIRMED[phase]
        if task is Task.EXAMINE:
            return Confirmed(name, Confirm(place, task, culprit=culprit or round_.liar), name.encode())
        if task is Task.OPEN:
            return Confirmed(name, Confirm(place, task, tensor, model="m"), name.encode())
        signed = signature if task in (Task.SIGN, Task.VOID, Task.RECOUNT) else b""
        of = tensor if task in (Task.SIGN, Task.VOID, Task.RECOUNT) else None
        return Confirmed(name, Confirm(place, task, of, signature=signed, culprit=culprit), name.encode())

    def _apply(
        self, state: Standing, words: str, event: Event, *, now: float = 0.0, fair: bool = True
    ) -> Iterator[tuple[str, Standing, bool]]:
        """The study after an event; nothing if the core refuses it. A clock that only a deadline moves begins at 0."""
        try:
            progress, _ = studies.advance(state.progress, event, now)
        except WrongPhaseError:
            return
        yield words, self._settled(state, progress), fair

    def _settled(self, state: Standing, progress: Progress) -> Standing:
        """The state with the study after an event, of which nothing is kept that the clock alone has written."""
        before, after = _round(state), progress.round
        assert after is not None
        slowness = progress.slowness
        slowness = replace(
            slowness,
            taken=tuple(replace(one, seconds=0.0) for one in slowness.taken),
            acts=tuple(replace(one, seconds=0.0) for one in slowness.acts),
        )
        counts = tuple(Missed(one.silo, since=None if one.since is None else 0.0) for one in progress.missed)
        progress = replace(progress, slowness=slowness, round=replace(after, since=0.0), missed=counts)
        same = (before.place, before.phase) == (after.place, after.phase)
        return state._replace(
            progress=progress,
            spoilt=state.spoilt and before.place == after.place,
            silent=state.silent if same else frozenset(),
        )


def _restarted(progress: Progress) -> Progress:
    """The study as a coordinator has it that begins again from what it has stored."""
    return studies.restart_clock(record.load(Progress, record.dump(progress)), 0.0)[0]


def _complained(round_: Round, name: str, about: str, liar: str) -> Complained:
    """A silo complains about another. With evidence, it shows who lied."""
    shown = {"evidence": bytes(64), "signature": b"s"} if liar and name != about else {}
    complaint = Confirm(round_.place, CONFIRMED[round_.phase], dispute="recovery", culprit=about, **shown)
    return Complained(name, complaint, liar)


def _bound(bonds: Bonds, round_: Round) -> Bonds | None:
    """How an honest silo stands after its part of a phase; None if it cannot void. Raises `SurvivorsError`."""
    attempt = round_.place.attempt
    match round_.phase:
        case Phase.OFFER if round_.spoilt is not None:
            return replace(bonds, spoilt=round_.spoilt.attempt)
        case Phase.VOID:
            return bonds.void(attempt - 1)
        case Phase.GATHER:
            void = round_.void_of(TENSOR)
            bonds = bonds if void is None else bonds.close(void.through)
            bonds.require(round_.participants, TENSOR)
            return bonds.contribute(attempt, round_.participants, TENSOR)
        case Phase.SIGN:
            return bonds.sign(attempt, round_.survivors, TENSOR)
        case Phase.REVEAL:
            return bonds.reveal(attempt, TENSOR)
    return bonds


def _round(state: Standing) -> Round:
    assert state.progress.round is not None
    return state.progress.round


def _task(round_: Round) -> Task:
    tasks = {Phase.GREET: Task.GREET, Phase.DEAL: Task.DEAL, Phase.EXCHANGE: Task.EXCHANGE, Phase.REVEAL: Task.REVEAL}
    return CONFIRMED.get(round_.phase) or tasks.get(round_.phase, Task.CONTRIBUTE)


def _with(state: Standing, number: int, bonds: Bonds) -> Standing:
    return state._replace(bonds=(*state.bonds[:number], bonds, *state.bonds[number + 1 :]))


def _key(state: Standing) -> object:
    """All that decides anything: not the words of reasons, not the clock."""
    progress, round_ = state.progress, _round(state)
    of_round = (
        round_.place.attempt, round_.phase, round_.cursor, round_.invited, round_.keyed, round_.absent, round_.listed,
        round_.voiding, round_.voided, round_.left_out, round_.complaints, round_.spoilers, round_.repeated,
        round_.dropped, tuple((one.silo, one.dispute) for one in round_.objections), round_.seats,
        tuple(one.silo for one in round_.refusals), round_.threshold, round_.done, round_.parts,
        tuple(one.silo for one in round_.losses), round_.participants, round_.survivors, round_.signatures,
        tuple(one.part.silo for one in round_.uploads), round_.refusers, round_.stated, round_.spoilt, round_.blamed,
        round_.complaint, round_.liar, round_.examined,
        round_.held, round_.culprits,
    )  # fmt: skip
    silos = tuple((one.name, bool(one.why), one.away) for one in progress.silos)
    slow = tuple((one.silo, one.attempts, one.since) for one in progress.slowness.taken)
    acts = tuple(sorted(one.silo for one in progress.slowness.acts))
    return (
        progress.life, progress.missed, silos, progress.spoilt, progress.aside, slow, acts, of_round, state.bonds,
        state.spoilt, state.silent, state.faults,
    )  # fmt: skip


def _told(parents: dict[object, tuple[object, str]], key: object, why: str) -> str:
    lines = []
    while key is not None:
        key, words = parents[key]
        lines.append(words)
    return "\n".join([*reversed(lines[:-1]), f"Then {why}."])
