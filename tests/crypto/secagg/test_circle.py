"""The circle of neighbours, and what holds on it whatever an adversary shows to whom (docs/design/sums.md)."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.secagg.circle import ALL_UP_TO, Circle, reach_of
from crypto.secagg.survivors import threshold

NAMES = tuple(f"silo-{number:03}" for number in range(1000))


def test_a_reach_is_one_more_than_may_be_missing_and_may_be_hostile():
    assert reach_of(128, 2, 120) == 8 + 2 + 1
    assert reach_of(128, 1, 127) == 3
    assert reach_of(128, 0, 128) == reach_of(128, 1, 128) == 2, "one silo alone is never enough"


@pytest.mark.parametrize(
    ("silos", "reach", "sparse"),
    [
        (64, 5, False),
        (65, 5, True),
        (ALL_UP_TO + 1, 31, True),
        (ALL_UP_TO + 1, 32, False),
        (128, 63, True),
        (128, 64, False),
        (128, 0, False),
        (128, -3, False),
    ],
)
def test_a_roster_is_sparse_only_where_it_is_large_and_twice_the_reach_is_smaller(silos, reach, sparse):
    made = Circle(NAMES[:silos], reach)
    assert made.sparse is sparse
    assert made.shares(40) == (reach if sparse else 40)
    assert len(made.holders(NAMES[3])) == (2 * reach + 1 if sparse else silos)


def test_holders_are_the_silos_before_and_behind_and_the_owner_in_the_rosters_order():
    made = Circle(NAMES[:70], 2)
    assert made.holders(NAMES[1]) == (*NAMES[:4], NAMES[69])
    assert made.neighbours(NAMES[1]) == (NAMES[0], *NAMES[2:4], NAMES[69])
    assert made.holders(NAMES[69]) == (*NAMES[:2], *NAMES[67:70])
    whole = Circle(NAMES[:3], 1)
    assert (whole.holders(NAMES[1]), whole.neighbours(NAMES[1])) == (NAMES[:3], (NAMES[0], NAMES[2]))
    with pytest.raises(KeyError):
        made.holders("hub")
    with pytest.raises(KeyError):
        whole.holders("hub")


@given(st.integers(2, 128), st.integers(0, 70))
def test_neighbours_are_mutual(silos, reach):
    made = Circle(NAMES[:silos], reach)
    near = {name: made.neighbours(name) for name in made.names}
    assert all(name in near[other] for name, others in near.items() for other in others)
    assert all(list(others) == sorted(set(others) - {name}) for name, others in near.items())


# --- what holds whatever an adversary does -------------------------------------------------------------------------


@dataclasses.dataclass
class Game:
    """A study's numbers, a roster, who is hostile, who has signed which list, and among whom each silo contributed."""

    made: Circle
    needed: int
    hostile: frozenset[str]
    signers: frozenset[str]
    listed: frozenset[str]
    among: dict[str, frozenset[str]]
    """By honest silo of the list."""

    def coefficients(self) -> set[frozenset[str]]:
        """The sets of honest uploads of which an adversary can only read the sum.

        An adversary that takes uploads together must take two together whose pair mask is on both. It can take no
        upload that bears the mask of a pair whose other upload does not.
        """
        honest = sorted(self.among)
        near = {name: set(self.made.neighbours(name)) & set(honest) for name in honest}
        group = {name: name for name in honest}
        covered = set()

        def root(name: str) -> str:
            while group[name] != name:
                name = group[name]
            return name

        for name in honest:
            for other in near[name] & self.among[name]:
                if name in self.among[other]:
                    group[root(name)] = root(other)
                else:
                    covered.add(name)
        sets: dict[str, set[str]] = {}
        for name in honest:
            sets.setdefault(root(name), set()).add(name)
        return {frozenset(one) for one in sets.values() if not one & covered}


