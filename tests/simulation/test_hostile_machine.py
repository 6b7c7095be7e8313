"""Hostile members among every disturbance: no order of what they do and what goes wrong breaks what is promised.

Up to t members of a study of 4 to 8 silos spoil sums, deal wrong shares, accuse others, share false models, fall
silent, garble keys and notes, contradict, and forge metrics. Silos and coordinator die, messages are lost, and time
passes. The gate, the policy and the ledgers are the real ones. However it goes, the study ends with a model that all
honest silos hold, by a hostile silo's name, or by the smallest set that can be proven; and nobody honest is named or
left out.
"""

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from coordinator.core.missed import LISTED_SECONDS
from coordinator.core.state import Phase
from coordinator.core.study import Life, expire
from policies.plan import quorum
from policies.plan.release import plan
from protos.messages import Tensor
from support import hostility
from support.simulated_coordinator import SimulatedCoordinator
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study
from support.simulated_machine import Disturbed, numbers, play, turns

EXAMPLES, RULES = 60, 10
ATTEMPTS = 100
"""More than any run needs; the machine ends a study that a hostile silo keeps from its end."""
STEPS, WAITS = 3000, 10
SHAPES = (
    *(
        (silos, colluders, mode, silos)
        for silos in (4, 5, 6, 7, 8)
        for colluders in (1, 2)
        for mode in ("local", "distributed")
    ),
    (8, 1, "local", 1),
    (8, 1, "distributed", 1),
)
"""Silos, colluders, noise, and how many may be missing at most. Of the last two, a silo has not all others as
neighbours."""

shapes_and_guilty = st.sampled_from(SHAPES).flatmap(
    lambda shape: st.tuples(
        st.just(shape), st.sets(st.integers(0, shape[0] - 1), min_size=1, max_size=shape[1]).map(frozenset)
    )
)
tensors = st.sets(st.sampled_from(list(Tensor)), min_size=1).map(frozenset)


