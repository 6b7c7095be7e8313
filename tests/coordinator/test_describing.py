"""What the operator sees of a study, and what is measured of its changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from coordinator import describing
from coordinator.core.events import Passed, Restarted, Returned, RoundStopped
from coordinator.core.missed import Missed
from coordinator.core.slowness import Slowness, Taken
from coordinator.core.state import Loss, Phase
from coordinator.core.study import Life, Script, advance, create, forgive, pause, resume, start
from coordinator.describing import (
    brief,
    describe,
    ended_attempt,
    ended_phases,
    in_sentences,
    measure,
    newly_signed,
    where,
)
from coordinator.metrics import CoordinatorMetrics
from coordinator.work import work_in
from protos.bounds import MAX_SENTENCE, sentence
from protos.messages import Place, Tensor
from protos.status import MemberStatus, PhaseTime
from support.rounds import FIVE, LIMITS, SILOS, STUDY, accept, refuse, wanted

PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.METRICS))


def started(silos=SILOS):
    return start(create(Script(STUDY, "tiny", silos, 2, 1, True, PLAN, LIMITS, 2)), 0.0)[0]


def feed(state, *events, now=0.0):
    for event in events:
        state, _ = advance(state, event, now)
    return state


def until(state, phase):
    while state.round.phase is not phase:
        state = feed(state, *wanted(state.round))
    return state


def waiting():
    state = started()
    return feed(feed(state, accept(state.round.place, "north")), Passed(), now=LIMITS.offer)


def seen(member):
    """A silo's status without what waiting for it has cost."""
    return replace(member, slow_seconds=0.0, slow_budget=0.0)


def test_until_when_a_silo_of_a_list_is_waited_for_is_told_and_nothing_of_other_waits():
    asked = waiting()
    assert describe(asked, {}, 1e9).why == asked.why
    counts = (Missed("east", since=1_800_000_000.0), Missed("north", 5.0), Missed("west", 86400.0, 1_800_000_000.0))
    missed = replace(asked, missed=counts)
    by = "east by 2027-02-14 08:00 UTC, west by 2027-02-13 08:00 UTC"
    assert describe(missed, {}, 1e9).why == f"{asked.why}; who is not back in time has left the study: {by}"
    stopped, _ = pause(missed, "a holiday", 5.0)
    assert describe(stopped, {}, 1e9).why == "a holiday"


def test_what_waiting_for_a_silo_has_cost_is_told_with_the_way_out():
    memory = Slowness((Taken("polar", 12.5, 2), Taken("west", 3.0, 1)))
    state = replace(started(FIVE), slowness=memory)
    state = replace(state, script=replace(state.script, min_silos=4, colluders=1))
    members = {member.silo: member for member in describe(state, {}, 1e9).members}
    polar, west = members["polar"], members["west"]
    assert (polar.slow_seconds, polar.slow_budget, polar.lost_attempts) == (12.5, state.budget, 2)
    assert (polar.set_aside, west.set_aside, west.lost_attempts, members["east"].slow_seconds) == (True, False, 1, 0.0)
    assert "2 attempts have ended at its silence" in polar.why
    assert "study forgive" in polar.why
    metrics = CoordinatorMetrics()
    describing.measure(metrics, [state])
    for name, value in (("slow_seconds", 12.5), ("lost_attempts", 2.0)):
        labels = {"study": state.script.study[:12], "silo": "polar"}
        assert metrics.registry.get_sample_value(f"fedward_coordinator_silo_{name}", labels) == value


def test_a_study_that_was_not_started():
    status = describe(create(started().script), {}, 1e9)
    assert (status.state, status.phase, status.round, status.rounds, status.attempt) == ("created", "", 0, 1, 0)
    assert (status.waiting_for, status.tensor) == ((), None)
    assert seen(status.members[0]) == MemberStatus("north", "invited", "", 0.0)


def test_every_silo_has_its_state():
    state = started()
    place = state.round.place
    state = feed(state, refuse(place, "west"), accept(place, "north"), RoundStopped("x"))
    state = feed(state, accept(state.round.place, "north"))
    state = feed(state, Passed(), now=LIMITS.offer)
    status = describe(state, {"south": 5.0}, 1e9)
    assert tuple(map(seen, status.members)) == (
        MemberStatus("north", "active", "", 0.0),
        MemberStatus("south", "away", "", 5.0),
        MemberStatus("west", "left", "budget_spent: policy.budget is spent", 0.0),
    )
    assert (status.state, status.waiting_for) == ("waiting", ("south",))
    assert status.why == "1 silos take part, the study needs 2; the round waits for south"


def test_who_was_lost_is_shown_with_the_reason():
    state = until(started(FIVE), Phase.SIGN)
    state = feed(state, Restarted("west", "new"))
    status = describe(state, {}, 1e9)
    assert seen(status.members[-1]) == MemberStatus("west", "lost", "west was restarted and has lost its keys", 0.0)
    assert {member.state for member in status.members[:-1]} == {"active"}
    assert status.waiting_for == FIVE[:-1]


