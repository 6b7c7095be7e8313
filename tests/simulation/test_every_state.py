"""All states of a sealed sum and of a study's round, over the real cores of both ends, and faults that they would show.

`make every-state` goes further than `make test-slow` (`FEDWARD_EVERY_STATE`): docs/design/sums.md, "Every state", says
how far. A failure prints how it comes to the broken state.
"""

import os
import sys
from collections import deque
from dataclasses import replace
from itertools import product

import pytest

from coordinator.core import missed, phases
from coordinator.core import round as rounds
from coordinator.core.state import Phase
from policies.plan import quorum
from silo_agent.core.bonds import Bonds, SurvivorsError
from silo_agent.protocol.attempt import Attempt
from support import searched_rounds
from support.searched_rounds import RoundSearch
from support.searched_silo import World
from support.searched_sums import Search, essence, freer

WHOLE = bool(os.environ.get("FEDWARD_EVERY_STATE"))
whole = pytest.mark.skipif(not WHOLE, reason="`make every-state` goes this far")
slow = pytest.mark.slow
FOUR, FIVE = World(4, 3), World(5, 4)


def test_the_worlds_have_the_thresholds_of_their_studies():
    for world in (FOUR, FIVE):
        assert world.min_silos == quorum.least(world.silos, 1)


# --- sums -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("world", "attempts"),
    [
        (FOUR, 1),
        pytest.param(FOUR, 2, marks=slow),
        pytest.param(FIVE, 1, marks=slow),
        pytest.param(FOUR, 3, marks=slow),
        pytest.param(FIVE, 2, marks=slow),
    ],
)
def test_no_draw_follows_from_what_a_lying_coordinator_and_a_silo_can_open(world, attempts):
    found = Search(world, attempts).run()
    sys.stdout.write(f"{found}\n")
    assert not found.fault, found.fault
    assert found.sums
    assert found.renewed
    assert found.voided or attempts == 1


def planted(attempts=2, world=FOUR):
    """How a search with a planted fault comes to the broken state."""
    return Search(world, attempts).run().fault


