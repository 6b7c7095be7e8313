"""The base of hypothesis machines of the whole protocol: what goes well, and what goes wrong without anybody's will.

Silos and coordinator die at any moment, messages are lost, late, doubled and repeated, silos act in any order, and time
passes.
"""

import os
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from coordinator.core.state import Phase
from silo_agent.protocol.calls.client import CallRefused

MORE = int(os.environ.get("FEDWARD_PROTOCOL_EXAMPLES", "0"))
"""So many new examples, instead of those that are the same every time."""

numbers = st.integers(0, 7)
turns = st.integers(0, 40)
fates = st.sampled_from(["lost", "unanswered", "late", "twice"])


class Disturbed(RuleBasedStateMachine):
    """One study; a rule names a silo by its place in the roster. Who inherits begins the study with `begin_with`."""

    def __init__(self, federations, reached):
        super().__init__()
        self.give, self.reached, self.deaths = federations, reached, 0

    def begin_with(self, federation):
        self.federation = federation
        self.coordinator, self.witness = federation.coordinator, federation.witness
        self.silos = list(federation.silos.values())

    def pick(self, number):
        return self.silos[number % len(self.silos)]

    def asked(self, number):
        """The number-th of those who are up and asked for something that they do."""
        asked = [silo for silo in self.silos if silo.up and self.coordinator.work(silo.name) and not silo.quiet]
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
                for silo in self.silos:
                    silo.step()
            else:
                self.pass_over()

    def pass_over(self):
        """Nobody does anything more in this phase."""
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


def play(machine, federations, *, examples, rules):
    """What the runs of a machine have reached."""
    reached = Counter()
    fixed = settings(
        max_examples=MORE or examples,
        stateful_step_count=rules,
        derandomize=not MORE,
        database=None,
        deadline=None,
        phases=[HypothesisPhase.generate],  # to make a failure smaller would take longer than to understand it
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(lambda: machine(federations, reached), settings=fixed)
    return reached