def test_who_has_no_data_yet_is_said_until_it_has_some():
    state = started()
    place = state.round.place
    lacking = describe(feed(state, refuse(place, "north", "no_data")), {}, 1e9).members[0]
    assert (lacking.state, lacking.why) == ("away", describing._NO_DATA)
    state = feed(state, refuse(place, "north", "no_data"), accept(place, "north"))
    assert not describe(state, {}, 1e9).members[0].why


def test_who_calls_is_never_away():
    state = started()
    lacking = feed(state, refuse(state.round.place, "north", "no_data"))
    for seconds, shown in ((0.2, "no data"), (describing.HEARD_SECONDS, "no data"), (31.0, "away")):
        member = describe(lacking, {"north": 1e9 - seconds}, 1e9).members[0]
        assert (member.state, member.why, member.last_seen) == (shown, describing._NO_DATA, 1e9 - seconds)
    late = until(started(FIVE), Phase.GATHER)
    late = feed(late, *[event for event in wanted(late.round) if event.header.silo != "north"])
    late = until(feed(late, Passed(), now=LIMITS.train), Phase.OPEN)
    late = feed(late, *wanted(late.round))
    for seconds, cut_off, shown in ((0.2, (), "busy"), (31.0, (), "away"), (0.2, {"north"}, "away")):
        member = describe(late, {"north": 1e9 - seconds}, 1e9, cut_off).members[1]
        assert (member.state, member.why) == (shown, describing._CALLS if shown == "busy" else "")
    assert describe(late, {"south": 1e9}, 1e9).members[1].state == "away"


def test_who_is_late_is_lost_before_it_is_away():
    state = until(started(FIVE), Phase.GATHER)
    late = [event for event in wanted(state.round) if event.header.silo != "north"]
    state = feed(feed(state, *late), Passed(), now=LIMITS.train)
    assert state.away == ("north",)
    assert seen(describe(state, {}, 1e9).members[1]) == MemberStatus(
        "north", "lost", "no gather from north within 100 s", 0.0
    )
    state = until(state, Phase.OPEN)
    state = feed(state, *wanted(state.round))
    assert seen(describe(state, {}, 1e9).members[1]) == MemberStatus("north", "away", "", 0.0), "in the next round"


@pytest.mark.parametrize("state", [waiting(), pause(started(), "x", 1.0)[0], until(started(), Phase.GATHER)])
def test_whom_a_live_study_waits_for_is_shown(state):
    assert describe(state, {}, 1e9).waiting_for == state.round.waiting_for != ()


def test_a_study_that_is_over_waits_for_nobody():
    ended = feed(started(), RoundStopped("a"), RoundStopped("b"))
    assert (ended.life, describe(ended, {}, 1e9).waiting_for) == (Life.ENDED, ())


def ended(before, event, now):
    after, effects = advance(before, event, now)
    return ended_phases(before, after, effects, now), ended_attempt(before, after, effects)


def test_a_phase_that_ends_has_its_time():
    state = until(started(), Phase.DEAL)
    (event,) = wanted(state.round)
    assert ended(state, event, 7.5) == ([PhaseTime(0, 1, "deal", None, 7.5)], None)
    state = until(started(), Phase.TAKE)
    assert ended(state, wanted(state.round)[0], 7.5) == ([], None), "the others have yet to act"


def test_a_solver_that_is_lost_has_its_time():
    state = until(started(FIVE), Phase.SOLVE)
    solver = state.round.actor
    times, outcome = ended(state, Restarted(solver, "new"), 7.5)
    assert (times, outcome) == ([PhaseTime(1, 1, "solve", Tensor.HEADS, 7.5)], None)
    other = next(name for name in FIVE if name != solver)
    assert ended(state, Restarted(other, "new"), 7.5) == ([], None), "the solver goes on"


def test_an_attempt_that_ends_is_committed_or_aborted():
    state = until(started(), Phase.OPEN)
    *most, last = wanted(state.round)
    state = feed(state, *most)
    assert ended(state, last, 2.0) == ([PhaseTime(0, 1, "open", Tensor.COUNTS, 2.0)], "committed")
    assert ended(state, RoundStopped("x"), 2.0) == ([PhaseTime(0, 1, "open", Tensor.COUNTS, 2.0)], "aborted")
    last_round = feed(replace(state, script=replace(state.script, tensors=PLAN[:1])))
    after, effects = advance(last_round, last, 2.0)
    assert (after.life, ended_attempt(last_round, after, effects)) == (Life.FINISHED, "committed")


def test_a_pause_is_no_part_of_a_phase():
    state = until(started(), Phase.DEAL)
    state, _ = pause(state, "x", 3.0)
    (event,) = wanted(state.round)
    assert ended(state, event, 500.0)[0] == [PhaseTime(0, 1, "deal", None, 3.0)]
    state, _ = resume(state, 500.0)
    assert ended(state, event, 501.0)[0] == [PhaseTime(0, 1, "deal", None, 4.0)]


def test_waiting_has_a_time_of_its_own():
    assert ended(waiting(), Returned("south"), 60.0) == ([PhaseTime(0, 1, "wait", None, 50.0)], None)


