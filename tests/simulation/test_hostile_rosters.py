"""A coordinator with one silo searches over rosters, lists, attempts, restarts and voids for two sums that it can read.

Two sums of different lists, or two with one and the same draw of a silo. Six silos with real ledgers, one colluder:
four must sign. Where the threshold counts a roster's silos again, the same search finds two lists; where the gate sends
a share of noise a second time, it finds one draw in two sums.
"""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from crypto.secagg.circle import Circle
from policies.plan import quorum
from policies.plan.release import plan
from silo_agent import gate
from silo_agent.protocol import tasks
from silo_agent.protocol.attempt import Attempt
from silo_agent.storage.promises import Promises
from support.simulated_adversary import Adversary
from support.simulated_federation import NAMES, simulated_study

SILOS, COLLUDER = NAMES[:6], NAMES[1]
EIGHT = NAMES[:8]
"""Of which a silo has six as neighbours, if one may be missing."""


class TwoSumsError(AssertionError):
    """Two sums of different lists were read."""


class OneDrawError(AssertionError):
    """Two sums that were read have one and the same draw of an honest silo in them."""


def machine(silos, *, few_reveal):  # noqa: C901  # one class, whose rules draw from these silos
    """The search among these silos. `few_reveal`: whether lists are tried that T sign and few reveal for."""
    names = st.lists(st.sampled_from(silos), min_size=3, unique=True)

    class Search(RuleBasedStateMachine):
        """One study, whose round 0 is attempted again and again."""

        def __init__(self, adversaries, found):
            super().__init__()
            self.give, self.found, self.adversary = adversaries, found, None

        @initialize()
        def begin(self):
            self.adversary = self.give()

        @rule(
            roster=names,
            without=st.sets(st.sampled_from(silos), max_size=2),
            signers=names,
            void=st.booleans(),
            again=st.booleans(),
        )
        def attempt(self, roster, without, signers, void, again):
            listed = [name for name in roster if name not in without]
            self.adversary.attempt(roster, listed, signers, void=void, again=again)

        @rule(roster=names, void=st.booleans(), again=st.booleans())
        def attempt_with_all_of_a_roster(self, roster, void, again):
            self.adversary.attempt(roster, roster, roster, void=void, again=again)

        @rule(again=st.booleans())
        def attempt_with_all(self, again):
            self.adversary.attempt(silos, silos, silos, again=again)

        @rule(signers=names, left=st.sampled_from(silos[2:]))
        def leave_a_list_unopened_and_void_it(self, signers, left):
            self.adversary.attempt(silos, silos, signers[:2], void=False)
            rest = [name for name in silos if name != left]
            self.adversary.attempt(rest, rest, rest, void=True)

        @rule(again=names)
        def restart(self, again):
            for name in again:
                self.adversary.silos[name].restart()

        @invariant()
        def at_most_one_list_is_opened(self):
            if self.adversary is not None and len(self.adversary.opened) > 1:
                raise TwoSumsError(self.adversary.opened)

        @invariant()
        def no_draw_is_read_twice(self):
            twice = (
                {} if self.adversary is None else {d: sums for d, sums in self.adversary.read.items() if len(sums) > 1}
            )
            if twice:
                raise OneDrawError(twice)

        def teardown(self):
            if self.adversary is None:
                return
            self.found["opened"] += len(self.adversary.opened)
            self.found["opened again"] += (
                len({attempt for sums in self.adversary.read.values() for attempt, _ in sums}) > 1
            )
            self.found["voided"] += self.adversary.voided
            self.adversary.close()

    class FewReveal(Search):
        @rule(
            revealers=st.lists(st.sampled_from(silos), min_size=1, max_size=2, unique=True),
            left=st.sampled_from(silos[2:]),
        )
        def have_a_list_revealed_by_few_and_voided_by_the_rest(self, revealers, left):
            rest = [name for name in silos if name != left]
            self.adversary.attempt(silos, silos, silos, void=False, revealers=revealers)
            self.adversary.attempt(rest, rest, rest, void=True)

    return FewReveal if few_reveal else Search


def search(adversaries, examples, steps, silos=SILOS, *, few_reveal=False):
    found = Counter()
    Search = machine(silos, few_reveal=few_reveal)
    run_state_machine_as_test(
        lambda: Search(adversaries, found),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[HypothesisPhase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    return found


@pytest.fixture
def adversaries(quick_folders, credentials, hub):
    """Gives adversaries of a study with so many silos at least."""

    def of(min_silos, mode="local", silos=SILOS):
        study = simulated_study(silos, min_silos, "ring32", privacy={"mode": mode, "colluders": 1})
        return lambda: Adversary(quick_folders(), study, credentials, COLLUDER, hub)

    return of


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_no_two_sums_of_different_lists_are_opened_and_no_draw_is_in_two(adversaries, mode):
    found = search(adversaries(4, mode), 6, 8)
    assert found["opened"], found
    assert found["voided"], found
    assert bool(found["opened again"]) == (mode == "distributed"), "the same list may be opened again, with fresh draws"


@pytest.mark.slow
def test_the_search_finds_one_draw_in_two_sums_where_shares_of_noise_are_sent_again(adversaries, monkeypatch):
    def resent(study):
        planned = plan(study)
        rounds = tuple(tuple(replace(one, resendable=True) for one in round_) for round_ in planned.rounds)
        return replace(planned, rounds=rounds)

    monkeypatch.setattr(gate, "plan", resent)
    with pytest.raises(OneDrawError):
        search(adversaries(4, "distributed"), 20, 8)


@pytest.mark.slow
def test_the_search_finds_two_where_the_threshold_counts_the_rosters_silos(adversaries, monkeypatch):
    def before(attempt):
        colluders = attempt.study.privacy.colluders
        return max(colluders + 1, (len(attempt.work.roster) + colluders) // 2 + 1, attempt.study.min_silos)

    monkeypatch.setattr(Attempt, "threshold", property(before))
    monkeypatch.setattr(quorum, "require", lambda _: None)
    monkeypatch.setattr(tasks, "_require_enough", lambda *_: None)
    monkeypatch.setattr(Promises, "require", lambda *_: None)
    with pytest.raises(TwoSumsError):
        search(adversaries(3), 20, 8)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_on_a_circle_no_two_sums_are_opened_though_few_reveal_and_the_rest_void(adversaries, mode):
    found = search(adversaries(7, mode, EIGHT), 6, 8, EIGHT, few_reveal=True)
    assert found["opened"], found
    assert found["voided"], found


def revealed_by_one_and_voided(adversary):
    """All sign one list and one reveals for it; then the rest void it, and sign and reveal for another."""
    one = EIGHT[2]
    rest = tuple(name for name in EIGHT if name != one)
    adversary.attempt(EIGHT, EIGHT, EIGHT, void=False, revealers=[one])
    adversary.attempt(rest, rest, rest, void=True)
    adversary.close()
    assert adversary.voided == 1
    return adversary.opened


@pytest.mark.slow
def test_on_a_circle_a_list_that_one_has_revealed_for_is_not_opened_where_the_rest_void_it(adversaries, monkeypatch):
    """Where a single share gives a secret, it is: what that one holds and what the colluder holds are all of them."""
    assert len(revealed_by_one_and_voided(adversaries(7, "local", EIGHT)())) == 1
    monkeypatch.setattr(Circle, "shares", lambda made, needed: 1 if made.sparse else needed)
    assert len(revealed_by_one_and_voided(adversaries(7, "local", EIGHT)())) == 2
