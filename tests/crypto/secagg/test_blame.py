"""Who spoilt the sums, against brute force over all sets of silos."""

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.secagg import blame
from crypto.secagg.blame import explanations, named, provable, sit_out

NAMES = "abcdefg"
lists_of = st.lists(st.frozensets(st.sampled_from(NAMES), min_size=1), max_size=5)
colluders_of = st.integers(0, 3)


def subsets(most):
    return (frozenset(one) for one in chain.from_iterable(combinations(NAMES, size) for size in range(most + 1)))


def explain(lists, colluders):
    return [one for one in subsets(colluders) if all(one & names for names in lists)]


@settings(max_examples=300, deadline=None)
@given(lists=lists_of, colluders=colluders_of)
def test_the_minimal_explanations_are_those_of_brute_force(lists, colluders):
    every = explain(lists, colluders)
    assert set(explanations(lists, colluders)) == {one for one in every if not any(other < one for other in every)}


@settings(max_examples=300, deadline=None)
@given(lists=lists_of, colluders=colluders_of)
def test_named_is_who_every_explanation_contains(lists, colluders):
    every = explain(lists, colluders)
    assert named(lists, colluders) == (frozenset.intersection(*every) if every else frozenset())


@settings(max_examples=300, deadline=None)
@given(lists=lists_of.filter(bool), colluders=colluders_of)
def test_the_provable_set_is_a_smallest_one_that_meets_every_explanation(lists, colluders):
    found, every = provable(lists, colluders), explain(lists, colluders)
    assert all(found & one for one in every)
    if every:
        assert len(found) == min(len(one) for one in subsets(len(NAMES)) if all(one & other for other in every))
    else:
        assert found in lists


@settings(max_examples=300, deadline=None)
@given(lists=lists_of, colluders=colluders_of, spare=st.integers(0, 4), first=st.integers(0, 9), data=st.data())
def test_who_sits_out_explains_all_and_can_be_spared(lists, colluders, spare, first, data):
    active = sorted(data.draw(st.frozensets(st.sampled_from(NAMES), min_size=1)))
    left, away = set(NAMES) - set(active), data.draw(st.frozensets(st.sampled_from(NAMES)))
    found = sit_out(active, lists, colluders, spare, first, away=away)
    able = [one for one in explain(lists, colluders) if len(one - left) <= spare]
    assert (found is None) == (not able)
    if found is not None:
        assert found <= set(active)
        costs = [(len(one - left - away), len(one - left)) for one in able]
        assert (len(found - away), len(found)) == min(costs), "fewest of those that are there, then fewest"
        assert any(one - left == found for one in able)


def test_equals_take_turns():
    assert [sit_out("abc", ["abc"], 1, 1, first) for first in range(4)] == [{"a"}, {"b"}, {"c"}, {"a"}]


def test_who_is_away_sits_out_rather_than_others():
    assert {*sit_out("abc", ["ab"], 1, 1, 0, away="b"), *sit_out("abc", ["ab"], 1, 1, 1, away="b")} == {"b"}
    assert sit_out("abcd", ["ac", "bc"], 2, 2, 0) == {"c"}
    assert sit_out("abcd", ["ac", "bc"], 2, 2, 0, away="ab") == {"a", "b"}
    assert sit_out("abcd", ["ac", "bc"], 2, 1, 0, away="ab") == {"c"}, "two cannot be spared"


def test_nobody_is_named_where_too_much_would_have_to_be_looked_at(monkeypatch):
    lists = ["abcd", "aefg", "abef"]
    assert named(lists, 1) == {"a"}
    monkeypatch.setattr(blame, "MOST", 3)
    assert (named(lists, 1), provable(lists, 1), sit_out("abcdefg", lists, 1, 4, 0)) == (set(), set("abcd"), None)
