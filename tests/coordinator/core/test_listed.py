"""A list of survivors that was given out to be signed binds all later attempts at its round."""

from dataclasses import replace

import pytest

from coordinator.core.events import Clear, Confirmed, Passed, Persist, Restarted, Returned, RoundStopped
from coordinator.core.missed import LISTED_SECONDS, NOTICE_SECONDS, Missed
from coordinator.core.state import Listed, Phase
from coordinator.core.study import (
    Life,
    Script,
    advance,
    create,
    credit,
    expire,
    pause,
    restart_clock,
    resume,
    start,
)
from coordinator.engine import script_of
from coordinator.work import work_in
from protos import record
from protos.messages import Confirm, Place, Tensor
from protos.steps import Task
from support.rounds import LIMITS, STUDY, accept, refuse, wanted
from support.studies import tiny_study

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


def begun(max_attempts=3, silos=FOUR, *, recovers=True):
    script = Script(STUDY, "tiny", silos, 3, 1, recovers, PLAN, LIMITS, max_attempts)
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
    return feed(state, RoundStopped("a sum that nobody could open"), Returned("birch"))


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


@pytest.fixture
def missed(signed):
    """The study waits for elm alone."""
    assert signed.missed == tuple(Missed(silo, since=LATER) for silo in THREE), "from the first moment of the offer"
    place = signed.round.place
    state = feed(signed, accept(place, "alder", model="m"), accept(place, "cedar", model="m"))
    state = feed(state, Passed(), now=LATER + 2 * LIMITS.offer)
    assert (state.life, state.missed) == (Life.WAITING, (Missed("alder"), Missed("cedar"), Missed("elm", since=LATER)))
    return state


def missing(state):
    """Who is missed, and since when."""
    return {one.silo: (one.seconds, one.since) for one in state.missed if one.since is not None}


def test_who_is_missed_too_long_has_left_for_good_and_the_others_void_the_list(missed):
    assert expire(missed, LATER + LISTED_SECONDS - 1) == (missed, [])
    state, effects = expire(missed, LATER + LISTED_SECONDS)
    assert effects == [Persist(), Clear(missed.round.place)]
    assert (state.life, state.missed, state.active) == (Life.RUNNING, (), ("alder", "birch", "cedar"))
    why = "away: it is in a list that was given out in round 1, and did not come back within 30 days"
    assert {one.name: one.why for one in state.silos if one.why} == {"elm": why}
    assert (state.round.place, state.round.voiding) == (Place(STUDY, 1, 3), (Tensor.HEADS,))
    assert state.round.since == LATER + LISTED_SECONDS
    state = until(state, lambda s: s.round.place.round == 2)
    assert state.life is Life.RUNNING


def test_who_has_left_before_keeps_its_own_reason(missed):
    left = tuple(replace(one, why="refuses") if one.name == "elm" else one for one in missed.silos)
    state, _ = expire(replace(missed, silos=left), LATER + LISTED_SECONDS)
    assert {one.name: one.why for one in state.silos if one.why} == {"elm": "refuses"}


def test_if_too_few_are_left_without_it_the_study_ends_by_its_name(missed):
    small = replace(missed, script=replace(missed.script, min_silos=4))
    state, _ = expire(small, LATER + LISTED_SECONDS)
    assert (state.life, state.round.phase) == (Life.ENDED, Phase.ABORTED)
    assert state.why.startswith("elm did not come back within 30 days; elm left (away: ")


def test_who_only_calls_is_missed_as_before_and_an_absence_ends_with_a_seat(missed):
    place, since = missed.round.place, {"elm": (0.0, LATER)}
    state = feed(missed, Returned("elm"), now=LATER + 1000.0)
    assert (state.round.phase, missing(state)) == (Phase.OFFER, since)
    assert expire(state, LATER + 2 * LISTED_SECONDS) == (state, []), "it is asked, and may still answer"
    state = feed(state, Passed(), now=LATER + 2000.0)
    assert (state.round.phase, missing(state)) == (Phase.WAIT, since)
    state = feed(state, Returned("elm"), accept(place, "elm", model="m"), now=LATER + 3000.0)
    assert (state.round.phase, missing(state)) == (Phase.GREET, {})
    assert {one.silo: one.seconds for one in state.missed} == {"alder": 0.0, "cedar": 0.0, "elm": 3000.0}
    done = until(state, lambda s: s.round.place.round == 2)
    assert done.missed == (), "the round is over"


