"""What waiting for a silo costs a study is bounded, told, forgotten and never bought with too few silos."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core import slowness
from coordinator.core.events import Answered, Confirmed, Passed, Returned, Uploaded
from coordinator.core.slowness import ALONE, FADES, FREE, LOST, Act, Slowness, Taken, budget, neutral, spared
from coordinator.core.state import Listed, Phase
from coordinator.core.study import LIVE, Life, Script, StudyStateError, advance, create, forgive, start
from protos import record
from protos.messages import Tensor
from support.rounds import FIVE, LIMITS, STUDY, offer, reach, wanted

ROUNDS = 6
SCRIPT = Script(
    study=STUDY,
    name="tiny",
    silos=FIVE,
    min_silos=4,
    colluders=1,
    recovers=True,
    tensors=((Tensor.COUNTS,), *((Tensor.HEADS,),) * ROUNDS, (Tensor.METRICS,)),
    limits=LIMITS,
    max_attempts=3,
)
NEEDED = 4


def author(event):
    if isinstance(event, Uploaded):
        return event.header.silo
    return event.silo if isinstance(event, Answered | Confirmed) else ""


def drive(state, slow, *, delay=None, quiet=lambda state: False, most=20_000):
    """Everybody acts a second after it is asked; the slow one after `delay`, or not at all where it is `quiet`."""
    now, elapsed = 1000.0, 0.0
    for _ in range(most):
        if state.life not in LIVE:
            return state, elapsed
        round_ = state.round
        events = [event for event in wanted(round_) if author(event) != slow]
        if events:
            now = max(now, round_.since + 1.0)
            state, _ = advance(state, events[0], now)
        elif quiet(state):
            now += 1.0
            state, _ = advance(state, Passed(), now)
        else:
            late = round_.since + (delay(round_) if delay else 1.0)
            while now < late and state.round.waiting_for == round_.waiting_for and state.round.phase is round_.phase:
                now = min(now + 1.0, late)
                state, _ = advance(state, Passed(), now)
            if state.round is not None and state.life in LIVE and state.round.waiting_for == round_.waiting_for:
                mine = [event for event in wanted(state.round) if author(event) == slow]
                if mine and state.round.phase is round_.phase:
                    state, _ = advance(state, mine[0], now)
        elapsed = now - 1000.0
    pytest.fail("no end")


def begun(script=SCRIPT):
    return start(create(script), 1000.0)[0]


@pytest.mark.parametrize("recovers", [True, False])
def test_a_silo_that_answers_a_second_before_each_deadline_takes_its_budget_once(recovers):
    state = begun(replace(SCRIPT, recovers=recovers))
    state, honest = drive(state, "nobody")
    assert state.life is Life.FINISHED
    state, took = drive(
        begun(replace(SCRIPT, recovers=recovers)), "south", delay=lambda round_: LIMITS.of(round_.phase) - 1.0
    )
    assert state.life is Life.FINISHED
    assert state.slowness.of("south").seconds <= state.budget
    assert {one.silo for one in state.slowness.taken if one.seconds > 0} == {"south"}
    assert took <= 1.25 * (honest + state.budget), "2037 s instead of 621 if nobody stopped waiting"


def test_a_silo_that_falls_silent_in_each_round_costs_few_attempts():
    """With distributed noise each such attempt is charged to everybody: 12 of 6 rounds before."""
    lost, state = [], begun(replace(SCRIPT, recovers=False, max_attempts=5))
    place, now = state.round.place, 1000.0
    while state.life in LIVE:
        events = [event for event in wanted(state.round) if author(event) != "south"]
        mute = state.round.phase is Phase.GATHER and state.round.place.round > 0
        if not mute and len(events) < len(wanted(state.round)):
            events = wanted(state.round)
        now += 1.0 if events else 200.0
        state, _ = advance(state, events[0] if events else Passed(), now)
        if state.round.place.attempt > place.attempt:
            lost.append(state.round.place)
        if "south" in state.away:
            state, _ = advance(state, Returned("south"), now)  # it calls again at once, to be asked again
        place = state.round.place
    assert state.life is Life.FINISHED, state.why
    assert [at.round for at in lost] == [1, 1, 3, 5, 7], "two, and one more each time that one is forgotten"
    assert "south" in state.active, "silence is this coordinator's word, and excludes nobody for good"


def test_fewer_than_half_who_have_answered_make_nobody_slow_and_one_alone_has_a_share():
    state = reach(Phase.EXCHANGE, offer(silos=FIVE))
    acts = tuple(Act(name, 5.0 * number) for number, name in enumerate(FIVE, 1))
    for count in range(6):
        rest = replace(state, done=frozenset(FIVE[:count]))
        usual = neutral(rest, acts[:count])
        assert usual == (float("inf") if count < 3 else 2 * 15.0)
    fast = tuple(replace(act, seconds=0.1) for act in acts)
    assert neutral(replace(state, done=frozenset(FIVE)), fast) == FREE * LIMITS.keys
    assert neutral(reach(Phase.SOLVE), ()) == ALONE * LIMITS.solve


def test_while_the_coordinator_itself_adds_nobody_is_slow_and_time_passes():
    study, _ = start(create(SCRIPT), 0.0)
    adding = reach(Phase.ADD)
    assert adding.waiting_for == ()
    assert neutral(adding, ()) == float("inf")
    study = replace(study, round=adding)
    assert advance(study, Passed(), adding.since + 1.0) == (study, [])


def test_the_budget_is_as_long_as_the_longest_round():
    short, long = budget(LIMITS, [1, 1]), budget(LIMITS, [1, 2, 1])
    assert long - short == 2 * LIMITS.train + 3 * LIMITS.open + 2 * LIMITS.solve
    assert begun().budget == short


@given(
    attempts=st.lists(st.integers(0, 5), min_size=2, max_size=8),
    needed=st.integers(1, 8),
)
@settings(deadline=None)
def test_never_below_who_is_needed_and_the_worst_go_first(attempts, needed):
    names = tuple(f"s{number}" for number in range(len(attempts)))
    memory = Slowness(tuple(Taken(name, 0.0, count) for name, count in zip(names, attempts, strict=True)))
    asked = spared(memory, names, needed)
    assert len(asked) >= min(needed, len(names))
    assert list(asked) == sorted(asked)
    out = [memory.of(name).attempts for name in names if name not in asked]
    kept = [memory.of(name).attempts for name in asked if memory.of(name).attempts >= LOST]
    assert all(count >= LOST for count in out)
    assert not kept or not out or max(kept) <= min(out)
    assert not kept or len(asked) == min(needed, len(names)), "nobody is kept for mercy"


@given(st.integers(0, 6), st.integers(0, 40))
def test_memory_fades(attempts, rounds):
    memory = Slowness((Taken("south", 7.0, attempts),))
    for _ in range(rounds):
        memory = slowness.committed(memory)
    assert memory.of("south").attempts == max(attempts - rounds // FADES, 0)
    assert memory.of("south").seconds == 7.0, "what was waited for is gone"


def test_forgiving_asks_a_silo_again_at_once_and_gives_its_time_back():
    state = replace(begun(), slowness=Slowness((Taken("south", 50.0, 4), Taken("west", 3.0, 1))))
    assert state.asked == ("east", "north", "polar", "west")
    assert replace(state, silos=tuple(replace(s, away=s.name == "west") for s in state.silos)).asked == FIVE
    state = replace(state, round=replace(state.round, invited=state.asked))
    after, effects = forgive(state, "south")
    assert effects
    assert after.round.invited == FIVE
    assert after.slowness == Slowness((Taken("west", 3.0, 1),))
    with pytest.raises(StudyStateError, match="no silo elsewhere takes part in the study; those that do are east, "):
        forgive(state, "elsewhere")
    with pytest.raises(StudyStateError, match="finished; only in a study that goes on"):
        forgive(replace(state, life=Life.FINISHED), "south")


def test_forgiving_asks_nobody_else_for_a_round_that_only_the_silos_of_its_list_can_make():
    state = replace(begun(), slowness=Slowness((Taken("south", 50.0, 4),)))
    four = tuple(name for name in FIVE if name != "south")
    listed = (Listed(state.round.tensors[0], four),)
    state = replace(state, round=replace(state.round, invited=four, listed=listed))
    after, _ = forgive(state, "south")
    assert (after.round.invited, after.slowness) == (four, Slowness())


def test_forgiving_brings_back_nobody_who_sits_out_after_a_spoilt_sum():
    """Neither another silo nor the forgiven one itself: slowness is forgiven, and not what a sum has shown."""
    script = replace(SCRIPT, min_silos=3)
    state = replace(begun(script), slowness=Slowness((Taken("south", 50.0, 4),)), aside=("north",))
    state = replace(state, round=replace(state.round, invited=("east", "polar", "west")))
    assert forgive(state, "south")[0].round.invited == ("east", "polar", "south", "west")
    own = replace(state, aside=("south",))
    after, _ = forgive(own, "south")
    assert after.round.invited == ("east", "north", "polar", "west")
    assert after.slowness == Slowness()


def test_who_is_missing_is_worse_than_who_is_slow():
    """If the study would wait for somebody else, it asks the slow one."""
    memory = Slowness((Taken("south", 50.0, 4),))
    state = replace(begun(), slowness=memory)
    state = replace(state, round=replace(state.round, invited=state.asked))
    now = state.round.since + LIMITS.offer
    for event in [one for one in wanted(state.round) if author(one) != "west"]:
        state, _ = advance(state, event, now - 1.0)
    state, _ = advance(state, Passed(), now)
    assert (state.round.phase, state.round.invited) == (Phase.OFFER, FIVE)
    assert "south" in state.round.waiting_for


def test_who_is_missing_brings_back_nobody_who_sits_out_after_a_spoilt_sum():
    """But if some have left and the rest can never be enough, who sits out is asked as well."""
    script = replace(SCRIPT, min_silos=3)
    state = replace(begun(script), slowness=Slowness((Taken("south", 50.0, 4),)), aside=("north",))
    state = replace(state, round=replace(state.round, invited=("east", "polar", "west")))
    now = state.round.since + LIMITS.offer
    for event in [one for one in wanted(state.round) if author(one) != "west"]:
        state, _ = advance(state, event, now - 1.0)
    waits, _ = advance(state, Passed(), now)
    assert (waits.round.phase, waits.round.invited) == (Phase.OFFER, ("east", "polar", "south", "west"))
    left = tuple(replace(silo, why="left") if silo.name in {"south", "west"} else silo for silo in state.silos)
    assert replace(state, silos=left).needed == ("east", "north", "polar")


def test_what_was_taken_survives_a_restart_of_the_coordinator():
    state = replace(begun(), slowness=Slowness((Taken("south", 50.5, 4, 1),), (Act("west", 2.5),)))
    assert record.load(type(state), record.dump(state)) == state
