"""The whole protocol under every disturbance at once: no order of them breaks an invariant of the sums.

Silos and coordinator die at any moment, messages are lost, late, doubled and repeated, time passes; and the coordinator
may tell some silos of other survivors, with a silo beside it that signs whatever list it is given.
"""

import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coordinator.core.state import Phase
from coordinator.core.study import Life
from policies.plan import quorum
from protos.messages import Task
from silo_agent.protocol.client import CallRefused
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study

EXAMPLES, RULES = 60, 12
MORE = int(os.environ.get("FEDWARD_PROTOCOL_EXAMPLES", "0"))
"""So many new examples, instead of those that are the same every time."""
SHAPES = ((4, 3, 1, "ring32"), (5, 4, 1, "ring64"), (5, 3, 0, "ring32"), (5, 4, 2, "ckks"))
"""Silos, min_silos, colluders, sealing of the encoder."""

shapes = st.sampled_from(SHAPES)
numbers = st.integers(0, 4)
turns = st.integers(0, 40)
fates = st.sampled_from(["lost", "unanswered", "late", "twice"])


class Protocol(RuleBasedStateMachine):
    """One study; a rule names a silo by its place in the roster."""

    def __init__(self, federations, reached):
        super().__init__()
        self.give, self.reached, self.deaths = federations, reached, 0

    @initialize(shape=shapes, begun=st.booleans())
    def begin(self, shape, begun):
        self.federation = self.give(shape, begun)
        self.coordinator, self.witness = self.federation.coordinator, self.federation.witness
        self.silos = list(self.federation.silos.values())
        self.coordinator.colluder = self.silos[1].credential if shape[2] else None

    def pick(self, number):
        return self.silos[number % len(self.silos)]

    def asked(self, number):
        """The number-th of those who are up and asked for something."""
        asked = [silo for silo in self.silos if silo.up and self.coordinator.work(silo.name)]
        return asked[number % len(asked)] if asked else None

    def go_on(self, turns, first=0, until=()):
        """Silos do what is asked, in any order, and the coordinator adds; where nobody can, time passes."""
        for turn in range(turns):
            if not self.federation.running or self.coordinator.round.phase in until:
                return
            if silo := self.asked(first + turn):
                silo.step()
            elif self.coordinator.adding:
                self.coordinator.add()
            elif self.coordinator.round.phase is Phase.WAIT:
                self.come_back()
            else:
                self.coordinator.pass_deadline()

    def come_back(self):
        for silo in self.silos:
            self.begin_again(silo, back=True)

    def begin_again(self, silo, back):
        if back and not silo.up:
            silo.restart()

    # --- what goes well ------------------------------------------------------------------------------------------
    @rule(turns=turns, first=numbers)
    def come_back_and_work(self, turns, first):
        self.come_back()
        self.go_on(turns, first)

    # --- what goes wrong -----------------------------------------------------------------------------------------
    @rule(after=turns, number=numbers, fate=fates, back=st.booleans())
    def lose_or_double_a_message(self, after, number, fate, back):
        self.go_on(after, number)
        if silo := self.asked(number):
            silo.step(fate)
            self.begin_again(silo, back)

    @rule(after=turns, number=numbers)
    def deliver_late(self, after, number):
        self.go_on(after, number)
        self.pick(number).deliver_late()

    @rule(after=turns, number=numbers, write=st.integers(1, 6), back=st.booleans())
    def die_at_a_durable_write(self, after, number, write, back):
        self.go_on(after, number)
        if silo := self.asked(number):
            silo.step(dies_at=write)
            self.deaths += not silo.up
            self.begin_again(silo, back)

    @rule(after=turns, number=numbers, back=st.booleans())
    def die(self, after, number, back):
        self.go_on(after, number)
        self.pick(number).die()
        self.begin_again(self.pick(number), back)

    @rule(after=turns, number=numbers, which=st.integers(0, 60))
    def hear_an_old_word_again(self, after, number, which):
        self.go_on(after, number)
        silo = self.pick(number)
        if silo.up and silo.heard:
            silo.step(again=silo.heard[-1 - which % len(silo.heard)])

    @rule(after=turns, which=st.integers(0, 200))
    def upload_again(self, after, which):
        self.go_on(after)
        received = self.coordinator.received
        if received:
            try:
                self.coordinator.upload(*received[-1 - which % len(received)])
            except CallRefused:
                return

    @rule(after=turns, late=st.booleans(), seconds=st.floats(0, 30))
    def pass_time(self, after, late, seconds):
        self.go_on(after)
        if self.federation.running:
            self.coordinator.pass_deadline() if late else self.coordinator.pass_time(seconds)

    @rule(after=turns, seconds=st.floats(0, 1e4))
    def restart_the_coordinator(self, after, seconds):
        self.go_on(after)
        self.coordinator.restart(seconds)

    @rule(told=st.sets(numbers, min_size=1), without=numbers, first=numbers)
    def lie_about_survivors(self, told, without, first):
        """In the next sum some are told that one less is in it, and everybody goes on until somebody objects."""
        self.go_on(100, first, until=(Phase.ADD,))
        fewer = tuple(name for name in self.coordinator.round.survivors if name != self.pick(without).name)
        if self.coordinator.round.phase is Phase.ADD and len(fewer) > 1:
            self.coordinator.tell(frozenset(self.pick(number).name for number in told), fewer)
            self.go_on(3 * len(self.silos), first, until=(Phase.OFFER,))

    # --- what always holds ---------------------------------------------------------------------------------------
    @precondition(lambda self: hasattr(self, "witness"))
    @invariant()
    def nothing_happened_that_never_may(self):
        self.witness.check()

    def teardown(self):
        """Everybody comes back, nobody lies any more, and the round ends: committed, or by name."""
        if not hasattr(self, "witness"):
            return
        self.count()
        for silo in self.silos:
            silo.deliver_late()
        self.come_back()
        self.coordinator.lie = None
        progress, place = self.coordinator.progress, self.coordinator.round.place
        left = sum(silo.leaves for silo in self.silos)
        script = replace(progress.script, max_attempts=place.attempt + 2 + 2 * left)
        lied = any(
            names != self.coordinator.round.list_of(tensor)
            for (_, number, tensor), lists in self.witness.signed.items()
            for names in lists
            if number == place.round
        )
        self.coordinator.progress = replace(progress, script=script)
        self.federation.run(place.round)
        self.witness.check()
        # Who was lied to, and signed the lie, signs no other list in this round: it may end for want of attempts. And
        # a list that silos have revealed for is not voided, though one that it names has left for good.
        revealed = any(at.round == place.round for at, _, _ in self.witness.revealed)
        if not lied and not (left and revealed):
            committed = self.coordinator.round.place.round > place.round
            assert committed or self.coordinator.progress.life is Life.FINISHED, self.coordinator.progress.why
        self.federation.__exit__()

    def count(self):
        """That the runs reach what they are about."""
        witness, silos = self.witness, self.silos
        disputes = Counter(dispute.dispute for silo in silos for dispute in silo.disputes)
        lie = self.coordinator.lie
        self.reached["sums opened"] += len(witness.opened)
        self.reached["sums of fewer"] += sum(
            len(names) < len(silos) for sums in witness.opened.values() for names in sums
        )
        self.reached["attempt keys revealed"] += any(holders.key for holders in witness.revealed.values())
        self.reached["attempts anew"] += self.coordinator.round.place.attempt > 1
        self.reached["messages repeated"] += bool(witness.repeated())
        self.reached["lies"] += lie is not None
        self.reached["lies that were signed"] += lie is not None and bool(lie.signed)
        self.reached["second lists refused"] += bool(disputes["survivors"])
        self.reached["reveals refused"] += any(one.task is Task.REVEAL for silo in silos for one in silo.disputes)
        self.reached["work out of turn refused"] += bool(disputes["out_of_turn"])
        self.reached["deaths at a durable write"] += self.deaths
        self.reached["catching up"] += any(work.task is Task.CATCH_UP for silo in silos for work in silo.heard)