def test_an_honest_silo_is_not_taken_as_gone_because_another_one_stayed_away(missed):
    """A hostile silo stays away for nearly thirty days. Then an honest one misses an offer, and loses its keys."""
    place, late = missed.round.place, LATER + LISTED_SECONDS - 10.0
    state = feed(missed, Restarted("cedar", "another"), now=late)
    assert missing(state) == {"cedar": (0.0, late), "elm": (0.0, LATER)}
    state = feed(state, Passed(), now=late + 2 * LIMITS.offer)
    assert (state.life, state.round.unanswered) == (Life.WAITING, ("cedar", "elm"))
    gone, _ = expire(state, LATER + LISTED_SECONDS)
    assert {one.name for one in gone.silos if one.why} == {"elm"}
    back = feed(state, Returned("elm"), accept(place, "elm", model="m"), now=LATER + LISTED_SECONDS - 1)
    after = late + LISTED_SECONDS - 1
    back = feed(back, Passed(), now=after)
    assert (back.life, back.round.unanswered) == (Life.WAITING, ("cedar",))
    assert expire(back, after) == (back, []), "cedar is missed since a day that is its own"
    again = feed(feed(back, Restarted("elm", "another"), now=late + 5000), Passed(), now=after)
    gone, _ = expire(again, after)
    assert {one.name for one in gone.silos if one.why} == {"elm"}, "its absences count together"


def test_absences_count_together_over_the_attempts_at_a_round(missed):
    place = missed.round.place
    state = feed(missed, Returned("elm"), accept(place, "elm", model="m"), now=LATER + 1000.0)
    state = feed(state, RoundStopped("a disk is full"), now=LATER + 5000.0)
    assert state.round.place.attempt == place.attempt + 1
    assert missing(state) == {"alder": (0.0, LATER + 5000), "cedar": (0.0, LATER + 5000), "elm": (1000, LATER + 5000)}


def test_neither_a_pause_nor_the_coordinator_s_own_absence_counts(missed):
    later = LATER + 10 * LISTED_SECONDS
    stopped, _ = pause(missed, "a long holiday", LATER + 5000.0)
    assert expire(stopped, later) == (stopped, [])
    resumed, _ = resume(stopped, later)
    assert missing(resumed) == {"elm": (0.0, later - 5000.0)}
    held, effects = credit(missed, LATER + 5000.0, later)
    assert (effects, missing(held)) == ([Persist()], {"elm": (0.0, later - 5000.0)}), "as its own full disk"
    begun_again, effects = restart_clock(missed, later)
    assert effects == [Persist()]
    assert expire(begun_again, later + NOTICE_SECONDS - 1) == (begun_again, []), "it has a day to come back"
    assert expire(begun_again, later + NOTICE_SECONDS)[1]
    assert restart_clock(missed, LATER + 7000.0) == (missed, [])
    older = replace(missed, missed=())
    assert missing(restart_clock(older, later)[0]) == {"elm": (0.0, later)}, "an earlier version did not count"


def test_a_study_without_a_list_waits_as_long_as_it_takes():
    state = begun()
    state = feed(feed(state, accept(state.round.place, "elm")), Passed(), now=LATER + LIMITS.offer)
    assert (state.life, state.missed) == (Life.WAITING, ())
    assert expire(state, 1e12) == (state, [])


def test_it_does_not_wait_for_who_is_silent_once_one_that_was_listed_has_left_for_good():
    """Though three of four would be enough for a round without a list."""
    state = feed(until(begun(), at(1, Phase.SIGN, Tensor.HEADS)), RoundStopped("a disk is full"))
    place = state.round.place
    state = feed(state, accept(place, "alder", model="m"), accept(place, "birch", model="m"), refuse(place, "elm"))
    state = feed(state, Passed(), now=LATER + 2 * LIMITS.offer)
    assert (state.life, state.round.place, state.round.voiding) == (Life.RUNNING, Place(STUDY, 1, 3), (Tensor.HEADS,))