def test_the_gauges_say_what_the_status_says():
    metrics = CoordinatorMetrics()
    state = waiting()
    measure(metrics, [state, create(replace(state.script, study="6" * 64, name="other"))])
    value, study = metrics.registry.get_sample_value, STUDY[:12]
    assert value("fedward_coordinator_study_info", {"study": study, "name": "tiny"}) == 1.0
    assert value("fedward_coordinator_study_info", {"study": "6" * 12, "name": "other"}) == 1.0
    assert value("fedward_coordinator_silos_away", {"study": study}) == 2.0
    assert value("fedward_coordinator_waiting_silos", {"study": study}) == 2.0
    assert {life: value("fedward_coordinator_studies", {"state": life}) for life in Life} == {
        life: float(life in (Life.WAITING, Life.CREATED)) for life in Life
    }
    over = replace(state, life=Life.ABORTED)
    measure(metrics, [over])
    assert value("fedward_coordinator_silos_away", {"study": study}) == 0.0, "nobody is missed in a study that is over"


def gauges(metrics):
    found = [family for family in metrics.registry.collect() if family.type == "gauge"]
    return {(one.name, *one.labels.values()): one.value for family in found for one in family.samples}


def test_what_an_event_changes_is_measured_as_the_whole_state_would_be():
    by_event, whole = CoordinatorMetrics(), CoordinatorMetrics()
    state, now, costs = create(Script(STUDY, "tiny", FIVE, 3, 1, True, PLAN, LIMITS, 99)), 0.0, []
    measure(by_event, [state])
    for number in range(60):
        before, now = state, now + 1.0
        if state.life is Life.CREATED:
            state, _ = start(state, now)
        elif number % 17 == 16 and state.round.phase is not Phase.WAIT:
            now = state.round.deadline
            state, _ = advance(state, Passed(), now)
        elif state.round.phase is Phase.WAIT:
            state, _ = advance(state, Returned(state.round.unanswered[0]), now)
        elif number == 40:
            state, _ = forgive(state, state.slowness.taken[0].silo)
        else:
            event = next(iter(wanted(state.round)), None) or Returned(min(state.round.absent))
            state, _ = advance(state, event, now)
        measure(by_event, [state], (before, state))
        measure(whole, [state])
        assert gauges(by_event) == gauges(whole)
        costs.append(sum(one.seconds + one.attempts for one in state.slowness.taken))
    assert 0 in costs
    assert any(later < earlier for earlier, later in itertools.pairwise(costs)), "what was forgiven is told too"


def test_a_place_in_the_log():
    assert where(Place(STUDY, 1, 2)) == {"study": "5" * 12, "round": 1, "attempt": 2}


# --- what silos wrote -----------------------------------------------------------------------------------------------
LONG = "\x1b[31m[/red]\n" + "x" * 100_000


def reviled():
    """A study as an older version stored it, whose silos wrote at any length."""
    state = feed(started(), refuse(started().round.place, "north"))
    round_ = state.round
    refusals = tuple(replace(one, explanation=LONG) for one in round_.refusals)
    round_ = replace(round_, refusals=refusals, losses=(Loss("south", LONG),), why=LONG)
    silos = tuple(replace(silo, why=LONG) for silo in state.silos)
    return replace(state, round=round_, silos=silos, why=LONG)


def test_what_silos_wrote_is_stored_and_shown_as_sentences():
    state = in_sentences(reviled())
    round_ = state.round
    told = [state.why, round_.why, round_.refusals[0].explanation, round_.losses[0].why, *(s.why for s in state.silos)]
    assert set(told) == {sentence(LONG)}
    assert in_sentences(state) == state
    status = describe(reviled(), {}, 1e9)
    assert {status.why, *(member.why for member in status.members)} == {sentence(LONG)}


def test_a_list_of_studies_is_brief():
    status = brief(describe(reviled(), {}, 1e9))
    assert {len(member.why) for member in status.members} == {200}


def test_a_silo_s_long_text_does_not_reach_the_work_of_others():
    state = replace(reviled(), life=Life.ABORTED)
    for silo in SILOS:
        assert len(work_in(state, silo, told=False).why) <= MAX_SENTENCE


def test_a_list_is_told_once_enough_silos_have_signed_it_and_in_no_other_change():
    state, told = until(started(), Phase.SIGN), []
    place, tensor, survivors = state.round.place, state.round.tensor, state.round.survivors
    for event in wanted(state.round):
        after, _ = advance(state, event, 0.0)
        told.append(newly_signed(state, after))
        state = after
    assert state.round.phase is not Phase.SIGN
    assert told[-1] == (place, tensor, survivors)
    assert set(told[:-1]) <= {None}
    while state.round.place == place and state.round.tensor is tensor:
        for event in wanted(state.round):
            after, _ = advance(state, event, 0.0)
            assert newly_signed(state, after) is None
            state = after
    begun = until(started(), Phase.SIGN)
    assert newly_signed(begun, feed(begun, RoundStopped("x"))) is None
