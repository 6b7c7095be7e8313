"""How phases end, for every phase at once: by all that act, by a silo that is lost, by a dispute.

The tables of `test_round` show single moves. Here stand the laws that hold for all phases alike.
"""

from dataclasses import replace

import pytest

from coordinator.core.events import Add, Clear, Lost
from coordinator.core.phases import abort, acted, complain, end, enter, lose, rostered
from coordinator.core.round import step
from coordinator.core.state import COLLECTED, CONFIRMED, JUDGED, OVER, SPARING, Listed, Phase
from protos.messages import Tensor
from support.rounds import CATCHING_UP, FIVE, dispute, offer, reach, wanted, with_a_void, with_one_behind

SEVERAL_ACT = (*COLLECTED, *CONFIRMED, Phase.GATHER)
NORTH = "north"


def of_five(phase, **changes):
    """A round of five silos, of which four must stay, at the first moment of a phase."""
    begins = {Phase.VOID: with_a_void, **dict.fromkeys(CATCHING_UP, with_one_behind)}.get(phase, offer)
    return reach(phase, begins(silos=FIVE, **changes))


@pytest.mark.parametrize("phase", SEVERAL_ACT)
def test_the_last_of_those_that_act_ends_the_phase_and_nobody_before(phase):
    state = of_five(phase)
    for silo in state.waiting_for[:-1]:
        state, effects = acted(state, silo, 1.0)
        assert (state.phase, state.since, effects) == (phase, 0.0, [])
    (last,) = state.waiting_for
    if phase in (Phase.GREET, Phase.TAKE, Phase.CATCH_UP, Phase.EXCHANGE, Phase.REVEAL):  # nothing else is needed
        state, _ = acted(state, last, 1.0)
    else:
        for event in wanted(state):
            state, _ = step(state, event, 1.0)
    assert state.phase is not phase
    assert state.since == 1.0


@pytest.mark.parametrize("phase", JUDGED)
def test_what_one_objects_to_waits_until_all_who_judge_it_have_spoken(phase):
    state = of_five(phase)
    judging = state.waiting_for
    first, *rest = judging
    heard, _ = step(state, dispute(state.place, first, CONFIRMED[phase], state.tensor), 0.0)
    assert (heard.phase is phase) == bool(rest)
    assert first in heard.dropped


@pytest.mark.parametrize("phase", SPARING)
def test_a_lost_silo_is_set_aside_with_the_reason_and_the_fourth_of_five_still_suffices(phase):
    state, (one, two) = of_five(phase), FIVE[1:3]
    after, effects = lose(state, (one,), "it is late", 0.0)
    assert after.phase not in OVER
    assert after.why_lost(one) == "it is late"
    assert Lost(state.place, phase, (one,), "it is late") in effects
    assert one not in after.waiting_for
    ended, effects = lose(after, (two,), "late, too", 0.0)
    assert (ended.phase, ended.culprits, effects) == (Phase.ABORTED, (two,), [Clear(state.place)])
    assert ended.why == "late, too; 3 silos are left, but 4 are needed to open the sums"


@pytest.mark.parametrize("phase", [Phase.EXCHANGE, Phase.CHECK, Phase.GATHER, Phase.ADD, Phase.SIGN])
def test_with_distributed_noise_nobody_is_spared_before_the_list_of_the_survivors_is_made(phase):
    tensors = (Tensor.ENCODER, Tensor.HEADS)
    after, _ = lose(reach(phase, offer(tensors, silos=FIVE, recovers=False)), (NORTH,), "it is late", 0.0)
    if phase is Phase.SIGN:
        assert after.phase is phase
    else:
        assert after.why == "it is late; with distributed noise a dropout aborts the attempt"
        assert after.culprits == (NORTH,)


