"""A study as a sequence of attempts: its examples, then its laws under any order of events."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator import record
from coordinator.core import round as rounds
from coordinator.core.round import (
    Add,
    Added,
    Clear,
    OutOfTurnError,
    Passed,
    Persist,
    Phase,
    Restarted,
    Stopped,
    Total,
    Uploaded,
)
from coordinator.core.study import OVER, Life, Script, StudyStateError, abort, advance, create, start
from protos.messages import Note, Place, Task, Tensor
from support.rounds import (
    LIMITS,
    SHA,
    STUDY,
    accept,
    confirm,
    dispute,
    refuse,
    session,
    upload,
    wanted,
)

PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
SILOS = ("north", "south", "west")


def script(silos=SILOS, min_silos=2, max_attempts=2):
    return Script(STUDY, "tiny", silos, min_silos, PLAN, LIMITS, max_attempts)


def started(**changes):
    return start(create(script(**changes)), 0.0)[0]


def feed(state, *events, now=0.0):
    for event in events:
        state, _ = advance(state, event, now)
    return state


def until(state, condition, now=0.0):
    """Everybody does what is asked until the condition holds."""
    while not condition(state):
        state = feed(state, *wanted(state.round), now=now)
    return state


def test_a_created_study_waits_for_its_start():
    state = create(script())
    assert (state.life, state.round, state.active) == (Life.CREATED, None, SILOS)
    with pytest.raises(StudyStateError, match="the study is created"):
        advance(state, Passed(), 0.0)


def test_a_start_offers_round_0_to_all():
    state, effects = start(create(script()), 7.0)
    assert effects == [Persist()]
    assert (state.life, state.round.phase, state.round.since) == (Life.RUNNING, Phase.OFFER, 7.0)
    assert (state.round.place, state.round.invited) == (Place(STUDY, 0, 1), SILOS)
    with pytest.raises(StudyStateError, match="only a created one can start"):
        start(state, 8.0)


def test_every_round_in_turn_then_the_end():
    state, seen = started(), []
    while state.life is Life.RUNNING:
        seen.append((state.round.place.round, state.round.phase, state.round.tensor))
        state = feed(state, *wanted(state.round))
    assert state.life is Life.FINISHED
    openings = [(number, tensor) for number, phase, tensor in seen if phase is Phase.OPEN]
    assert openings == [(number, tensor) for number, tensors in enumerate(PLAN) for tensor in tensors]
    assert [number for number, phase, _ in seen if phase is Phase.DEAL] == [0], "the keys of round 0 serve to the end"


def test_who_refuses_has_left_by_name_and_the_rest_goes_on():
    state = started()
    place = state.round.place
    state = feed(state, refuse(place, "west"), accept(place, "north"), accept(place, "south"))
    assert state.active == SILOS, "it leaves when the attempt is over"
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.active == state.round.invited == ("north", "south")
    assert state.silos[2].why == "budget_spent: policy.budget is spent"


def test_too_few_remain():
    state = started()
    place = state.round.place
    state = feed(state, refuse(place, "west"), accept(place, "north"), refuse(place, "south"))
    assert state.life is Life.ENDED
    assert state.why == (
        "1 silos take part, the study needs 2; south left (budget_spent: policy.budget is spent);"
        " west left (budget_spent: policy.budget is spent)"
    )


def test_a_failed_attempt_is_made_anew_with_new_keys():
    state = until(started(), lambda s: s.round.place.round == 1 and s.round.phase is Phase.GATHER)
    state = feed(state, Restarted("west", "new"))
    assert (state.round.place, state.round.phase) == (Place(STUDY, 1, 2), Phase.OFFER)
    assert state.round.keyed == ()
    assert until(state, lambda s: s.round.phase is not Phase.OFFER).round.phase is Phase.DEAL


def test_the_last_attempt_ends_the_study_by_name():
    state = feed(started(), Stopped("a"), Stopped("b"))
    assert (state.life, state.why) == (Life.ENDED, "attempt 2 of round 0: b")


def test_an_abort_is_for_good_and_clears_what_was_sealed():
    state = until(started(), lambda s: s.round.phase is Phase.GATHER)
    state, effects = abort(state, "stopped by ops", 9.0)
    assert effects == [Persist(), Clear(Place(STUDY, 0, 1))]
    assert (state.life, state.why, state.round.phase) == (Life.ABORTED, "stopped by ops", Phase.ABORTED)
    with pytest.raises(StudyStateError, match="the study is aborted already"):
        abort(state, "again", 9.0)
    with pytest.raises(StudyStateError, match="the study is aborted"):
        advance(state, Passed(), 9.0)


def test_an_abort_before_the_start():
    state, effects = abort(create(script()), "no", 0.0)
    assert (state.life, state.why, effects) == (Life.ABORTED, "no", [Persist()])


# --- laws under any order of events ---------------------------------------------------------------------------------
NAMES = ("east", "north", "south", "west", "elsewhere")
name = st.sampled_from(NAMES)
TROUBLES = ("refuse", "disagree", "dispute", "stop_the_attempt", "wait", "come_back_anew")
"""What may end an attempt. A run has only some of them, else hardly any would get past its first sums."""
ROOM = LIMITS.offer + 2 * LIMITS.keys + 2 * (2 * LIMITS.train + LIMITS.open) + 2 * LIMITS.solve
"""Seconds that the phases of the longest round may last together."""


def troubled(method):
    """This rule applies only in runs that have its trouble."""
    return precondition(lambda self: method.__name__ in self.troubles)(method)


class Federation(RuleBasedStateMachine):
    """A coordinator among silos that answer, repeat, restart, disagree, fall silent or speak out of turn.

    Only what really happened is kept beside the state: who was counted in which sum, which sums were opened, when the
    attempt began. The laws compare the state with it.
    """

    @initialize(
        silos=st.integers(2, 4),
        needed=st.integers(2, 4),
        attempts=st.integers(1, 3),
        faithful=st.booleans(),
        troubles=st.sets(st.sampled_from(TROUBLES)),
    )
    def begin(self, silos, needed, attempts, faithful, troubles):
        self.script = script(NAMES[:silos], min(needed, silos), attempts)
        self.state, _ = start(create(self.script), 0.0)
        self.now, self.began, self.faithful, self.troubles = 0.0, 0.0, faithful, troubles
        self.last = None
        self.counted: dict[tuple[Place, Tensor], Counter[str]] = {}
        self.opened: Counter[tuple[Place, Tensor]] = Counter()
        self.places = [self.state.round.place]

    def send(self, event):
        """One event, checked against every law of a step."""
        before, copy, self.last = self.state, record.dump(self.state), event
        try:
            after, effects = advance(before, event, self.now)
        except (OutOfTurnError, StudyStateError):
            assert record.dump(before) == copy
            return
        if not effects:
            assert after is before
            return
        assert effects[0] == Persist()
        assert effects.count(Persist()) == 1
        assert after != before
        self.state = after
        self.notice(before, event, effects)

    def notice(self, before, event, effects):
        old, new = before.round, self.state.round
        if isinstance(event, Uploaded) and event.header.tensor is not None:
            self.counted.setdefault((old.place, event.header.tensor), Counter())[event.header.silo] += 1
        for effect in effects:
            if isinstance(effect, Add):
                witnesses = self.counted[effect.place, effect.tensor]
                assert witnesses == Counter(effect.silos), "each silo of the roster once, and nobody else"
                assert len(effect.silos) >= self.script.min_silos
            if isinstance(effect, Clear):
                assert effect.place == old.place
                assert self.now - self.began <= ROOM
        if isinstance(event, Added):
            self.opened[old.place, old.tensor] += 1
        if new.place != old.place:
            assert any(isinstance(effect, Clear) for effect in effects), "no attempt follows one that is not over"
            assert new.place > self.places[-1]
            self.places.append(new.place)
            self.began = self.now
        assert set(self.state.active) <= set(before.active), "who has left does not return"

    @property
    def place(self):
        return self.state.round.place

    @rule(
        silo=name,
        model=st.sampled_from(("m", "m", "m", "other")),
        number=st.integers(1, 2),
        key=st.sampled_from((b"k", b"k", b"n")),
    )
    def answer(self, silo, model, number, key):
        self.send(accept(self.place, silo, model=model, number=number, key=key))

    @troubled
    @rule(silo=name)
    def refuse(self, silo):
        self.send(refuse(self.place, silo))

    @rule(silo=name, what=st.sampled_from((*Tensor, *Note)))
    def upload(self, silo, what):
        self.send(upload(self.place, silo, what))

    @rule(silo=name)
    def upload_what_is_gathered(self, silo):
        if self.state.round.phase is Phase.GATHER:
            self.send(upload(self.place, silo, self.state.round.tensor))

    @rule(silo=name, task=st.sampled_from((Task.TAKE, Task.OPEN, Task.ADOPT)), tensor=st.sampled_from((None, *Tensor)))
    def confirm(self, silo, task, tensor):
        self.send(confirm(self.place, silo, task, tensor))

    @troubled
    @rule(silo=name, model=st.just("other"))
    def disagree(self, silo, model):
        if self.state.round.phase in (Phase.OPEN, Phase.ADOPT):
            task = Task.OPEN if self.state.round.phase is Phase.OPEN else Task.ADOPT
            self.send(confirm(self.place, silo, task, self.state.round.tensor, model=model))

    @troubled
    @rule(silo=name)
    def dispute(self, silo):
        self.send(dispute(self.place, silo, Task.CONTRIBUTE))

    @rule(size=st.integers(1, 9))
    def add(self, size):
        self.send(Added(Total(size, SHA)))

    @rule(silo=name)
    def poll(self, silo):
        self.send(Restarted(silo, session(silo)))

    @troubled
    @rule(silo=name)
    def come_back_anew(self, silo):
        self.send(Restarted(silo, session(silo, 2)))

    @rule()
    def lose_the_reply(self):
        """The silo has not heard that its last word was taken, and says it again."""
        if self.last is not None and not isinstance(self.last, (Passed, Stopped)):
            self.send(self.last)

    @troubled
    @rule(seconds=st.floats(0, 150))
    def wait(self, seconds):
        """The clock stops at a deadline, as the coordinator's ticks do."""
        if self.state.life is Life.RUNNING:
            self.now = min(self.now + seconds, max(self.state.round.deadline, self.now))
            self.send(Passed())
            assert self.state.life in OVER or self.now < self.state.round.deadline

    @troubled
    @rule()
    def stop_the_attempt(self):
        self.send(Stopped("adding failed"))

    @rule(steps=st.integers(1, 12))
    def go_on(self, steps):
        """Silos and coordinator do what is asked; without this few runs would get far."""
        for _ in range(steps):
            if self.state.life is Life.RUNNING:
                self.send(wanted(self.state.round)[0])

    @rule()
    def restart_the_coordinator(self):
        self.state = record.load(record.dump(self.state))

    @precondition(lambda self: hasattr(self, "state"))
    @invariant()
    def what_is_stored_is_the_state(self):
        assert record.load(record.dump(self.state)) == self.state

    @precondition(lambda self: hasattr(self, "state"))
    @invariant()
    def laws_of_every_state(self):
        state, round_ = self.state, self.state.round
        assert all(times == 1 for times in self.opened.values()), "one opening a tensor and attempt"
        assert all(times == 1 for silos in self.counted.values() for times in silos.values())
        assert round_.place.attempt <= self.script.max_attempts
        assert len(set(round_.names)) == len(round_.names)
        assert list(round_.names) == sorted(round_.names)
        assert set(round_.names) | {r.silo for r in round_.refusals} <= set(round_.invited)
        if round_.phase not in (Phase.OFFER, Phase.ABORTED):
            assert len(round_.names) >= self.script.min_silos
        if state.life is Life.RUNNING:
            assert round_.phase not in rounds.OVER
            assert round_.deadline < float("inf"), "no phase lasts for ever"
            assert round_.waiting_for or round_.phase is Phase.ADD
        if state.life in OVER:
            assert state.why

    def teardown(self):
        """Whatever has happened: with faithful silos or with silent ones, the study comes to its end."""
        if not hasattr(self, "state"):
            return
        for _ in range(len(PLAN) * self.script.max_attempts * 60):
            if self.state.life in OVER:
                break
            if self.faithful:
                self.send(wanted(self.state.round)[0])
            else:
                self.now = self.state.round.deadline
                self.send(Passed())
        assert self.state.life in OVER
        assert (self.state.life is Life.FINISHED) == (self.state.round.phase is Phase.COMMITTED)


Federation.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFederation = Federation.TestCase


def test_an_attempt_that_begins_late_has_its_full_time():
    state = started()
    state = feed(state, Passed(), now=LIMITS.offer + 1000)
    assert state.round.place == Place(STUDY, 0, 2)
    assert state.round.deadline == LIMITS.offer + 1000 + LIMITS.offer


def test_a_silo_that_is_silent_is_asked_again_in_the_next_round():
    state = started()
    place = state.round.place
    state = feed(state, accept(place, "north"), accept(place, "south"))
    state = feed(state, Passed(), now=LIMITS.offer)
    assert state.round.names == ("north", "south")
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.round.invited == SILOS
    assert replace(state.silos[2]).why == ""