@pytest.fixture
def voiding(signed):
    """Elm, which was listed, has left for good; the others are asked to void the list."""
    return until(feed(signed, refuse(signed.round.place, "elm")), at(1, Phase.VOID, Tensor.HEADS))


def test_if_one_that_was_listed_leaves_for_good_the_others_void_the_list(voiding):
    place = voiding.round.place
    assert (place, voiding.round.invited) == (Place(STUDY, 1, 3), ("alder", "birch", "cedar"))
    work = work_in(voiding, "birch", told=False)
    assert (work.task, work.tensor, work.void) == (Task.VOID, Tensor.HEADS, None)
    state = until(voiding, at(1, Phase.GATHER, Tensor.HEADS))
    assert state.round.listed == ()
    void = work_in(state, "alder", told=False).void
    assert (void.through, [one.silo for one in void.promises]) == (2, ["alder", "birch", "cedar"])
    assert len(void.certificates) == 3
    state = until(state, at(1, Phase.SIGN, Tensor.HEADS))
    assert state.round.list_of(Tensor.HEADS) == ("alder", "birch", "cedar")
    assert work_in(state, "alder", told=False).void is None
    state = until(state, lambda s: s.round.place.round == 2)
    assert (state.life, state.round.voided) == (Life.RUNNING, ())


def test_what_was_voided_is_handed_to_silos_of_later_attempts_too(voiding):
    state = until(feed(voiding, Returned("birch")), at(1, Phase.GATHER, Tensor.HEADS))
    before = state.round.void_of(Tensor.HEADS)
    state = feed(replace(state, script=replace(state.script, max_attempts=9)), RoundStopped("a disk is full"))
    assert (state.round.place, state.round.void_of(Tensor.HEADS)) == (Place(STUDY, 1, 4), before)


def test_if_too_few_can_void_the_list_the_study_ends_by_name(voiding):
    said = Confirmed("birch", Confirm(voiding.round.place, Task.VOID, Tensor.HEADS))
    others = (event for event in wanted(voiding.round) if event.silo != "birch")
    state = feed(voiding, *others, said)
    assert state.life is Life.ENDED
    assert (
        "2 silos can void the list of alder, cedar, elm for the heads of this round, but 3 would have to" in state.why
    )


# --- who disputes again -----------------------------------------------------------------------------------------------
def disputed(state, silo="birch", task=Task.CONTRIBUTE, tensor=None):
    said = Confirm(state.round.place, task, tensor, dispute="data", explanation="x")
    return feed(state, Confirmed(silo, said))


def test_one_silo_alone_does_not_use_up_a_studys_attempts():
    state = disputed(until(begun(), at(1, Phase.GATHER)))
    assert state.round.place == Place(STUDY, 1, 2)
    state = disputed(until(state, at(1, Phase.GATHER)))
    assert (state.round.place, state.round.lost) == (Place(STUDY, 1, 2), {"birch"})
    assert "it has disputed before" in state.round.why_lost("birch")
    state = until(state, lambda s: s.round.place.round == 2)
    assert state.active == FOUR, "it is asked again"
    state = disputed(until(state, at(2, Phase.GATHER)))
    assert (state.round.place, state.round.lost) == (Place(STUDY, 2, 1), {"birch"}), "and costs nobody an attempt again"
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_after_the_signing_its_upload_stays_in_the_sum():
    state = disputed(until(begun(), at(1, Phase.GATHER)))
    state = disputed(until(state, at(1, Phase.REVEAL, Tensor.HEADS)), task=Task.REVEAL)
    assert (state.round.survivors, state.round.present) == (FOUR, THREE)
    assert until(state, lambda s: s.round.place.round == 2).round.place == Place(STUDY, 2, 1)


