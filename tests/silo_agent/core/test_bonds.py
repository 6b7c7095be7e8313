"""What binds a silo in its sums, as laws over any order of promises. `storage/test_promises.py` has each message."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.core.bonds import Bonds, SurvivorsError

ONE, OTHER = ("ash", "birch", "cedar"), ("ash", "birch", "elm")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["contribute", "sign", "reveal", "void", "close", "spoilt"]),
        st.integers(1, 4),
        st.sampled_from([ONE, OTHER]),
    ),
    max_size=12,
)


def follow(steps):
    """What was done, and the bonds after it. Attempts only go up, as a silo is asked."""
    bonds, done, latest = Bonds(), [], 0
    for act, ahead, names in steps:
        attempt = latest = min(max(latest, ahead), 4)
        try:
            if act in {"contribute", "sign"}:
                after = getattr(bonds, act)(attempt, names, "heads")
            elif act == "reveal":
                after = bonds.reveal(attempt, "heads")
            elif act == "spoilt":
                after = replace(bonds, spoilt=max(bonds.spoilt, attempt - 1))
            else:
                after = getattr(bonds, act)(attempt - 1)
        except SurvivorsError:
            continue
        if after is not None:
            bonds = after
            done.append((act, attempt, names))
    return bonds, done


@given(STEPS)
def test_in_no_order_is_a_second_list_signed_while_the_first_binds(steps):
    _, done = follow(steps)
    for at, (act, attempt, names) in enumerate(done):
        if act != "sign":
            continue
        for place, (other, then, of) in enumerate(done[:at]):
            if other == "sign" and of != names:
                freed = [till - 1 for how, till, _ in done[place:at] if how in {"close", "spoilt"}]
                assert max(freed, default=0) >= then, (done, attempt)


@given(STEPS)
def test_in_no_order_is_anything_revealed_that_was_voided_or_voided_that_was_revealed(steps):
    _, done = follow(steps)
    for at, (act, attempt, _) in enumerate(done):
        voids = [till - 1 for other, till, _ in done[:at] if other == "void"]
        reveals = [when for other, when, _ in done[:at] if other == "reveal"]
        spoilt = [till - 1 for other, till, _ in done[:at] if other == "spoilt"]
        closed = [till - 1 for other, till, _ in done[:at] if other == "close"]
        if act == "reveal":
            assert attempt > max(voids, default=0)
            assert attempt > max(spoilt, default=0)
        if act == "void":  # who has revealed promises nothing, until all of that is over anyway
            assert max(reveals, default=0) <= max([0, *spoilt, *closed])


@given(STEPS)
def test_one_attempt_has_one_set_of_participants(steps):
    _, done = follow(steps)
    among = {}
    for act, attempt, names in done:
        if act == "contribute":
            assert among.setdefault(attempt, names) == names


def test_what_binds_says_so():
    bound = Bonds().sign(1, ONE, "heads")
    with pytest.raises(SurvivorsError, match="ash, birch, cedar"):
        bound.sign(2, OTHER, "heads")
    assert bound.sign(2, ONE, "heads").names == ONE
    assert bound.close(1).sign(2, OTHER, "heads").names == OTHER


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([ONE, OTHER, ONE[:2]])), max_size=8))
def test_one_attempt_has_one_set_of_participants_in_whatever_order_attempts_are_asked_for(asked):
    bonds, among = Bonds(), {}
    for attempt, names in asked:
        try:
            bonds = bonds.contribute(attempt, names, "heads")
        except SurvivorsError:
            assert attempt < max(among) or among[max(among)] != names
            continue
        assert among.setdefault(attempt, names) == names
        assert (bonds.sent, bonds.among) == (max(among), names)


@pytest.mark.parametrize(
    ("bonds", "binds"),
    [
        (Bonds(), False),
        (Bonds(ONE), True),
        (Bonds(ONE, spoilt=1), False),
        (Bonds(ONE, closed=1), True),
        (Bonds(ONE, signed=1), True),
        (Bonds(ONE, signed=1, closed=1), False),
        (Bonds(ONE, signed=2, closed=1, spoilt=1), True),
        (Bonds(ONE, signed=2, spoilt=2), False),
    ],
)
def test_a_list_binds_until_its_attempt_is_over_and_for_ever_if_that_is_unknown(bonds, binds):
    assert bonds.binds is binds
    assert bonds.list == (ONE if binds else ())


def test_at_first_nothing_is_promised():
    assert Bonds() == Bonds((), signed=0, revealed=0, voided=0, closed=0, spoilt=0, sent=0, among=())
    assert Bonds().void(2) == Bonds(voided=2)
    assert Bonds(ONE).void(2) is None
