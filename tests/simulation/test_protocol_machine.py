"""The whole protocol under every disturbance at once: no order of them breaks an invariant of the sums.

Silos and coordinator die at any moment, messages are lost, late, doubled and repeated, time passes; and the coordinator
may repeat old words, and tell some silos of other survivors, with a silo beside it that signs whatever list it is
given. What a hostile silo does beside an honest coordinator is in `test_hostile_machine.py`.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator.core.state import Phase
from coordinator.core.study import Life
from policies.plan import quorum
from protos.steps import Task
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study
from support.simulated_machine import Disturbed, numbers, play, turns

EXAMPLES, RULES = 100, 12
SHAPES = ((4, 3, 1, "ring32"), (5, 4, 1, "ring64"), (5, 3, 0, "ring32"), (5, 4, 2, "ckks"))
"""Silos, min_silos, colluders, sealing of the encoder."""
CIRCLE = (8, 7, 1, "ring32")
"""A silo has six neighbours and not seven."""

shapes = st.sampled_from(SHAPES)


class Protocol(Disturbed):
    """One study, and a coordinator that may lie."""

    @initialize(shape=shapes, begun=st.booleans())
    def begin(self, shape, begun):
        self.begin_with(self.give(shape, begun))
        self.coordinator.colluder = self.silos[1].credential if shape[2] else None

    # --- what goes wrong on purpose ------------------------------------------------------------------------------
    @rule(after=turns, number=numbers, which=st.integers(0, 60))
    def hear_an_old_word_again(self, after, number, which):
        self.go_on(after, number)
        silo = self.pick(number)
        if silo.up and silo.heard:
            silo.step(again=silo.heard[-1 - which % len(silo.heard)])

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


class OnACircle(Leaving):
    """The same, where silos have neighbours."""

    @initialize(begun=st.booleans())
    def begin(self, begun):
        self.begin_with(self.give(CIRCLE, begun))
        self.coordinator.colluder = self.silos[1].credential

    def count(self):
        super().count()
        self.reached["on a circle"] += self.coordinator.round.circle.sparse


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


@pytest.mark.slow
def test_no_disturbance_breaks_an_invariant(federations):
    reached = play(Protocol, federations, examples=EXAMPLES, rules=RULES)
    assert all(reached.values()), reached


@pytest.mark.slow
def test_no_disturbance_breaks_an_invariant_though_silos_leave(federations):
    reached = play(Leaving, federations, examples=EXAMPLES, rules=RULES)
    assert reached["lists voided"], reached
    assert reached["sums opened after a void"], reached


@pytest.mark.slow
def test_no_disturbance_breaks_an_invariant_on_a_circle(federations):
    reached = play(OnACircle, federations, examples=30, rules=RULES)
    assert reached["on a circle"], reached
    assert reached["sums of fewer"], reached
    assert reached["lists voided"], reached