def test_it_finds_a_threshold_that_counts_a_rosters_silos(monkeypatch):
    def of_the_roster(attempt):
        return max(2, (len(attempt.work.roster) + 1) // 2 + 1)

    monkeypatch.setattr(Attempt, "threshold", property(of_the_roster))
    told = planted(1)
    assert "is read" in told or "two opened sums" in told, told


def test_it_finds_a_threshold_that_is_one_too_small(monkeypatch):
    monkeypatch.setattr(Attempt, "threshold", property(lambda _: FOUR.min_silos - 1))
    assert "Then" in planted(1)


@pytest.mark.slow
def test_it_finds_a_void_after_a_reveal(monkeypatch):
    monkeypatch.setattr(Bonds, "void", lambda bonds, through: replace(bonds, voided=max(bonds.voided, through)))
    told = planted()
    assert "one draw is in two opened sums" in told, told
    assert "voids up to 1" in told


@pytest.mark.slow
def test_it_finds_a_second_list(monkeypatch):
    monkeypatch.setattr(Bonds, "require", lambda *_: None)
    told = planted()
    assert "one draw is in two opened sums" in told, told


def test_it_finds_that_a_silo_that_died_contributes_among_others(monkeypatch):
    monkeypatch.setattr(Bonds, "contribute", lambda bonds, *_: bonds)
    told = planted(1)
    assert "is read" in told, told


# --- what makes the search small --------------------------------------------------------------------------------------
LISTS = ((), ("ash", "birch", "cedar"), ("ash", "birch", "cedar", "elm"))


def all_bonds():
    """Bonds of all kinds, before the third attempt."""
    for names, signed, revealed, voided, closed, spoilt in product(LISTS, *[range(3)] * 2, *[range(2)] * 3):
        if bool(names) == bool(signed) and revealed <= signed:
            yield Bonds(names, signed, revealed, voided, closed, spoilt)


def steps(bonds, attempt):
    """What a silo may say or hear in an attempt, and how it stands afterwards; None if it refuses."""

    def tried(act):
        try:
            return act()
        except SurvivorsError:
            return None

    for names in LISTS[1:]:
        yield tried(lambda names=names: bonds.require(names, "") or bonds)
        yield tried(lambda names=names: bonds.sign(attempt, names, ""))
    yield tried(lambda: bonds.reveal(attempt, "") if bonds.signed == attempt else None)
    yield bonds.void(attempt - 1)
    for through in range(1, attempt):
        yield bonds.close(through)
        yield replace(bonds, spoilt=max(bonds.spoilt, through))


def test_who_is_freer_may_do_all_that_another_may_and_stays_freer():
    """So a state may stand for those beside it that have less freedom, and forget what is over."""
    open_ = deque((one, other) for one in all_bonds() for other in all_bonds() if freer(essence(one), essence(other)))
    seen = set(open_)
    assert len(seen) > 1000
    while open_:
        one, other = open_.popleft()
        for attempt in (3, 4):
            if attempt < max(one.signed, other.signed):
                continue
            for mine, theirs in zip(steps(one, attempt), steps(other, attempt), strict=True):
                if theirs is None:
                    continue
                assert mine is not None, (one, other, attempt)
                assert freer(essence(mine), essence(theirs)), (one, other, attempt)
                if attempt == 3 and (mine, theirs) not in seen:
                    seen.add((mine, theirs))
                    open_.append((mine, theirs))


# --- rounds -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("silos", "attempts", "hostile", "recovers", "faults"),
    [
        (4, 1, 0, True, 0),
        pytest.param(4, 1, 2, True, 1, marks=slow),
        pytest.param(4, 1, 1, False, 1, marks=slow),
        pytest.param(4, 2, 0, True, 0, marks=slow),
        pytest.param(5, 2, 0, True, 0, marks=slow),
        *(
            pytest.param(4, 1, hostile, recovers, 1, marks=[slow, whole])
            for hostile in range(4)
            for recovers in (False, True)
        ),
        *(pytest.param(4, 2, hostile, True, 1, marks=[slow, whole]) for hostile in range(4)),
        *(pytest.param(4, 2, hostile, False, 1, marks=[slow, whole]) for hostile in range(4)),
        *(pytest.param(5, 2, hostile, True, 0, marks=[slow, whole]) for hostile in range(1, 5)),
    ],
)
def test_every_state_of_a_round_ends_and_no_honest_silo_is_named(silos, attempts, hostile, recovers, faults):
    least, restarts = quorum.least(silos, 1), WHOLE or (hostile, faults, silos) == (0, 0, 4)
    reached = RoundSearch(silos, least, attempts, hostile, recovers, faults, restarts).run()
    sys.stdout.write(f"{reached}\n")
    assert not reached.fault, reached.fault
    assert reached.finished
    assert reached.named
    assert reached.recounts
    assert reached.waits or attempts == 1


def wrong(**changes):
    return RoundSearch(**{"silos": 4, "min_silos": 3, "attempts": 2, "hostile": 0} | changes).run().fault


def test_it_finds_a_phase_that_never_ends(monkeypatch):
    monkeypatch.delitem(phases._ENDS, Phase.RECOUNT)
    monkeypatch.setitem(phases._ENDS, Phase.RECOUNT, lambda state, _: (state, []))
    told = wrong(attempts=1)
    assert "never ends" in told, told
    assert "spoils the sum" in told


def test_it_finds_a_coordinator_that_forgets(monkeypatch):
    real = searched_rounds.record.load

    def forgetful(kind, text):
        progress = real(kind, text)
        return replace(progress, round=replace(progress.round, complaints=()))

    monkeypatch.setattr(searched_rounds.record, "load", forgetful)
    told = wrong(attempts=1, restarts=True)
    assert "Then a coordinator that begins again goes on from another state" in told, told


@slow
@whole
def test_it_finds_an_honest_silo_that_leaves_with_one_that_stayed_away(monkeypatch):
    real = missed.gone

    def all_missed(counts, now):
        return tuple(one.silo for one in counts if one.since is not None) if real(counts, now) else ()

    monkeypatch.setattr(missed, "gone", all_missed)
    told = wrong(faults=1)
    assert "which is honest, leaves the study: away" in told, told


def test_it_finds_an_honest_silo_that_is_named(monkeypatch):
    """Where who complains is named instead of who lied, an honest silo leaves."""
    real = rounds.MOVES[Phase.CHECK, rounds.Complained]

    def who_complains(state, event, now):
        return real(state, replace(event, liar=event.liar and event.silo), now)

    monkeypatch.setitem(rounds.MOVES, (Phase.CHECK, rounds.Complained), who_complains)
    told = wrong(attempts=1)
    assert "which is honest, leaves the study" in told, told
