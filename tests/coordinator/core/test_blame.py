"""What is done about spoilt sums, played to the end with every guilty set and every way to behave."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.blame import judge, known
from crypto.secagg.survivors import threshold

NAMES = tuple("abcdefgh")


def test_what_is_known_is_said_in_plain_words():
    assert known((), 1) == ""
    assert known((("a", "b", "c"),), 1) == (
        "an attempt was spoilt by at least one of a, b, c; no smaller set can be proven, if at most 1 silo is hostile"
    )
    assert known((("a", "b", "c"), ("b", "d"), ("b",)), 2) == (
        "3 attempts were spoilt, and b took part in it, if at most 2 silos are hostile"
    )


def test_several_who_are_named_stand_in_order():
    assert ", ".join(NAMES) in known(tuple((name,) for name in reversed(NAMES)), len(NAMES))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_honest_are_neither_named_nor_for_ever_in_the_way(data):
    """Hostile silos spoil whichever sums they like of those that they are in; no more than t of them exist."""
    silos, colluders = data.draw(st.sampled_from([(n, t) for n in range(4, 9) for t in (1, 2)]))
    needed = threshold(silos, colluders, 0)
    guilty = set(data.draw(st.lists(st.sampled_from(NAMES[:silos]), min_size=1, max_size=colluders, unique=True)))
    active, aside, lists = list(NAMES[:silos]), (), ()
    for step in range(60):
        listed = tuple(name for name in active if name not in aside)
        assert len(listed) >= needed
        if not guilty.intersection(listed) or (lists and not data.draw(st.booleans())):
            return  # the sum opens
        assert listed not in lists, "nobody is asked for a list again that is known to be spoilt"
        lists = (*lists, listed)
        away = data.draw(st.frozensets(st.sampled_from(active), max_size=1))
        verdict = judge(active, lists, colluders, needed, step, away=away)
        assert set(verdict.named) <= guilty
        if verdict.over:
            assert any(name in verdict.why for name in guilty)
            return
        active = [name for name in active if name not in verdict.named]
        aside = verdict.aside
        assert len(active) - len(aside) >= needed
    pytest.fail("it comes to no end")


@pytest.mark.parametrize(("silos", "colluders"), [(6, 1), (7, 1), (8, 1), (8, 2)])
def test_who_spoils_always_is_out_in_the_end_if_as_many_can_be_spared(silos, colluders):
    needed = threshold(silos, colluders, 0)
    spare = silos - needed
    for guilty in combinations(NAMES[:silos], min(colluders, spare)):
        active, aside, lists = list(NAMES[:silos]), (), ()
        while set(guilty).intersection(active) - set(aside):
            lists = (*lists, tuple(name for name in active if name not in aside))
            verdict = judge(active, lists, colluders, needed, 0)
            assert not verdict.over, (guilty, lists)
            active, aside = [name for name in active if name not in verdict.named], verdict.aside