@pytest.mark.parametrize("phase", [Phase.GREET, Phase.TAKE])
def test_where_the_keys_are_made_the_next_roster_is_without_it(phase):
    state = disputed(until(begun(), at(0, phase)), task=Task.GREET)
    state = disputed(until(state, at(0, phase)), task=Task.GREET)
    assert (state.round.place, state.round.invited, state.active) == (Place(STUDY, 0, 3), THREE, THREE)
    why = next(silo.why for silo in state.silos if silo.name == "birch")
    assert why.startswith("left out: birch disputes greet")
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_with_distributed_noise_the_next_roster_is_without_it():
    state = disputed(until(begun(recovers=False), at(1, Phase.GATHER)))
    state = disputed(until(state, at(1, Phase.GATHER)))
    assert (state.round.place, state.active) == (Place(STUDY, 1, 3), THREE)
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_nobody_is_left_out_where_the_others_are_too_few():
    state = begun(silos=THREE)
    for attempt in (2, 3):
        state = disputed(until(state, at(0, Phase.GATHER)), silo="elm")
        assert (state.round.place.attempt, state.active) == (attempt, THREE)
    assert disputed(until(state, at(0, Phase.GATHER)), silo="elm").life is Life.ENDED


def test_one_that_vanishes_again_ends_the_attempt_and_not_the_list(signed):
    state = until(signed, at(1, Phase.GATHER))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "elm"))
    state = feed(state, Passed(), now=LATER + 3 * LIMITS.train)
    assert state.round.place == Place(STUDY, 1, 3)
    assert (state.round.invited, state.round.listed) == (THREE, (Listed(Tensor.HEADS, THREE),))


def test_in_a_later_sum_who_is_not_listed_is_set_aside_again():
    state = without_birch(begun(), Tensor.ENCODER)
    assert state.round.listed == (Listed(Tensor.HEADS, FOUR, opening=True), Listed(Tensor.ENCODER, THREE))
    state = feed(state, RoundStopped("a sum that nobody could open"), Returned("birch"))
    assert state.round.invited == FOUR, "the heads were all four's"
    state = until(state, at(1, Phase.GATHER, Tensor.ENCODER))
    assert (state.round.participants, state.round.lost) == (THREE, {"birch"})
    assert "not in the list of survivors" in state.round.why_lost("birch")
    assert until(state, at(1, Phase.SIGN, Tensor.ENCODER)).round.survivors == THREE
    assert until(state, lambda s: s.round.place.round == 2).round.invited == FOUR


def test_one_of_a_later_sum_that_is_missing_when_the_gathering_ends_ends_the_attempt():
    state = feed(without_birch(begun(), Tensor.ENCODER), RoundStopped("no"), Returned("birch"))
    state = until(state, at(1, Phase.GATHER, Tensor.ENCODER))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "elm"))
    state = feed(state, Passed(), now=LATER + 3 * LIMITS.train)
    assert state.round.place == Place(STUDY, 1, 3)
    assert state.round.why == ""


def test_a_sum_that_nobody_was_asked_to_sign_binds_nobody():
    state = until(begun(), at(1, Phase.ADD, Tensor.HEADS))
    assert feed(state, RoundStopped("altered on the disk")).round.listed == ()


def test_the_list_outlasts_the_coordinator(signed):
    assert record.load(type(signed), record.dump(signed)) == signed


def test_the_work_says_who_was_listed(signed):
    state = until(signed, at(1, Phase.SIGN, Tensor.HEADS))
    work = work_in(state, "alder", told=False)
    assert (work.task, work.survivors, work.participants) == (Task.SIGN, THREE, THREE)


def failed_after(phase):
    """Birch has disputed once; then a list of the heads of all four was made, and the second attempt has failed."""
    state = disputed(until(begun(max_attempts=4), at(1, Phase.GATHER)))
    state = until(state, at(1, phase, Tensor.HEADS))
    assert state.round.list_of(Tensor.HEADS) == FOUR
    return feed(state, RoundStopped("a disk is full"))


def test_who_was_listed_and_disputes_again_is_left_out_and_the_list_is_voided():
    state = disputed(until(failed_after(Phase.SIGN), at(1, Phase.GATHER)))
    assert (state.round.place.attempt, state.round.lost) == (3, {"birch"})
    state = until(state, lambda s: s.round.place.attempt == 4)
    assert (state.active, state.round.voiding) == (THREE, (Tensor.HEADS,))
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_who_is_in_a_list_that_may_be_open_is_not_left_out():
    """Without it the round could not end, because its sum may have been opened and no other will be."""
    state = disputed(until(failed_after(Phase.REVEAL), at(1, Phase.GATHER)))
    assert (state.round.place.attempt, state.round.lost) == (3, {"birch"})
    state = until(state, lambda s: s.round.place.attempt == 4)
    assert (state.active, state.round.voiding, state.round.invited) == (FOUR, (), FOUR)
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_who_vanishes_after_it_has_disputed_is_not_left_out():
    state = until(failed_after(Phase.SIGN), at(1, Phase.GATHER))
    state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "birch"))
    state = feed(state, Passed(), now=LATER + 2 * LIMITS.train)
    assert (state.round.place.attempt, state.active, state.round.voiding) == (4, FOUR, ())