@st.composite
def games(draw) -> Game:
    """Adversaries take silos away side by side, where it hurts most, or anywhere."""
    silos, colluders = draw(st.integers(66, 100), "N"), draw(st.integers(0, 6), "t")
    least = threshold(silos, colluders, 2)
    # Circles are sparse only where few may be missing.
    needed = draw(st.integers(max(least, silos - 20), silos), "T")
    roster = draw(st.integers(max(needed, ALL_UP_TO + 1), max(needed, ALL_UP_TO + 1, silos)), "n")
    names = tuple(NAMES[:roster])
    made = Circle(names, reach_of(silos, colluders, needed))
    spare = roster - needed

    def some(most: int, begin: int) -> set[str]:
        if draw(st.booleans()):
            return {names[(begin + step) % roster] for step in range(most)}
        return set(draw(st.permutations(names))[:most])

    hostile = some(colluders, 0)
    beside = draw(st.integers(0, roster - 1))
    silent = some(spare, draw(st.sampled_from((colluders, beside)))) - hostile
    signers = set(names) - silent
    listed = signers | {name for name in sorted(silent) if draw(st.booleans())}
    among = {}
    for name in listed - hostile:
        if name in signers:
            among[name] = frozenset(names) if draw(st.booleans()) else frozenset(listed)
        else:
            near = [one for one in made.neighbours(name) if one in signers]
            begin = draw(st.integers(0, len(near)))
            among[name] = frozenset(names) - set((near * 2)[begin : begin + spare])
    return Game(made, needed, frozenset(hostile), frozenset(signers), frozenset(listed), among)


@settings(deadline=None, max_examples=150)
@given(games())
def test_an_adversary_reads_the_sum_of_all_honest_silos_of_a_list_or_nothing(game):
    assert len(game.signers) >= game.needed
    assert all(len(others) >= game.needed for others in game.among.values())
    assert game.coefficients() <= {frozenset(game.among)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_thousand_silos_play_the_same_game(seed):
    """More than a federation has (`MAX_SILOS`): what holds does not rest on the numbers being small."""
    chance, names = random.Random(seed), NAMES  # noqa: S311  # games that repeat
    colluders, spare = chance.randrange(7), chance.randrange(1, 80)
    made, needed = Circle(names, reach_of(len(names), colluders, len(names) - spare)), len(names) - spare
    begin = chance.randrange(len(names))
    beside = [names[(begin + step) % len(names)] for step in range(spare + colluders)]
    gone = beside if chance.random() < 0.7 else chance.sample(names, spare + colluders)
    hostile, silent = set(gone[:colluders]), set(gone[colluders:])
    signers = set(names) - silent
    listed = signers | {name for name in silent if chance.random() < 0.5}
    among = {name: frozenset(chance.choice((names, listed))) for name in signers - hostile}
    for name in listed - signers:
        near = [one for one in made.neighbours(name) if one in signers]
        at = chance.randrange(len(near))
        among[name] = frozenset(names) - set((near * 2)[at : at + spare])
    game = Game(made, needed, frozenset(hostile), frozenset(signers), frozenset(listed), among)
    assert made.sparse
    assert game.coefficients() <= {frozenset(among)}


def test_the_same_game_is_lost_where_the_reach_is_too_small():
    """Two gaps of silos that are hostile or missing part the honest ones."""
    names, gone = NAMES[:70], {*NAMES[10:14], *NAMES[40:44]}
    honest = frozenset(names) - gone
    among = dict.fromkeys(honest, frozenset(honest))

    def parts(reach: int) -> int:
        return len(Game(Circle(names, reach), 62, frozenset(), honest, honest, among).coefficients())

    assert parts(4) == 2
    assert parts(reach_of(70, 0, 62)) == 1


def test_a_silo_whose_pair_masks_others_lack_is_not_read_at_all():
    names = NAMES[:70]
    among = {name: frozenset(names) - ({names[0]} if name != names[0] else set()) for name in names}
    assert Game(Circle(names, 3), 69, frozenset(), frozenset(names), frozenset(names), among).coefficients() == {
        frozenset(names[1:])
    }


@given(st.integers(66, 128), st.integers(0, 10), st.data())
def test_enough_shares_always_come_and_none_once_a_list_is_voided(silos, colluders, data):
    needed = data.draw(st.integers(threshold(silos, colluders, 2), silos), "T")
    roster = data.draw(st.integers(needed, silos), "n")
    made = Circle(NAMES[:roster], reach_of(silos, colluders, needed))
    shares, holders = made.shares(needed), len(made.holders(NAMES[0]))
    assert holders - (roster - needed) >= shares, "of T reveals enough are those of holders"
    assert silos - needed + colluders < shares, "too few have not promised to reveal nothing, or do not keep it"
    assert colluders < shares
