"""How long each silo of a list is missed, against a clock that counts every second by itself."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core import missed
from coordinator.core.missed import LISTED_SECONDS, NOTICE_SECONDS, Missed
from coordinator.core.state import Listed, Phase, Round, Seat
from protos.messages import Place, Tensor
from support.rounds import LIMITS, STUDY, accept

SILOS = ("alder", "birch", "cedar")
ROUND = Round(Place(STUDY, 1, 2), (Tensor.COUNTS,), SILOS, 3, 1, True, LIMITS, listed=(Listed(Tensor.COUNTS, SILOS),))


def seated(names, phase=Phase.WAIT):
    members = [accept(ROUND.place, name).answer.member for name in sorted(names)]
    return replace(ROUND, phase=phase, seats=tuple(Seat(member, "s", "") for member in members))


@given(
    st.lists(
        st.tuples(
            st.sets(st.sampled_from(SILOS)),
            st.sampled_from((Phase.OFFER, Phase.WAIT, Phase.WAIT, Phase.GATHER)),
            st.booleans(),
            st.integers(0, 20 * 86400),
        ),
        max_size=12,
    )
)
def test_each_silo_s_own_seconds_without_a_seat_are_counted_and_no_others(steps):
    counts, spent, now = missed.counted((), ROUND, 0.0), dict.fromkeys(SILOS, 0), 0.0
    without = set(SILOS)
    for names, phase, stands, seconds in steps:
        counts = missed.counted(counts, seated(names, phase), now)
        without = set(SILOS) - names if phase is not Phase.GATHER else set()
        begin, now = now, now + seconds
        if stands:
            counts = missed.stood(counts, begin, now)
        else:
            spent = {silo: total + seconds * (silo in without) for silo, total in spent.items()}
        assert {one.silo: one.total(now) for one in counts} == spent
        assert {one.silo for one in counts if one.since is not None} == without
        assert set(missed.gone(counts, now)) == {silo for silo in without if spent[silo] >= LISTED_SECONDS}
        assert dict(missed.until(counts)) == {silo: now + LISTED_SECONDS - spent[silo] for silo in without}


def test_whoever_is_missed_is_gone_after_thirty_days():
    assert missed.until((Missed("alder", 0.0, 0.0),)) == (("alder", 30 * 24 * 3600),)


@pytest.mark.parametrize(
    "over",
    [None, replace(ROUND, listed=()), replace(ROUND, voiding=(Tensor.COUNTS,))],
    ids=["no round", "none", "void"],
)
def test_nobody_is_missed_where_no_list_binds(over):
    assert missed.counted((Missed("alder", 5.0, 3.0),), over, 9.0) == ()


def test_who_is_not_in_the_list_is_not_missed():
    counts = missed.counted((), replace(ROUND, listed=(Listed(Tensor.COUNTS, SILOS[:2]),)), 9.0)
    assert counts == (Missed("alder", since=9.0), Missed("birch", since=9.0))


def test_time_that_stands_for_an_absence_that_began_meanwhile_is_not_counted():
    assert missed.stood((Missed("alder", 5.0, 30.0),), 20.0, 50.0) == (Missed("alder", 5.0, 50.0),)


def test_whoever_is_missed_has_a_day_at_least_and_nobody_less_than_before():
    most = LISTED_SECONDS - NOTICE_SECONDS
    counts = (
        Missed("alder", 0.0, 100.0),
        Missed("birch", LISTED_SECONDS),
        Missed("cedar", 1.0, 2.0),
        Missed("elm", most - 5, 5.0),
        Missed("fir", 0.0, 9.0),
    )
    now = 2.0 + most
    eased = missed.noticed(counts, now)
    assert eased == (*counts[:2], Missed("cedar", most, now), Missed("elm", most, now), counts[4])