def test_the_second_dispute_at_one_silo_leaves_it_out_and_the_first_does_not():
    state = of_five(Phase.SIGN)
    first, effects = complain(state, NORTH, "it disputes", 0.0)
    assert (first.phase, first.complaints, first.left_out) == (Phase.ABORTED, (NORTH,), frozenset())
    assert effects == [Clear(state.place)]
    again, _ = complain(enter(first, Phase.SIGN, 0.0), NORTH, "it disputes", 0.0)
    assert again.phase is Phase.SIGN
    assert again.why_lost(NORTH) == "it disputes; it has disputed before, so the others go on without it"
    early, _ = complain(enter(first, Phase.TAKE, 0.0), NORTH, "it disputes", 0.0)
    assert (early.phase, early.left_out) == (Phase.ABORTED, {NORTH})


def test_a_silo_whose_list_may_be_open_is_never_left_out():
    state = of_five(Phase.REVEAL)
    assert NORTH in state.list_of(state.tensors[0])
    first, _ = complain(state, NORTH, "it disputes", 0.0)
    early, _ = complain(enter(first, Phase.TAKE, 0.0), NORTH, "it disputes", 0.0)
    assert early.left_out == frozenset()


def test_a_list_holds_exactly_those_that_have_uploaded_and_is_added_as_it_is():
    state = of_five(Phase.GATHER)
    state, _ = lose(state, (NORTH,), "it is late", 0.0)
    for silo in state.waiting_for:
        state, effects = acted(state, silo, 0.0)
    rest = tuple(name for name in FIVE if name != NORTH)
    assert (state.phase, state.survivors, effects) == (Phase.ADD, rest, [Add(state.place, state.tensors[0], rest)])


def test_whoever_is_not_in_the_list_of_an_earlier_attempt_is_set_aside_by_name():
    state = of_five(Phase.CHECK)
    state = replace(state, listed=(Listed(state.tensors[0], tuple(name for name in FIVE if name != NORTH)),))
    state, effects = end(state, 0.0)
    why = "north: not in the list of survivors that an earlier attempt gave out for the heads"
    assert (state.phase, state.why_lost(NORTH)) == (Phase.GATHER, why)
    assert effects == [Lost(state.place, Phase.CHECK, (NORTH,), why)]


def test_who_has_keys_and_the_model_goes_straight_to_the_exchange():
    state = of_five(Phase.GREET)
    members = state.members
    assert rostered(state, 0.0).phase is Phase.GREET
    at_home = offer(silos=FIVE, keyed=members)
    for event in wanted(at_home):
        at_home, _ = step(at_home, event, 0.0)
    assert at_home.phase is Phase.EXCHANGE
    assert rostered(of_five(Phase.CATCH_UP), 0.0).phase is Phase.GREET


def test_an_end_says_why_and_by_whom_and_clears_what_was_uploaded():
    state, effects = abort(of_five(Phase.GATHER), "enough", 3.0, (NORTH,))
    assert (state.phase, state.since, state.why, state.culprits) == (Phase.ABORTED, 3.0, "enough", (NORTH,))
    assert (state.waiting_for, effects) == ((), [Clear(state.place)])


def opened(minority):
    """The sum is open at all five, and some of them hold another model than the rest."""
    state, effects = of_five(Phase.OPEN), []
    of_some, of_most = wanted(state, "other"), wanted(state, "m")
    for some, most in zip(of_some, of_most, strict=True):
        state, effects = step(state, some if some.silo in minority else most, 0.0)
    return state, effects


def test_a_model_of_the_minority_is_set_aside_and_no_model_of_most_ends_the_attempt():
    state, effects = opened(minority=FIVE[:1])
    assert (state.phase, state.model) == (Phase.SOLVE, "m")
    assert [one.silos for one in effects if isinstance(one, Lost)] == [(FIVE[0],)]
    split, _ = opened(minority=FIVE[:2])
    assert split.why == "the silos hold different models after open; in the minority: east, north"
    assert split.culprits == (), "two may not be hostile, so one of them may be right"


def test_a_phase_that_one_silo_or_the_coordinator_ends_alone_has_no_end_of_its_own():
    for phase in (Phase.DEAL, Phase.SHARE, Phase.ADD, Phase.SOLVE):
        with pytest.raises(KeyError):
            end(of_five(phase), 0.0)