class Leaving(Protocol):
    """The same with silos that leave, so that the others void the lists that name them."""

    @rule(first=numbers, number=numbers)
    def leave_for_good_after_the_list(self, first, number):
        """A list was given out, nobody signs it in time, and one of its silos refuses all that follows."""
        self.go_on(100, first, until=(Phase.SIGN,))
        spare = len(self.silos) - quorum.needed(self.federation.study)
        if self.coordinator.round.phase is Phase.SIGN and sum(silo.leaves for silo in self.silos) < spare:
            self.pick(number).leaves = True
            self.coordinator.pass_deadline()

    def count(self):
        super().count()
        witness = self.witness
        self.reached["lists voided"] += any(witness.closed(number, tensor) for _, number, tensor in witness.voided)
        self.reached["sums opened after a void"] += any(
            (number, of) in witness.opened for _, number, of in witness.voided
        )


@pytest.fixture
def federations(quick_folders, credentials):
    """Gives federations of a shape: before their first round, or after round 0, which is run once for each shape."""
    with ExitStack() as stack:

        def fresh(shape):
            silos, min_silos, colluders, sealing = shape
            study = simulated_study(NAMES[:silos], min_silos, sealing, colluders)
            return SimulatedFederation(quick_folders(), study, credentials)

        @cache
        def begun(shape):
            made = stack.enter_context(fresh(shape))
            made.run(0)
            return made

        yield lambda shape, after_counts: begun(shape).fork(quick_folders()) if after_counts else fresh(shape)


def play(machine, federations):
    """What the runs of a machine have reached."""
    reached = Counter()
    fixed = settings(
        max_examples=MORE or EXAMPLES,
        stateful_step_count=RULES,
        derandomize=not MORE,
        database=None,
        deadline=None,
        phases=[HypothesisPhase.generate],  # to make a failure smaller would take longer than to understand it
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: machine(federations, reached), settings=fixed)
    return reached


@pytest.mark.slow
def test_no_disturbance_breaks_an_invariant(federations):
    reached = play(Protocol, federations)
    assert all(reached.values()), reached


@pytest.mark.slow
def test_no_disturbance_breaks_an_invariant_though_silos_leave(federations):
    reached = play(Leaving, federations)
    assert reached["lists voided"], reached
    assert reached["sums opened after a void"], reached
