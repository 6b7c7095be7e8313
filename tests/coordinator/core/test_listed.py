"""A list of survivors that was given out to be signed binds all later attempts at its round."""

import pytest

from coordinator.core.events import Passed, Returned, Stopped
from coordinator.core.state import Listed, Phase
from coordinator.core.study import Life, Script, advance, create, start
from coordinator.work import work_in
from protos import record
from protos.messages import Place, Task, Tensor
from support.rounds import LIMITS, STUDY, accept, refuse, wanted

FOUR = ("alder", "birch", "cedar", "elm")
THREE = ("alder", "cedar", "elm")
PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
LATER = LIMITS.train


def feed(state, *events, now=LATER):
    for event in events:
        state, _ = advance(state, event, now)
    return state


def until(state, condition):
    """Everybody does what is asked until the condition holds."""
    while not condition(state):
        state = feed(state, *wanted(state.round))
    return state


def at(number, phase, tensor=None):
    return lambda s: s.round.place.round == number and s.round.phase is phase and tensor in (None, s.round.tensor)


def begun(max_attempts=3):
    script = Script(STUDY, "tiny", FOUR, 3, 1, True, PLAN, LIMITS, max_attempts)
    return start(create(script), LATER)[0]


def without_birch(state, tensor):
    """Birch vanishes before it uploads a tensor of round 1; the others' sum is about to be signed."""
    state = until(state, at(1, Phase.GATHER, tensor))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "birch"))
    return until(feed(state, Passed(), now=LATER + LIMITS.train), at(1, Phase.SIGN, tensor))


@pytest.fixture
def signed():
    """The heads of three are listed, and the attempt has failed; birch is back."""
    state = without_birch(begun(), Tensor.HEADS)
    assert state.round.survivors == THREE
    return feed(state, Stopped("a sum that nobody could open"), Returned("birch"))


def test_the_next_attempt_is_made_with_the_listed_alone(signed):
    assert (signed.round.place, signed.round.invited) == (Place(STUDY, 1, 2), THREE)
    assert work_in(signed, "birch", told=False) is None
    state = until(signed, at(1, Phase.SIGN, Tensor.HEADS))
    assert state.round.survivors == THREE
    state = until(state, lambda s: s.round.place.round == 2)
    assert (state.round.place, state.round.invited) == (Place(STUDY, 2, 1), FOUR), "the next round asks all again"
    assert state.round.listed == ()


def test_it_waits_for_the_listed_by_name_and_uses_up_no_attempt(signed):
    place = signed.round.place
    state = feed(signed, accept(place, "alder", model="m"), accept(place, "cedar", model="m"))
    state = feed(state, Passed(), now=LATER + 2 * LIMITS.offer)
    assert (state.life, state.round.phase, state.round.place) == (Life.WAITING, Phase.WAIT, place)
    assert state.why == "the list of survivors that was given out in this round also needs elm; the round waits for elm"
    state = until(feed(state, Returned("elm")), lambda s: s.round.place.round == 2)
    assert state.life is Life.RUNNING


def test_without_one_that_left_the_study_ends_by_name(signed):
    state = feed(signed, refuse(signed.round.place, "elm"))
    state = feed(state, *wanted(state.round)) if state.life is Life.RUNNING else state
    assert state.life is Life.ENDED
    assert "round 1 cannot be attempted again without elm" in state.why


def test_one_that_vanishes_again_ends_the_attempt_and_not_the_list(signed):
    state = until(signed, at(1, Phase.GATHER))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "elm"))
    state = feed(state, Passed(), now=LATER + 3 * LIMITS.train)
    assert state.round.place == Place(STUDY, 1, 3)
    assert (state.round.invited, state.round.listed) == (THREE, (Listed(Tensor.HEADS, THREE),))


def test_in_a_later_sum_who_is_not_listed_is_set_aside_again():
    state = without_birch(begun(), Tensor.ENCODER)
    assert state.round.listed == (Listed(Tensor.HEADS, FOUR), Listed(Tensor.ENCODER, THREE))
    state = feed(state, Stopped("a sum that nobody could open"), Returned("birch"))
    assert state.round.invited == FOUR, "the heads were all four's"
    state = until(state, at(1, Phase.GATHER, Tensor.ENCODER))
    assert (state.round.participants, state.round.lost) == (THREE, {"birch"})
    assert "not in the list of survivors" in state.round.why_lost("birch")
    assert until(state, at(1, Phase.SIGN, Tensor.ENCODER)).round.survivors == THREE
    assert until(state, lambda s: s.round.place.round == 2).round.invited == FOUR


def test_one_of_a_later_sum_that_is_missing_when_the_gathering_ends_ends_the_attempt():
    state = feed(without_birch(begun(), Tensor.ENCODER), Stopped("no"), Returned("birch"))
    state = until(state, at(1, Phase.GATHER, Tensor.ENCODER))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "elm"))
    state = feed(state, Passed(), now=LATER + 3 * LIMITS.train)
    assert state.round.place == Place(STUDY, 1, 3)
    assert state.round.why == ""


def test_a_sum_that_nobody_was_asked_to_sign_binds_nobody():
    state = until(begun(), at(1, Phase.ADD, Tensor.HEADS))
    assert feed(state, Stopped("altered on the disk")).round.listed == ()


def test_the_list_outlasts_the_coordinator(signed):
    assert record.load(type(signed), record.dump(signed)) == signed


def test_the_work_says_who_was_listed(signed):
    state = until(signed, at(1, Phase.SIGN, Tensor.HEADS))
    work = work_in(state, "alder", told=False)
    assert (work.task, work.survivors, work.participants) == (Task.SIGN, THREE, THREE)