def test_a_sum_that_nobody_can_open_costs_nobody_its_place():
    """Whoever spoiled it is unknown, but it lies at none of those that say so, however often."""
    state = begun(max_attempts=9)
    for attempt in range(1, 5):
        state = until(state, at(1, Phase.OPEN, Tensor.HEADS))
        assert state.round.place.attempt == attempt
        for task in (Task.OPEN, Task.RECOUNT):
            for silo in FOUR:
                state = disputed(state, silo, task, Tensor.HEADS)
    assert (state.active, state.round.complaints) == (FOUR, ())
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_who_solves_wrongly_costs_the_others_no_attempt():
    state = until(begun(), at(1, Phase.ADOPT))
    liar = state.round.actor
    for silo in set(FOUR) - {liar}:
        state = disputed(state, silo, Task.ADOPT, Tensor.HEADS)
    state = feed(state, *wanted(state.round))
    assert (state.round.phase, state.round.lost, state.round.complaints) == (Phase.SOLVE, {liar}, ())
    assert state.round.actor != liar
    state = until(state, at(1, Phase.ADOPT))
    assert [part.silo for part in work_in(state, state.round.actor, told=False).parts] == [state.round.actor]
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def test_who_is_silent_again_and_again_where_the_keys_are_made_does_not_use_up_the_attempts():
    state = begun()
    for attempt in (1, 2):
        state = until(state, at(0, Phase.GREET))
        assert (state.round.place.attempt, state.round.invited) == (attempt, FOUR)
        state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "birch"))
        state = feed(feed(state, Passed(), now=state.round.deadline), Returned("birch"))
    assert (state.round.place.attempt, state.round.invited, state.active) == (3, THREE, FOUR)
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.round.invited == THREE, "two attempts were lost, and are not forgotten yet"
    state = until(state, lambda s: s.round.place.round == 2)
    assert state.round.invited == FOUR, "after two committed rounds it is asked again"


def test_all_are_asked_again_where_the_others_are_too_few():
    state = begun(silos=THREE)
    for attempt in (2, 3):
        state = until(state, at(0, Phase.GREET))
        state = feed(state, *(event for event in wanted(state.round) if event.header.silo != "elm"))
        state = feed(state, Passed(), now=state.round.deadline)
        assert (state.round.place.attempt, state.round.invited) == (attempt, THREE)


# --- the metrics ------------------------------------------------------------------------------------------------------
def test_with_distributed_noise_one_that_disputes_the_metrics_twice_does_not_end_the_study():
    planned = script_of(tiny_study(privacy={"mode": "distributed"})).tensors
    state = begun(recovers=False)
    state = until_measuring(replace(state, script=replace(state.script, tensors=planned)))
    place = state.round.place
    for _ in range(2):
        state = disputed(until_measuring(state))
    assert (state.round.place, state.active) == (Place(STUDY, place.round, place.attempt + 2), THREE)
    state = until_measuring(state)
    assert until(state, lambda s: s.life is not Life.RUNNING).life is Life.FINISHED


def until_measuring(state):
    """Up to the gathering of the metrics. Whoever has revealed for an earlier sum of the round voids no list."""
    while not (state.round.tensor is Tensor.METRICS and state.round.phase is Phase.GATHER):
        assert state.life is Life.RUNNING, state.why
        if state.round.phase is Phase.VOID:
            said = Confirm(state.round.place, Task.VOID, state.round.tensor)
            state = feed(state, *(Confirmed(silo, said) for silo in state.round.waiting_for))
        else:
            state = feed(state, *wanted(state.round))
    return state