class Hostile(Disturbed):
    """One study, an honest coordinator, and up to t silos that are hostile."""

    @initialize(drawn=shapes_and_guilty, forge=st.booleans(), persist=st.booleans(), call=st.booleans())
    def begin(self, drawn, forge, persist, call):
        """`persist`: whether the hostile silos go on to the end. `call`: whether silent silos call nevertheless."""
        shape, guilty = drawn
        self.begin_with(self.give(shape))
        self.guilty = [self.silos[number] for number in sorted(guilty)]
        self.names = {silo.name for silo in self.guilty}
        self.honest = [silo for silo in self.silos if silo not in self.guilty]
        for silo in self.guilty:
            silo.hostile = True
        self.witness.forgers = frozenset(self.names if forge else ())
        self.persist, self.call, self.acts, self.waits = persist, call, Counter(), 0

    def pass_over(self):
        """Time passes. A silent silo may call right before."""
        if self.call:
            for silo in self.guilty:
                if silo.up and silo.quiet:
                    silo.step()
        super().pass_over()
        self.waits += self.coordinator.round.phase is Phase.WAIT

    # --- what hostile silos do -----------------------------------------------------------------------------------
    def act(self, number, act, *given):
        silo = self.guilty[number % len(self.guilty)]
        act(silo, *given)
        self.acts[act.__name__] += 1

    @rule(number=numbers, after=turns, first=numbers)
    def offer_bad_keys(self, number, after, first):
        self.act(number, hostility.offer_bad_keys)
        self.go_on(after, first)

    @rule(number=numbers, of=tensors, after=turns, first=numbers)
    def spoil(self, number, of, after, first):
        self.act(number, hostility.spoil, of)
        self.go_on(after, first)

    @rule(number=numbers, victims=st.sets(numbers, min_size=1), after=turns, first=numbers)
    def deal_wrongly(self, number, victims, after, first):
        names = frozenset(self.pick(victim).name for victim in victims)
        self.act(number, hostility.deal_wrongly, names)
        self.go_on(after, first)

    @rule(number=numbers, victim=numbers, how=st.sampled_from(["right", "wrong", "none"]), after=turns, first=numbers)
    def accuse(self, number, victim, how, after, first):
        self.act(number, hostility.accuse, victim, how)
        self.go_on(after, first)

    @rule(number=numbers, phase=st.sampled_from(hostility.PHASES), after=turns, first=numbers)
    def fall_silent(self, number, phase, after, first):
        self.act(number, hostility.fall_silent, phase)
        self.go_on(after, first)

    @rule(number=numbers, kind=st.sampled_from(hostility.GARBLED), at=st.integers(0, 4000), after=turns, first=numbers)
    def garble(self, number, kind, at, after, first):
        self.act(number, hostility.garble, kind, at)
        self.go_on(after, first)

    @rule(number=numbers, after=turns, first=numbers)
    def leave_its_note_unsigned(self, number, after, first):
        self.act(number, hostility.leave_its_note_unsigned)
        self.go_on(after, first)

    @rule(number=numbers, away=numbers, after=turns, first=numbers)
    def share_another_model(self, number, away, after, first):
        """A hostile silo is ready to, and another one misses a round."""
        self.act(number, hostility.share_another_model)
        self.pick(away).die()
        self.go_on(after, first)

    @rule(number=numbers, task=st.sampled_from(hostility.DISPUTED), after=turns, first=numbers)
    def dispute(self, number, task, after, first):
        self.act(number, hostility.dispute, task)
        self.go_on(after, first)

    @rule(number=numbers, after=turns, first=numbers)
    def hold_another_model(self, number, after, first):
        self.act(number, hostility.hold_another_model)
        self.go_on(after, first)

    @rule(number=numbers, after=turns, first=numbers)
    def call_spoilt(self, number, after, first):
        self.act(number, hostility.call_spoilt)
        self.go_on(after, first)

    @rule(number=numbers, victim=numbers, after=turns, first=numbers)
    def state_a_culprit(self, number, victim, after, first):
        self.act(number, hostility.state_a_culprit, victim)
        self.go_on(after, first)

    @rule(number=numbers, victim=numbers, after=turns, first=numbers)
    def find_another_liar(self, number, victim, after, first):
        self.act(number, hostility.find_another_liar, victim)
        self.go_on(after, first)

    @rule(number=numbers, after=turns, first=numbers)
    def misjudge(self, number, after, first):
        self.act(number, hostility.misjudge)
        self.go_on(after, first)

    @rule(number=numbers, after=turns, first=numbers)
    def behave(self, number, after, first):
        self.act(number, hostility.behave)
        self.go_on(after, first)

    # --- what always holds ---------------------------------------------------------------------------------------
    @precondition(lambda self: hasattr(self, "names"))
    @invariant()
    def nothing_happened_that_never_may(self):
        self.witness.check()
        self.nobody_honest_is_named()
        self.blame_follows_from_the_lists()
        self.charges_are_those_of_the_plan()

    def nobody_honest_is_named(self):
        progress = self.coordinator.progress
        left = {one.name: one.why for one in progress.silos if one.why}
        assert left.keys() <= self.names, left
        assert all(self.names & set(names) for names in progress.spoilt), progress.spoilt

    def blame_follows_from_the_lists(self):
        """Whom the study names, and who sits out, as all sets of at most t silos say that explain its spoilt sums."""
        progress, colluders = self.coordinator.progress, self.federation.study.privacy.colluders
        lists = [set(names) for names in progress.spoilt]
        known = {frozenset(names) for _, names, culprit in self.witness.proven() if not culprit}
        sums = {frozenset(names) for names in progress.spoilt if len(names) >= quorum.needed(self.federation.study)}
        assert sums <= known, f"{sums} were called spoilt, and too few silos have stated it: {known}"
        named = {one.name for one in progress.silos if one.why.startswith("named")}
        everybody = [silo.name for silo in self.silos]
        sets = [set(one) for size in range(colluders + 1) for one in combinations(everybody, size)]
        explaining = [one for one in sets if all(one & names for names in lists)]
        assert named == (set.intersection(*explaining) if lists else set()), (named, lists)
        spare = len(progress.active) - quorum.needed(self.federation.study)
        spared = [one & set(progress.active) for one in explaining if len(one & set(progress.active)) <= spare]
        if lists and self.federation.running and spared and all(spared):
            assert progress.aside, f"nobody sits out, though {spared} could"
        if progress.aside:
            assert set(progress.aside) in explaining or set(progress.aside) | named in explaining, progress.aside
            staying = set(progress.active) - set(progress.aside)
            if len(staying) < quorum.needed(self.federation.study):
                # Others have left since, and without those that sit out there could never be enough again.
                assert len(progress.active) < len(self.silos)
                assert set(progress.needed) == set(progress.active), "who sits out is asked again"
        if progress.life is Life.ENDED and "no smaller set can be proven" in progress.why:
            provable = progress.why.partition("by at least one of ")[2].partition(";")[0].split(", ")
            minimal = [one for one in explaining if not any(other < one for other in explaining)]
            hits = [
                set(one)
                for size in range(1, len(everybody) + 1)
                for one in combinations(everybody, size)
                if all(set(one) & other for other in minimal)
            ]
            assert set(provable) in hits, (provable, lists)
            assert len(provable) == len(hits[0]), (provable, hits[0])

    def charges_are_those_of_the_plan(self):
        """Of every draw one charge, and another one only of a new attempt that needs it."""
        study = self.federation.study
        for silo in self.honest:
            if not silo.up:
                continue
            for number in range(plan(study).last + 1):
                charged = silo.gate.ledger.charged(study.digest, number)
                spoilt = {place.attempt for place, _, _ in self.witness.proven() if place.round == number}
                anew = 0
                for release in plan(study).round(number):
                    attempts = sorted(at for of, at in charged if of == release.tensor)
                    if release.resendable:
                        again = list(pairwise(attempts))
                        assert all(any(a <= at < b for at in spoilt) for a, b in again), (silo.name, number, charged)
                        anew = max(anew, len(again))
                if charged:
                    attempts = len({at for _, at in charged})
                    most = Counter(plan(study).repeated_costs(number, attempts, anew))
                    assert Counter(charged.values()) <= most, (silo.name, number, charged)

    # --- the end -------------------------------------------------------------------------------------------------
    def teardown(self):
        """Everybody comes back, and the study ends, whether the hostile silos go on or not."""
        if not hasattr(self, "names"):
            return
        for silo in self.silos:
            silo.deliver_late()
        self.come_back()
        self.waits = 0
        if not self.persist:
            for silo in self.guilty:
                hostility.behave(silo)
        coordinator = self.coordinator
        most = coordinator.round.place.attempt + 8 if self.persist else ATTEMPTS
        coordinator.progress = replace(
            coordinator.progress, script=replace(coordinator.progress.script, max_attempts=most)
        )
        for step in range(STEPS):
            if self.waits > WAITS and coordinator.progress.missed:
                self.thirty_days_pass()
            if not self.federation.running or self.waits > WAITS:
                break
            self.go_on(20, step)
            self.nothing_happened_that_never_may()
        progress = coordinator.progress
        self.count(progress)
        if self.waits > WAITS:
            # Who never answers is waited for, if there are too few others. The operator sees for whom.
            assert self.persist
            assert len(coordinator.round.names) < coordinator.progress.script.min_silos
            assert self.names >= set(coordinator.round.unanswered), coordinator.round.why
        elif progress.life is not Life.FINISHED:
            assert progress.life is Life.ENDED, coordinator.round
            assert any(name in progress.why for name in self.names), progress.why
            left, culprits = len(progress.active) < len(self.silos), set(coordinator.round.culprits)
            assert left or progress.spoilt or (culprits and culprits <= self.names), progress.why
        else:
            self.all_honest_silos_hold_one_model()
        self.federation.__exit__()

    def thirty_days_pass(self):
        """Whoever of a list is not there by then has left, and only hostile silos are not there."""
        coordinator = self.coordinator
        assert self.persist
        assert self.names >= set(coordinator.round.unanswered), coordinator.round.why
        coordinator.progress, effects = expire(coordinator.progress, coordinator.now + LISTED_SECONDS)
        assert effects
        self.waits = 0

    def all_honest_silos_hold_one_model(self):
        study = self.federation.study
        held = Counter(
            current[0].digest
            for silo in self.honest
            if (current := silo.agent._tasks.models.held(study, study.rounds)) is not None
        )
        assert len(held) == 1, held
        assert held.total() >= quorum.needed(study) - len(self.guilty), held

    def count(self, progress):
        self.reached.update(self.acts)
        self.reached[f"{len(self.silos)} silos"] += 1
        self.reached[progress.life] += 1
        self.reached["spoilt sums"] += len(progress.spoilt)
        self.reached["named"] += any(one.why.startswith("named") for one in progress.silos)
        self.reached["aside"] += bool(progress.aside)
        self.reached["charged anew"] += any(
            at > 1
            for silo in self.honest
            for n in range(4)
            for _, at in silo.gate.ledger.charged(self.federation.study.digest, n)
        )


@pytest.fixture
def federations(quick_folders, credentials, hub):
    """Gives federations of a shape, before their first round."""

    def fresh(shape):
        silos, colluders, mode, missing = shape
        least = max(quorum.least(silos, colluders), silos - missing)
        privacy = {"mode": mode, "colluders": colluders}
        study = simulated_study(NAMES[:silos], least, "ring32", privacy=privacy, max_attempts=ATTEMPTS)
        coordinator = SimulatedCoordinator(study, ATTEMPTS)
        return SimulatedFederation(quick_folders(), study, credentials, coordinator=coordinator, hub=hub)

    return fresh


def test_whatever_hostile_members_do_the_study_ends_as_promised(federations):
    reached = play(Hostile, federations, examples=2, rules=RULES)
    assert reached[Life.FINISHED], reached


@pytest.mark.slow
def test_whatever_hostile_members_do_longer(federations):
    reached = play(Hostile, federations, examples=EXAMPLES, rules=RULES)
    assert all(reached[act] for act in ("named", "aside", "charged anew", Life.FINISHED, Life.ENDED)), reached
