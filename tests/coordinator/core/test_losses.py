"""Laws of an attempt whose silos vanish one after the other, from the exchange on, in whatever order things arrive."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.core.events import (
    Add,
    Added,
    Clear,
    Confirmed,
    Lost,
    Passed,
    Persist,
    Restarted,
    Returned,
    Revoked,
    Uploaded,
)
from coordinator.core.round import WrongPhaseError, step
from coordinator.core.state import ADDED, OVER, SPARING, Phase, Round
from protos import record
from protos.messages import RINGS, Tensor
from protos.steps import Note, Task
from support.rounds import TOTAL, confirm, offer, reach, session, upload, wanted

NAMES = ("cape", "east", "farm", "hill", "lake", "north", "port", "south", "tree", "west")
NOTES = (Note.SHARES, Note.REVEAL, Note.HEADS)
WORDS = (Task.SIGN, Task.OPEN, Task.ADOPT)
name = st.sampled_from(NAMES)
tensors = st.sampled_from((Tensor.HEADS, Tensor.ENCODER))


class Dwindling(RuleBasedStateMachine):
    """One attempt of four to ten silos. Kept beside its state: who was counted, who was lost, which lists were made."""

    @initialize(
        silos=st.integers(4, len(NAMES)),
        colluders=st.integers(0, 1),
        recovers=st.sampled_from((True, True, True, False)),
        phases=st.integers(0, 12),
        faithful=st.booleans(),
    )
    def begin(self, *, silos, colluders, recovers, phases, faithful):
        begun = offer(silos=NAMES[:silos], colluders=colluders, recovers=recovers)
        self.state, self.now = reach(Phase.EXCHANGE, begun), 0.0
        self.history: list[object] = []
        self.counted: dict[Tensor, Counter[str]] = {}
        self.lists: dict[Tensor, tuple[str, ...]] = {}
        self.lost: set[str] = set()
        self.faithful = faithful
        for _ in range(phases):
            self.act_all()

    def act_all(self):
        """Everybody who is asked in this phase acts."""
        for event in () if self.over else wanted(self.state):
            self.send(event)

    def send(self, event):
        before, self.history = self.state, [*self.history, event]
        try:
            after, effects = step(before, event, self.now)
        except WrongPhaseError:
            return
        if not effects:
            assert after is before
            return
        assert effects[0] == Persist()
        self.state = after
        if isinstance(event, Uploaded):
            assert event.header.silo not in self.lost, "nothing of the lost counts any more"
            if event.header.kind in RINGS:
                self.counted.setdefault(before.tensor, Counter())[event.header.silo] += 1
        if isinstance(event, Confirmed):
            assert event.silo not in self.lost
        for effect in effects[1:]:
            self.notice(before, effect)
        if after.phase in OVER:
            self.notice_end()

    def notice(self, before, effect):
        if isinstance(effect, Lost):
            shared = before.tensor is not Tensor.ENCODER and before.phase not in ADDED
            assert before.recovers or not shared, "a share of the noise would be missing"
            assert before.phase in SPARING
            assert self.lost.isdisjoint(effect.silos)
            self.lost.update(effect.silos)
            assert len(before.names) - len(self.lost) >= before.threshold
        elif isinstance(effect, Add):
            assert self.counted[effect.tensor] == Counter(effect.silos), "every upload in time, once"
            assert set(effect.silos) <= set(before.participants) <= set(before.names)
            assert len(effect.silos) >= before.threshold >= before.min_silos
            assert effect.tensor not in self.lists, "one list of survivors for a tensor"
            self.lists[effect.tensor] = effect.silos
        else:
            assert effect == Clear(before.place)
            assert self.state.phase in OVER

    def notice_end(self):
        if self.state.phase is Phase.ABORTED:
            assert self.state.why
        else:
            assert set(self.lists) == set(self.state.tensors)
            assert self.state.model == "m"

    @property
    def over(self):
        return self.state.phase in OVER

    @rule(turns=st.integers(1, 30), number=st.integers(0, 9))
    def act(self, turns, number):
        """Silos do what is asked, in any order."""
        for turn in range(turns):
            if not self.over:
                events = wanted(self.state)
                self.send(events[(turn + number) % len(events)])

    @rule(silo=name, also=name)
    def be_late(self, silo, also):
        """All others do what is asked in this phase, and its time passes."""
        phase = self.state.phase
        if self.over or phase is Phase.ADD:
            return
        for event in wanted(self.state):
            author = event.header.silo if isinstance(event, Uploaded) else event.silo
            if author not in (silo, also) and self.state.phase is phase:
                self.send(event)
        self.pass_time()

    def pass_time(self):
        if not self.over:
            self.now = max(self.now, self.state.deadline)
            self.send(Passed())

    @rule(silo=name)
    def revoke(self, silo):
        """Whoever is waited for is waited for no longer, now; who has done its part is not touched."""
        needed = not self.over and silo in self.state.waiting_for
        before = self.state
        self.send(Revoked((silo,)))
        assert needed or self.state is before
        assert self.over or silo not in self.state.waiting_for

    @rule(silo=name)
    def lose_keys(self, silo):
        self.send(Restarted(silo, session(silo, 2)))

    @rule(silo=name)
    def poll(self, silo):
        self.send(Restarted(silo, session(silo)))
        self.send(Returned(silo))
        assert self.over or silo not in self.state.absent

    @rule(silo=name, task=st.sampled_from((Task.OPEN, Task.ADOPT)))
    def hold_another_model(self, silo, task):
        self.send(confirm(self.state.place, silo, task, self.state.tensor, model=f"{silo}'s own"))

    @rule(silo=name, what=st.sampled_from((*NOTES, Tensor.HEADS, Tensor.ENCODER)), tensor=tensors)
    def upload_out_of_turn(self, silo, what, tensor):
        self.send(upload(self.state.place, silo, what, tensor if what is Note.REVEAL else None))

    @rule(silo=name, task=st.sampled_from(WORDS), tensor=tensors)
    def confirm_out_of_turn(self, silo, task, tensor):
        self.send(confirm(self.state.place, silo, task, tensor))

    @rule(number=st.integers(0, 200))
    def repeat(self, number):
        """Something that was said before is said again, now or by a stream that was delayed."""
        if self.history:
            self.send(self.history[number % len(self.history)])

    @rule()
    def add(self):
        if self.state.phase is Phase.ADD:
            self.send(Added(TOTAL))

    @invariant()
    def laws(self):
        if not hasattr(self, "state"):
            return
        state = self.state
        assert record.load(Round, record.dump(state)) == state
        assert state.lost == self.lost
        assert set(state.survivors) <= set(state.participants) <= set(state.names)
        assert all(times == 1 for silos in self.counted.values() for times in silos.values())
        assert self.lost.isdisjoint(state.asked)
        if state.phase in (Phase.ADD, *ADDED):
            assert state.survivors == self.lists[state.tensor], "the list never changes"
            assert {one.silo for one in state.signatures} <= set(state.survivors)
        if state.phase in (Phase.REVEAL, Phase.OPEN):
            assert len(state.signatures) >= state.threshold
        if state.phase is Phase.OPEN:
            assert sum(part.kind == Note.REVEAL for part in state.parts) >= state.threshold
        if not self.over:
            assert state.waiting_for or state.phase is Phase.ADD
            assert len(state.present) >= state.threshold

    def teardown(self):
        """Whatever has happened: those who are left can finish it; if they say nothing any more, its deadlines do."""
        if not hasattr(self, "state"):
            return
        over = self.over
        for _ in range(len(SPARING) * 2 + len(NAMES)):
            if self.faithful:
                self.act_all()
            else:
                self.pass_time()
        assert self.over
        assert over or not self.faithful or self.state.phase is Phase.COMMITTED or "different models" in self.state.why


Dwindling.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDwindling = Dwindling.TestCase


@pytest.mark.parametrize("silos", range(4, 11))
@pytest.mark.parametrize("phase", SPARING)
def test_as_many_may_vanish_at_once_as_need_not_stay(silos, phase):
    """Whatever the phase: one more than that, and the attempt ends."""
    state = reach(phase, offer(silos=NAMES[:silos]))
    spare = silos - state.threshold
    assert spare == silos - ((silos + 1) // 2 + 1)
    for silo in state.names[-spare:]:
        state, effects = step(state, Restarted(silo, "new"), 1.0)
        assert effects == [Persist(), Lost(state.place, phase, (silo,), f"{silo} was restarted and has lost its keys")]
    on = reach(Phase.COMMITTED, state)
    assert (on.lost, on.model) == (set(state.names[-spare:]), "m")
    ended, effects = step(state, Restarted(state.names[0], "new"), 1.0)
    assert (ended.phase, effects) == (Phase.ABORTED, [Persist(), Clear(state.place)])
    assert ended.why.endswith(f"; {silos - spare - 1} silos are left, but {silos - spare} are needed to open the sums")
