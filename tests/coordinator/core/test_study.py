"""A study as a sequence of attempts: its examples, then its laws under any order of events."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.core import missed
from coordinator.core import state as states
from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
    Complained,
    Confirmed,
    Lost,
    Passed,
    Persist,
    Restarted,
    Returned,
    RoundStopped,
    Uploaded,
)
from coordinator.core.round import WrongPhaseError, step
from coordinator.core.state import ADDED, CONFIRMED, SPARING, Phase
from coordinator.core.study import (
    LIVE,
    OVER,
    InvitedSilo,
    Life,
    Progress,
    Script,
    StudyStateError,
    abort,
    advance,
    create,
    expire,
    pause,
    planned,
    restart_clock,
    resume,
    start,
)
from coordinator.work import work_in
from policies.plan.quorum import least
from protos import changes, record
from protos.messages import RINGS, Confirm, Part, Place, Tensor
from protos.steps import SUM, Note, Task
from support.rounds import (
    LIMITS,
    SHA,
    STUDY,
    accept,
    complaint,
    confirm,
    dispute,
    refuse,
    session,
    upload,
    wanted,
)

PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
SILOS = ("north", "south", "west")


def script(silos=SILOS, min_silos=2, max_attempts=2, colluders=0, recovers=True):
    return Script(STUDY, "tiny", silos, min_silos, colluders, recovers, PLAN, LIMITS, max_attempts)


def started(**changes):
    return start(create(script(**changes)), 0.0)[0]


def feed(state, *events, now=0.0):
    for event in events:
        state, _ = advance(state, event, now)
    return state


def until(state, condition, now=0.0):
    """Everybody does what is asked until the condition holds."""
    while not condition(state):
        state = feed(state, *wanted(state.round), now=now)
    return state


def test_a_created_study_waits_for_its_start():
    state = create(script())
    assert (state.life, state.round, state.active) == (Life.CREATED, None, SILOS)
    with pytest.raises(StudyStateError, match="the study is created"):
        advance(state, Passed(), 0.0)


def test_a_start_offers_round_0_to_all():
    state, effects = start(create(script()), 7.0)
    assert effects == [Persist()]
    assert (state.life, state.round.phase, state.round.since) == (Life.RUNNING, Phase.OFFER, 7.0)
    assert (state.round.place, state.round.invited) == (Place(STUDY, 0, 1), SILOS)
    with pytest.raises(StudyStateError, match="only a created study can be started"):
        start(state, 8.0)


def test_every_round_in_turn_then_the_end():
    state, seen = started(), []
    while state.life is Life.RUNNING:
        seen.append((state.round.place.round, state.round.phase, state.round.tensor))
        state = feed(state, *wanted(state.round))
    assert state.life is Life.FINISHED
    openings = [(number, tensor) for number, phase, tensor in seen if phase is Phase.OPEN]
    assert openings == [(number, tensor) for number, tensors in enumerate(PLAN) for tensor in tensors]
    assert [number for number, phase, _ in seen if phase is Phase.DEAL] == [0], "the keys of round 0 serve to the end"


def test_who_refuses_has_left_by_name_and_the_rest_goes_on():
    state = started()
    place = state.round.place
    state = feed(state, refuse(place, "west"), accept(place, "north"), accept(place, "south"))
    assert state.active == SILOS, "it leaves when the attempt is over"
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.active == state.round.invited == ("north", "south")
    assert state.silos[2].why == "budget_spent: policy.budget is spent"


def test_too_few_remain():
    state = started()
    place = state.round.place
    state = feed(state, refuse(place, "west"), accept(place, "north"), refuse(place, "south"))
    assert state.life is Life.ENDED
    assert state.why == (
        "1 silos take part, the study needs 2; south left (budget_spent: policy.budget is spent);"
        " west left (budget_spent: policy.budget is spent)"
    )


def test_a_failed_attempt_is_made_anew_with_new_keys():
    state = until(started(min_silos=3), lambda s: s.round.place.round == 1 and s.round.phase is Phase.GATHER)
    state = feed(state, Restarted("west", "new"))
    assert (state.round.place, state.round.phase) == (Place(STUDY, 1, 2), Phase.OFFER)
    assert state.round.keyed == ()
    assert until(state, lambda s: s.round.phase is not Phase.OFFER).round.phase is Phase.GREET


def test_the_last_attempt_ends_the_study_by_name():
    state = feed(started(), RoundStopped("a"), RoundStopped("b"))
    assert (state.life, state.why) == (Life.ENDED, "attempt 2 of round 0: b")


def test_an_abort_is_for_good_and_clears_what_was_sealed():
    state = until(started(), lambda s: s.round.phase is Phase.GATHER)
    state, effects = abort(state, "stopped by ops", 9.0)
    assert effects == [Persist(), Clear(Place(STUDY, 0, 1))]
    assert (state.life, state.why, state.round.phase) == (Life.ABORTED, "stopped by ops", Phase.ABORTED)
    with pytest.raises(StudyStateError, match="the study is aborted already"):
        abort(state, "again", 9.0)
    with pytest.raises(StudyStateError, match="the study is aborted"):
        advance(state, Passed(), 9.0)


def test_an_abort_before_the_start():
    state, effects = abort(create(script()), "no", 0.0)
    assert (state.life, state.why, effects) == (Life.ABORTED, "no", [Persist()])


# --- away, waiting, paused ------------------------------------------------------------------------------------------
def waiting():
    """Round 0 with north's seat alone."""
    state = started()
    return feed(feed(state, accept(state.round.place, "north")), Passed(), now=LIMITS.offer)


def test_too_few_present_wait_by_name_and_use_up_no_attempt():
    state = waiting()
    assert (state.life, state.away) == (Life.WAITING, ("south", "west"))
    assert state.why == "1 silos take part, the study needs 2; the round waits for south, west"
    assert (state.round.place.attempt, state.round.names, state.active) == (1, ("north",), SILOS)


def test_who_returns_lets_the_study_go_on_where_it_stood():
    state = feed(waiting(), Returned("south"), now=5000.0)
    assert (state.life, state.why, state.away) == (Life.RUNNING, "", ("west",))
    assert (state.round.phase, state.round.since, state.round.names) == (Phase.OFFER, 5000.0, ("north",))
    state = feed(state, accept(state.round.place, "south"), now=5001.0)
    assert (state.round.phase, state.round.place.attempt) == (Phase.GREET, 1), "west is away and not waited for"
    state = until(state, lambda s: s.round.place.round == 1)
    assert (state.away, state.round.absent, state.silos[2].why) == (("west",), {"west"}, "")


def test_who_has_left_is_not_away():
    silos = (
        InvitedSilo("north"),
        InvitedSilo("south", away=True),
        InvitedSilo("west", "budget_spent: policy.budget is spent", away=True),
    )
    assert replace(started(), silos=silos).away == ("south",)


def test_waiting_may_be_repeated_without_end():
    state = waiting()
    for time in (1000.0, 2000.0, 3000.0):
        state = feed(state, Returned("south"), now=time)
        state = feed(state, Passed(), now=time + LIMITS.offer)
        assert (state.life, state.round.place) == (Life.WAITING, Place(STUDY, 0, 1))


def test_the_operator_may_have_it_asked_again_or_stop_it():
    state, effects = resume(waiting(), 77.0)
    assert effects == [Persist()]
    assert (state.life, state.round.phase, state.round.since, state.why) == (Life.RUNNING, Phase.OFFER, 77.0, "")
    assert state.round.asked == ("south", "west")
    state, effects = abort(waiting(), "stopped by ops", 77.0)
    assert (state.life, effects) == (Life.ABORTED, [Persist(), Clear(Place(STUDY, 0, 1))])


def test_who_was_late_is_not_waited_for_in_the_next_attempt_until_it_is_back():
    state = until(started(min_silos=3), lambda s: s.round.phase is Phase.GATHER)
    place = state.round.place
    state = feed(state, upload(place, "north", Tensor.COUNTS), upload(place, "west", Tensor.COUNTS))
    state = feed(state, Passed(), now=LIMITS.train)
    assert (state.away, state.round.place.attempt, state.round.waiting_for) == (("south",), 2, ("north", "west"))
    state = feed(state, Returned("south"), now=LIMITS.train)
    assert (state.away, state.round.waiting_for) == ((), SILOS)


def test_a_pause_stops_the_clock_and_nothing_else():
    state = until(started(min_silos=3), lambda s: s.round.phase is Phase.GATHER)
    state = feed(state, upload(state.round.place, "north", Tensor.COUNTS), now=10.0)
    state, effects = pause(state, "paused by ops", LIMITS.train - 10)
    assert (state.life, state.why, effects) == (Life.PAUSED, "paused by ops", [Persist()])
    state = feed(state, Passed(), now=1e6)
    assert (state.life, state.round.phase) == (Life.PAUSED, Phase.GATHER)
    state = feed(state, upload(state.round.place, "south", Tensor.COUNTS), now=1e6)
    assert state.round.waiting_for == ("west",), "what is still sent counts"
    state, effects = resume(state, 2e6)
    assert (state.life, state.why, effects) == (Life.RUNNING, "", [Persist()])
    assert state.round.deadline == 2e6 + 10
    assert feed(state, Passed(), now=2e6 + 9).round.place.attempt == 1
    assert feed(state, Passed(), now=2e6 + 10).round.place.attempt == 2


def test_a_phase_that_begins_in_a_pause_has_its_full_time_after_it():
    state = until(started(), lambda s: s.round.phase is Phase.GATHER, now=5.0)
    state, _ = pause(state, "paused by ops", 20.0)
    state = until(state, lambda s: s.round.phase is Phase.ADD, now=1000.0)
    state = feed(state, Added(Part(SUM, "", 1, SHA)), now=1000.0)
    state, _ = resume(state, 3000.0)
    assert (state.round.phase, state.round.deadline) == (Phase.SIGN, 3000.0 + LIMITS.open)


def test_a_study_may_end_while_it_is_paused():
    state, _ = pause(until(started(), lambda s: s.round.place.round == 2), "paused by ops", 5.0)
    state = until(state, lambda s: s.life is not Life.PAUSED, now=6.0)
    assert (state.life, state.why) == (Life.FINISHED, "all rounds are committed")


def test_a_pause_outlasts_the_attempt_and_the_waiting():
    state, _ = pause(waiting(), "paused by ops", 50.0)
    state = feed(state, Returned("south"), now=60.0)
    assert (state.life, state.round.phase, state.why) == (Life.PAUSED, Phase.OFFER, "paused by ops")
    state = feed(state, RoundStopped("x"), now=60.0)
    assert (state.life, state.round.place.attempt) == (Life.PAUSED, 2)
    state, _ = resume(state, 100.0)
    assert (state.life, state.round.deadline) == (Life.RUNNING, 100.0 + LIMITS.offer)


@pytest.mark.parametrize(
    ("state", "move", "sentence"),
    [
        (create(script()), pause, "the study is created; only a running or waiting study can be paused"),
        (pause(started(), "x", 1.0)[0], pause, "the study is paused; only a running or waiting study can be paused"),
        (abort(started(), "x", 1.0)[0], pause, "the study is aborted; only a running"),
        (create(script()), resume, "the study is created; only a paused or waiting study can be resumed"),
        (started(), resume, "the study is running; only a paused or waiting study can be resumed"),
        (abort(started(), "x", 1.0)[0], resume, "the study is aborted; only a paused"),
    ],
)
def test_what_cannot_be_paused_or_resumed(state, move, sentence):
    with pytest.raises(StudyStateError, match=sentence):
        move(state, "x", 2.0) if move is pause else move(state, 2.0)


@pytest.mark.parametrize("state", [started(), abort(create(script()), "x", 1.0)[0], pause(started(), "x", 1.0)[0]])
def test_only_a_created_study_can_be_started(state):
    with pytest.raises(StudyStateError, match=f"the study is {state.life}; only a created study can be started"):
        start(state, 2.0)


def test_a_study_whose_sums_nobody_could_open_asks_everybody():
    """A study of an earlier version may be so. It ends by name when it begins, and has a status until then."""
    state = create(script(colluders=3))
    assert state.asked == SILOS


def test_time_without_coordinator_does_not_count():
    state = until(started(), lambda s: s.round.phase is Phase.GATHER)
    again, effects = restart_clock(state, 500.0)
    assert (again.round.deadline, effects) == (500.0 + LIMITS.train, [Persist()])
    for other in (create(script()), waiting(), pause(state, "x", 3.0)[0], abort(state, "x", 3.0)[0]):
        assert restart_clock(other, 500.0) == (other, [])


def test_who_missed_a_round_catches_up_before_it_gives_anything():
    state = started()
    place = state.round.place
    state = feed(feed(state, accept(place, "north"), accept(place, "south")), Passed(), now=LIMITS.offer)
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.round.expected == "m"
    state = feed(state, Returned("west"), accept(state.round.place, "west"))
    seen = []
    while state.round.place.round == 1:
        seen.append((state.round.phase, state.round.asked))
        state = feed(state, *wanted(state.round))
    assert seen[:6] == [
        (Phase.OFFER, ("north", "south")),
        (Phase.GREET, SILOS),
        (Phase.DEAL, ("west",)),
        (Phase.TAKE, SILOS),
        (Phase.SHARE, ("north",)),
        (Phase.CATCH_UP, ("west",)),
    ]
    assert seen[6:9] == [(Phase.EXCHANGE, SILOS), (Phase.CHECK, SILOS), (Phase.GATHER, SILOS)]
    assert state.active == SILOS


FOUR = ("east", "north", "south", "west")
FIVE = ("east", "north", "polar", "south", "west")


def test_who_is_lost_in_a_round_catches_up_in_the_next():
    state = until(started(silos=FIVE), lambda s: s.round.place.round == 1 and s.round.phase is Phase.GATHER)
    keyed = state.round.members
    late = [event for event in wanted(state.round) if event.header.silo != "south"]
    state = feed(feed(state, *late), Passed(), now=LIMITS.train)
    assert (state.round.place, state.round.lost, state.away) == (Place(STUDY, 1, 1), {"south"}, ("south",))
    state = until(state, lambda s: s.round.place.round == 2, now=LIMITS.train)
    assert (state.round.lost, state.round.expected, state.round.keyed) == (frozenset(), "m", keyed)
    assert state.round.asked == FIVE, "it is asked again with the next offer"
    state = feed(state, Returned("south"), accept(state.round.place, "south", model="old"), now=LIMITS.train)
    state = until(state, lambda s: s.round.phase is not Phase.OFFER, now=LIMITS.train)
    assert (state.round.phase, state.round.behind) == (Phase.SHARE, ("south",)), "with the keys that it has"
    state = until(state, lambda s: s.round.phase is Phase.GATHER, now=LIMITS.train)
    assert state.round.participants == FIVE


@pytest.mark.parametrize("phase", [Phase.GATHER, Phase.OPEN])
def test_who_disputed_has_dropped_its_keys_and_catches_up_with_new_ones(phase):
    state = until(started(silos=FIVE), lambda s: s.round.place.round == 1 and s.round.phase is phase)
    state = replace(state, round=replace(state.round, complaints=("south",)))
    place, task, tensor = state.round.place, CONFIRMED.get(phase, Task.CONTRIBUTE), state.round.tensor
    state = feed(state, Confirmed("south", Confirm(place, task, tensor, dispute="state", explanation="no room")))
    state = until(state, lambda s: s.round.place.round == 2)
    assert state.round.keyed == ()
    state = feed(state, accept(state.round.place, "south", model="old"))
    seen = []
    while state.round.phase is not Phase.CATCH_UP:
        seen.append(state.round.phase)
        state = feed(state, *wanted(state.round))
    assert seen == [Phase.OFFER, Phase.GREET, Phase.DEAL, Phase.TAKE, Phase.SHARE]


def test_who_holds_another_model_than_most_catches_up_in_the_next_round():
    state = until(started(silos=FIVE), lambda s: s.round.phase is Phase.OPEN)
    place = state.round.place
    state = feed(state, confirm(place, "east", Task.OPEN, Tensor.COUNTS, model="other"))
    state = until(state, lambda s: s.round.place.round == 1)
    assert (state.round.expected, state.away) == ("m", ()), "it is present, with another model"
    state = feed(state, accept(state.round.place, "east", model="other"))
    state = until(state, lambda s: s.round.phase is not Phase.OFFER)
    assert (state.round.phase, state.round.behind) == (Phase.SHARE, ("east",))


@pytest.fixture
def apart():
    """One of four has accused another without evidence, so that one of the two sits out; two others are there."""
    state = until(started(silos=FOUR, min_silos=3, colluders=1), lambda s: s.round.phase is Phase.CHECK)
    state = feed(state, complaint(state.round.place, "east", "north"))
    (out,) = state.aside
    (other,) = {"east", "north"} - {out}
    assert set(state.round.invited) == set(FOUR) - {out}
    return state, out, other


def test_who_has_put_another_aside_cannot_stop_the_study_by_staying_away(apart):
    state, out, other = apart
    place = state.round.place
    state = feed(state, accept(place, "south"), accept(place, "west"))
    state = feed(state, Passed(), now=LIMITS.offer)
    assert (state.round.place, state.round.phase, state.life) == (place, Phase.OFFER, Life.RUNNING)
    assert (state.aside, set(state.round.invited)) == ((other,), set(FOUR) - {other})
    assert state.round.names == ("south", "west"), "they need not answer again"
    state = until(feed(state, accept(place, out), now=LIMITS.offer), lambda s: s.round.place.round == 1)
    assert state.life is Life.RUNNING
    assert (state.aside, out in state.round.invited, other in state.round.invited) == ((other,), True, False)


def test_who_sits_out_does_so_as_long_as_others_are_missed(apart):
    state, out, other = apart
    place = state.round.place
    state = feed(state, accept(place, "south"), accept(place, other))
    state = feed(state, Passed(), now=LIMITS.offer)
    assert (state.life, state.aside, state.round.unanswered) == (Life.WAITING, (out,), ("west",))


def test_with_distributed_noise_a_dropout_uses_up_an_attempt():
    state = until(started(silos=FIVE, recovers=False), lambda s: s.round.phase is Phase.EXCHANGE)
    state = feed(state, Restarted("south", "new"))
    assert state.round.place == Place(STUDY, 0, 2)


# --- laws under any order of events ---------------------------------------------------------------------------------
NAMES = ("east", "farm", "hill", "north", "port", "south", "west", "elsewhere")
name = st.sampled_from(NAMES)
TROUBLES = (
    "refuse",
    "disagree",
    "dispute",
    "stop_the_attempt",
    "wait",
    "come_back_anew",
    "pause_or_resume",
    "fall_back",
    "be_late",
)
"""What may end or stop an attempt. A run has only some of them, else hardly any would get past its first sums."""


@st.composite
def scripts(draw):
    """Studies of two to seven silos that a coordinator takes, in most of which some may be lost."""
    silos = draw(st.integers(2, len(NAMES) - 1))
    colluders = draw(st.integers(0, min(2, silos - 1)))
    needed = draw(st.integers(least(silos, colluders), min(silos, least(silos, colluders) + 1)))
    recovers = draw(st.sampled_from((True, True, True, False)))
    return script(NAMES[:silos], needed, draw(st.integers(1, 3)), colluders, recovers)


def troubled(method):
    """This rule applies only in runs that have its trouble."""
    return precondition(lambda self: method.__name__ in self.troubles)(method)


class Federation(RuleBasedStateMachine):
    """A coordinator among silos that answer, repeat, restart, disagree, fall silent or behind, or speak out of turn.

    Only what really happened is kept beside the state: who was counted in which sum, which sums were made of whom, who
    was lost, what model each has confirmed, how long the coordinator has run in the current phase. The laws compare the
    state with it.
    """

    @initialize(
        of=scripts(),
        faithful=st.booleans(),
        troubles=st.sets(st.sampled_from(TROUBLES)),
    )
    def begin(self, of, faithful, troubles):
        self.script = of
        self.state, _ = start(create(self.script), 0.0)
        self.now, self.faithful, self.troubles = 0.0, faithful, troubles
        self.ran = 0.0
        self.last = None
        self.counted: dict[tuple[Place, Tensor], Counter[str]] = {}
        self.opened: Counter[tuple[Place, Tensor]] = Counter()
        self.lists: dict[tuple[Place, Tensor], tuple[str, ...]] = {}
        self.listed: dict[tuple[int, Tensor], tuple[str, ...]] = {}
        self.revealed: set[tuple[int, Tensor, str]] = set()
        self.opened_lists: dict[tuple[int, Tensor], tuple[str, ...]] = {}
        self.complained: Counter[str] = Counter()
        self.case, self.found = None, {}
        self.blamed: list[set[str]] = []
        self.events = 0
        self.noted: set[tuple[Place, str]] = set()
        self.lost: dict[Place, set[str]] = {}
        self.said: dict[tuple[Place, str], str] = {}
        self.caught_up: set[tuple[Place, str]] = set()
        self.held = ""
        self.places = [self.state.round.place]

    def send(self, event):
        """One event, checked against every law of a step."""
        event = self.kept_promise(event)
        before, copy, self.last = self.state, record.dump(self.state), event
        try:
            after, effects = advance(before, event, self.now)
        except (WrongPhaseError, StudyStateError):
            assert record.dump(before) == copy
            return
        if not effects:
            assert after is before
            return
        assert effects[0] == Persist()
        assert effects.count(Persist()) == 1
        self.events += 1
        if self.events % 8 == 0:  # it costs more than all other laws
            assert changes.applied(json.loads(copy), changes.difference(before, after)) == record.plain(after)
        assert after != before
        self.state = after
        self.notice(before, event, effects)

    def kept_promise(self, event):
        """A silo that has revealed for a sum does not void its list. Nothing else keeps the silos here to the rules."""
        said = event.confirm if isinstance(event, Confirmed) else None
        if (
            said is None
            or said.task is not Task.VOID
            or (said.place.round, said.tensor, event.silo) not in self.revealed
        ):
            return event
        return Confirmed(event.silo, replace(said, signature=b""))

    def notice(self, before, event, effects):
        old, new = before.round, self.state.round
        if isinstance(event, Uploaded):
            assert event.header.silo not in self.lost.get(old.place, ()), "nothing of the lost counts any more"
            if event.header.kind in RINGS:
                self.count(old, event.header)
            if event.header.kind == Note.SHARES:
                self.noted.add((old.place, event.header.silo))
            if event.header.kind == Note.REVEAL:
                self.revealed.add((old.place.round, old.tensor, event.header.silo))
        for effect in effects:
            self.notice_effect(old, effect)
        self.notice_lists(event, old, new)
        if isinstance(event, Confirmed) and old.phase is Phase.CATCH_UP:
            self.caught_up.add((old.place, event.silo))
        if isinstance(event, Confirmed) and (event.confirm.dispute or self.fell_behind(old, event)):
            self.complained[event.silo] += 1
        if isinstance(event, Confirmed) and old.phase in (Phase.OPEN, Phase.ADOPT):
            self.said[old.place, event.silo] = event.confirm.model
        self.notice_time(old, new)
        self.notice_end(before, event, old, new, effects)
        self.notice_complaint(event, old, effects)
        self.notice_who_left(before, event, old)

    def notice_lists(self, event, old, new):
        if isinstance(event, Added):
            self.opened[old.place, old.tensor] += 1
            listed = self.listed.setdefault((old.place.round, old.tensor), old.survivors)
            assert listed == old.survivors, "silos sign one list for a sum of a round, until they have voided it"
        if old.phase is Phase.REVEAL and new.phase is Phase.OPEN:
            first = self.opened_lists.setdefault((old.place.round, old.tensor), old.survivors)
            assert first == old.survivors, "one list of a sum is opened in a round, whatever the attempt"
        self.notice_void(old, new)

    def notice_who_left(self, before, event, old):
        assert set(self.state.active) <= set(before.active), "who has left does not return"
        gone = set(before.active) - set(self.state.active)
        refused = {r.silo for r in old.refusals}
        if isinstance(event, Answered) and event.answer.member is None:
            refused.add(event.silo)
        twice = {silo for silo, times in self.complained.items() if times > 1}
        named = self.named()
        assert named.isdisjoint(self.state.active), "who is proven to have lied has left"
        assert gone <= refused | twice | named, "nobody leaves but by refusing, by a second dispute, or by a proof"
        enough = len(self.state.active) >= self.script.min_silos
        assert gone <= refused | named or enough, "nobody is left out who is needed"

    def notice_complaint(self, event, old, effects):
        """A complaint without evidence lies at one of the two, one with evidence at whom it shows, unless more silos
        find otherwise than may be hostile.
        """
        if isinstance(event, Complained):
            pair, there = {event.silo, event.confirm.culprit}, (old.place, event.confirm.culprit) in self.noted
            self.case, self.found = (pair, event.liar if there else ""), {}
        elif old.phase is Phase.EXAMINE and isinstance(event, Confirmed):
            assert event.silo in set(old.names) - self.case[0], "the two have no say"
            self.found.setdefault(event.silo, event.confirm.culprit)
        over = any(isinstance(effect, Clear) for effect in effects)
        if self.case is None or not over or isinstance(event, RoundStopped):
            return
        (pair, liar), self.case = self.case, None
        unlike = [said for said in self.found.values() if said != liar]
        self.blamed.append({liar} if liar and len(unlike) <= self.script.colluders else pair)

    def named(self):
        """Who is in every set of silos, of as many as may be hostile, that explains all complaints."""
        most = self.script.colluders
        sets = [set(some) for size in range(most + 1) for some in itertools.combinations(self.script.silos, size)]
        explain = [some for some in sets if all(some & one for one in self.blamed)]
        return set.intersection(*explain) if explain and self.blamed else set()

    def fell_behind(self, old, event):
        """A silo that was to catch up and says that it holds another model after it."""
        return old.phase is Phase.CATCH_UP and event.confirm.model != old.model

    def notice_void(self, old, new):
        void = new.void_of(old.tensor) if old.phase is Phase.VOID and new.place == old.place else None
        if void is None or void == old.void_of(old.tensor):
            return
        promised = {one.silo for one in void.promises}
        assert len(promised) == len(void.promises) >= old.threshold
        assert void.through == old.place.attempt - 1
        assert not any((old.place.round, old.tensor, silo) in self.revealed for silo in promised)
        del self.listed[old.place.round, old.tensor]

    def notice_effect(self, old, effect):
        if isinstance(effect, Add):
            self.notice_sum(old, effect)
        if isinstance(effect, Clear):
            assert effect.place == old.place
        if isinstance(effect, Lost) and old.phase is Phase.OFFER:
            self.notice_stranded(old, effect)
        elif isinstance(effect, Lost):
            self.notice_loss(old, effect)

    def notice_sum(self, old, effect):
        witnesses = self.counted[effect.place, effect.tensor]
        assert witnesses == Counter(effect.silos), "each silo that has uploaded once, and nobody else"
        assert set(effect.silos) <= set(old.participants) <= set(old.names)
        assert len(effect.silos) >= old.threshold >= self.script.min_silos
        assert (effect.place, effect.tensor) not in self.lists, "one list for a tensor and attempt"
        self.lists[effect.place, effect.tensor] = effect.silos

    def notice_stranded(self, old, effect):
        """Whoever is behind and cannot be told a signed model gets no seat. It is not lost in the round."""
        assert (effect.place, effect.phase) == (old.place, old.phase)
        assert effect.silos
        assert effect.why
        models = {seat.member.silo: seat.model for seat in old.seats}
        if isinstance(self.last, Answered) and self.last.answer.member:
            models[self.last.silo] = self.last.answer.model
        signers = {one.silo for one in old.vouches}
        able = any(models[name] == old.expected for name in signers.intersection(models).difference(old.unshared))
        for silo in effect.silos:
            assert models[silo] != old.expected, "who holds the model keeps its seat"
            assert not able or len(signers - {silo}) <= self.script.colluders, "who can catch up keeps its seat"
        assert self.state.round.place != old.place or not set(effect.silos) & set(self.state.round.names)

    def notice_loss(self, old, effect):
        shared = old.tensor is not Tensor.ENCODER and old.phase not in ADDED
        assert self.script.recovers or not shared, "a share of the noise would be missing"
        assert (effect.place, effect.phase) == (old.place, old.phase)
        assert old.phase in SPARING
        gone = self.lost.setdefault(old.place, set())
        assert effect.silos
        assert effect.why
        assert gone.isdisjoint(effect.silos), "nobody is lost twice"
        gone.update(effect.silos)
        assert gone <= set(old.names)
        assert len(old.names) - len(gone) >= old.threshold, "enough stay to open what is summed"

    def count(self, old, header):
        self.counted.setdefault((old.place, header.tensor), Counter())[header.silo] += 1
        seat = next(seat for seat in old.seats if seat.member.silo == header.silo)
        assert seat.model == self.held or (old.place, header.silo) in self.caught_up, "nobody gives who is behind"

    def notice_time(self, old, new):
        # An offer to more silos begins anew, so that they have its full time, too.
        was, now = ((one.place, one.phase, one.cursor, one.voiding, one.actor, one.invited) for one in (old, new))
        if now != was:
            self.ran = 0.0

    def notice_end(self, before, event, old, new, effects):
        over = any(isinstance(effect, Clear) for effect in effects)
        assert over or new.place == old.place, "no attempt follows one that is not over"
        if not over:
            return
        committed = self.state.life is Life.FINISHED or new.place.round > old.place.round
        ended, _ = step(old, event, before.clock(self.now))
        assert ended.phase is (Phase.COMMITTED if committed else Phase.ABORTED)
        assert committed or ended.why
        if committed:
            stayed = set(old.names) - self.lost.get(old.place, set())
            words = {self.said.get((old.place, silo)) for silo in stayed}
            assert len(words) == 1, "all who stayed hold one model"
            assert len(stayed) >= old.threshold
            (self.held,) = words
            assert self.held is not None
        if new.place != old.place:
            assert new.place > self.places[-1]
            self.places.append(new.place)
            assert new.expected == self.held
            assert new.absent == set(self.state.away)

    @property
    def place(self):
        return self.state.round.place

    @property
    def next_model(self):
        """What this attempt's sums lead to."""
        return f"model {self.place.round} {self.place.attempt}"

    @rule(silo=name, number=st.integers(1, 2), key=st.sampled_from((b"k", b"k", b"n")))
    def answer(self, silo, number, key):
        self.send(accept(self.place, silo, model=self.held, number=number, key=key))

    @troubled
    @rule(number=st.integers(0, 3), model=st.sampled_from(("", "old")))
    def fall_back(self, number, model):
        """Somebody who is asked accepts with another model than the last committed round's."""
        asked = self.state.round.unanswered
        if asked:
            self.send(accept(self.place, asked[number % len(asked)], model=model))

    @troubled
    @rule(silo=name)
    def refuse(self, silo):
        self.send(refuse(self.place, silo))

    @rule(silo=name, what=st.sampled_from((*Tensor, *Note)))
    def upload(self, silo, what):
        self.send(upload(self.place, silo, what, Tensor.HEADS if what is Note.REVEAL else None))

    @rule(silo=name)
    def upload_what_is_gathered(self, silo):
        round_ = self.state.round
        if round_.phase is Phase.GATHER:
            self.send(upload(self.place, silo, round_.tensor))
        elif round_.phase in states.COLLECTED:
            self.send(upload(self.place, silo, states.COLLECTED[round_.phase], round_.tensor))

    @rule(
        silo=name,
        task=st.sampled_from(tuple(states.CONFIRMED.values())),
        tensor=st.sampled_from((None, *Tensor)),
    )
    def confirm(self, silo, task, tensor):
        if task in (Task.SIGN, Task.VOID, Task.RECOUNT) and tensor is None:
            return
        model = self.held if task is Task.CATCH_UP else self.next_model
        culprit = self.state.round.liar or silo if task is Task.EXAMINE else ""
        self.send(confirm(self.place, silo, task, tensor, model=model, culprit=culprit))

    @troubled
    @rule(silo=name, model=st.just("other"))
    def disagree(self, silo, model):
        task = {Phase.CATCH_UP: Task.CATCH_UP, Phase.OPEN: Task.OPEN, Phase.ADOPT: Task.ADOPT}.get(
            self.state.round.phase
        )
        if task is not None:
            self.send(confirm(self.place, silo, task, self.state.round.tensor, model=model))

    @troubled
    @rule(silo=name)
    def dispute(self, silo):
        self.send(dispute(self.place, silo, Task.CONTRIBUTE))

    @rule(size=st.integers(1, 9))
    def add(self, size):
        self.send(Added(Part(SUM, "", size, SHA)))

    @rule(silo=name)
    def poll(self, silo):
        """As the engine does: whoever polls is not away, and may have lost its keys."""
        attempt, waited = self.place, self.state.life is Life.WAITING
        self.send(Restarted(silo, session(silo)))
        self.send(Returned(silo))
        assert self.state.life in OVER or silo not in self.state.away
        assert not waited or self.place == attempt, "waiting uses up no attempt"

    @troubled
    @rule(silo=name)
    def come_back_anew(self, silo):
        self.send(Restarted(silo, session(silo, 2)))

    @rule()
    def lose_the_reply(self):
        """The silo has not heard that its last word was taken, and says it again."""
        if self.last is not None and not isinstance(self.last, (Passed, RoundStopped)):
            self.send(self.last)

    @troubled
    @rule(seconds=st.floats(0, 150))
    def wait(self, seconds):
        """The clock stops at a deadline, as the coordinator's ticks do."""
        attempt, life = self.place, self.state.life
        if life is Life.RUNNING:
            left = max(self.state.round.deadline - self.now, 0.0)
            seconds = min(seconds, left)
            self.now = self.state.round.deadline if seconds == left else self.now + seconds
            self.ran += seconds
            self.send(Passed())
            assert self.state.life is not Life.RUNNING or self.now < self.state.round.deadline
            assert self.state.life is not Life.WAITING or self.place == attempt, "waiting uses up no attempt"
        elif life in LIVE:
            before = self.state
            self.now += 100 * seconds
            self.send(Passed())
            assert self.state == before, "time stands still"

    @troubled
    @rule(silo=name)
    def be_late(self, silo):
        """All others do what is asked in this phase, and its time passes."""
        round_ = self.state.round
        if self.state.life is not Life.RUNNING or round_.phase is Phase.ADD:
            return
        for event in wanted(round_, self.next_model):
            author = event.header.silo if isinstance(event, Uploaded) else event.silo
            if author != silo and self.state.round.phase is round_.phase:
                self.send(event)
        if self.state.life is Life.RUNNING:
            self.ran += max(self.state.round.deadline - self.now, 0.0)
            self.now = max(self.now, self.state.round.deadline)
            self.send(Passed())

    @troubled
    @rule()
    def pause_or_resume(self):
        before = self.state
        if before.life is Life.PAUSED:
            self.state, effects = resume(before, self.now)
            if before.round.phase is Phase.WAIT:
                self.ran = 0.0
        elif before.life in LIVE:
            self.state, effects = pause(before, "paused by ops", self.now)
        else:
            return
        assert effects == [Persist()]
        assert (self.state.round.place, self.state.round.seats) == (before.round.place, before.round.seats)

    @troubled
    @rule()
    def stop_the_attempt(self):
        self.send(RoundStopped("adding failed"))

    @rule(steps=st.integers(1, 12))
    def go_on(self, steps):
        """Silos and coordinator do what is asked; without this few runs would get far."""
        for _ in range(steps):
            if self.state.life in LIVE:
                self.send(wanted(self.state.round, self.next_model)[0])

    @rule(seconds=st.floats(0, 1e5))
    def restart_the_coordinator(self, seconds):
        self.now += seconds
        self.state, _ = restart_clock(record.load(Progress, record.dump(self.state)), self.now)
        if self.state.life is Life.RUNNING:
            self.ran = 0.0

    @precondition(lambda self: hasattr(self, "state"))
    @invariant()
    def what_is_stored_is_the_state(self):
        assert record.load(Progress, record.dump(self.state)) == self.state

    @precondition(lambda self: hasattr(self, "state"))
    @invariant()
    def laws_of_every_state(self):
        state, round_ = self.state, self.state.round
        assert all(times == 1 for times in self.opened.values()), "one sum a tensor and attempt"
        assert all(times == 1 for silos in self.counted.values() for times in silos.values())
        assert round_.place.attempt <= self.script.max_attempts
        assert len(set(round_.names)) == len(round_.names)
        assert list(round_.names) == sorted(round_.names)
        assert set(round_.names) | {r.silo for r in round_.refusals} <= set(round_.invited)
        if round_.phase not in (Phase.OFFER, Phase.WAIT, Phase.ABORTED):
            assert len(round_.names) >= self.script.min_silos
        if state.life in LIVE:
            self.laws_of_a_live_study(state, round_)
        if state.life in OVER:
            assert state.why

    def laws_of_a_live_study(self, state, round_):
        assert round_.phase not in states.OVER
        lost = self.lost.get(round_.place, set())
        assert round_.lost == lost
        assert set(round_.survivors) <= set(round_.participants) <= set(round_.names)
        if round_.phase in (Phase.ADD, *states.ADDED):
            assert round_.survivors == self.lists[round_.place, round_.tensor]
            assert {one.silo for one in round_.signatures} <= set(round_.survivors)
        assert round_.waiting_for or round_.phase is Phase.ADD
        assert set(state.away) == round_.absent
        if state.life is Life.PAUSED:
            given = [work_in(state, silo, told=False) for silo in state.active]
            assert given == [None] * len(given), "nobody is given work in a pause"
        else:
            assert (state.life is Life.WAITING) == (round_.phase is Phase.WAIT)
            assert bool(state.why) == (state.life is Life.WAITING)
            given = {silo for silo in state.active if work_in(state, silo, told=False)}
            assert given == set(round_.asked)
            assert given.isdisjoint(lost), "the lost are asked for nothing"
        offered = round_.phase in (Phase.OFFER, Phase.WAIT)
        assert tuple(one.silo for one in state.missed) == round_.required, "who is missed where no list binds?"
        missing = {one.silo for one in state.missed if one.since is not None}
        assert missing == (set(round_.required).intersection(round_.unanswered) if offered else set())
        if round_.phase is Phase.WAIT:
            # A round whose list was given out asks those of the list alone, whoever else is away.
            waited_for = round_.absent.intersection(round_.required) if round_.required else round_.absent
            assert set(round_.unanswered) == waited_for, "whoever is present is asked"
            assert round_.required or set(state.needed) <= set(round_.invited), (
                "who is missing is worse than who is slow"
            )
            assert round_.lacking
        else:
            left = round_.deadline - state.clock(self.now)
            assert left == pytest.approx(round_.limits.of(round_.phase) - self.ran, abs=1e-3), (
                "only time running counts"
            )
        if round_.phase is Phase.OFFER:
            assert round_.lacking or not round_.absent.issuperset(round_.unanswered), "nobody away blocks an offer"

    def complain(self, phase, number, other, liar, unlike):
        """All do what is asked until a silo may complain of another. Some of the others find another liar."""
        for _ in range(3 * len(NAMES)):
            if self.state.life is Life.RUNNING and self.state.round.phase is not phase:
                self.send(wanted(self.state.round, self.next_model)[0])
        round_ = self.state.round
        if round_.phase is not phase or not round_.asked:
            return
        silo = round_.asked[number % len(round_.asked)]
        owner = round_.names[(round_.names.index(silo) + other) % len(round_.names)]
        shown = {"": "", "silo": silo, "owner": owner}[liar]
        self.send(complaint(self.place, silo, owner, task=states.COMPLAINED[phase], liar=shown))
        for examiner in self.state.round.waiting_for[:unlike] if self.state.round.phase is Phase.EXAMINE else ():
            said = ({silo, owner} - {shown}).pop()
            self.send(confirm(self.place, examiner, Task.EXAMINE, culprit=said))

    def leave_out_who_stays_away(self):
        """Whoever a list binds and is never back leaves the study, and the list with it, and no one else or sooner."""
        before = self.state
        assert all(one.since is None or one.since <= before.clock(self.now) for one in before.missed)
        away = set(before.round.unanswered) if before.life is Life.WAITING and before.round.required else set()
        times = dict(missed.until(before.missed))
        assert not away or set(times) == away
        for time in sorted({*times.values()}) if away else [1e12]:
            assert expire(before, time - 1e-3) == (before, []) or time > min(times.values())
            after, effects = expire(before, time)
            gone = {silo for silo in away if times[silo] <= time}
            assert bool(effects) == bool(gone)
            assert {one.name for one in after.silos if one.why} == {one.name for one in before.silos if one.why} | gone
            assert not gone or after.round.voiding or (after.life in OVER and after.round.phase is Phase.ABORTED)

    def teardown(self):
        """Whatever has happened: with faithful silos the study comes to its end, with silent ones it ends or waits."""
        if not hasattr(self, "state"):
            return
        if self.state.life is Life.PAUSED:
            self.pause_or_resume()
        for _ in range(len(PLAN) * self.script.max_attempts * 200):
            if self.state.life in OVER or (self.state.life is Life.WAITING and not self.faithful):
                break
            if self.faithful:
                self.send(wanted(self.state.round, self.next_model)[0])
            else:
                self.ran += self.state.round.deadline - self.now
                self.now = self.state.round.deadline
                self.send(Passed())
        else:
            pytest.fail("it comes to no end")
        self.leave_out_who_stays_away()
        assert (self.state.life is Life.FINISHED) == (self.state.round.phase is Phase.COMMITTED)


Federation.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFederation = Federation.TestCase

complaints = st.tuples(
    st.sampled_from((*states.COMPLAINED, Phase.CHECK, Phase.CHECK)),
    st.integers(0, 6),
    st.integers(1, 6),
    st.sampled_from(("", "silo", "owner", "owner")),
    st.integers(0, 3),
)


@settings(max_examples=50)
@given(of=scripts(), several=st.lists(complaints, min_size=1, max_size=5), faithful=st.booleans())
def test_complaints_name_whom_the_evidence_shows_unless_too_many_find_otherwise(of, several, faithful):
    study = Federation()
    study.begin(replace(of, max_attempts=len(several) + 1), faithful, set())
    for one in several:
        study.complain(*one)
        study.laws_of_every_state()
    study.teardown()


def test_an_attempt_that_begins_late_has_its_full_time():
    state = until(started(), lambda s: s.round.phase is Phase.GATHER)
    state = feed(state, Passed(), now=LIMITS.train + 1000)
    assert state.round.place == Place(STUDY, 0, 2)
    assert state.round.deadline == LIMITS.train + 1000 + LIMITS.offer


def test_a_silo_that_is_silent_is_asked_again_in_the_next_round():
    state = started()
    place = state.round.place
    state = feed(state, accept(place, "north"), accept(place, "south"))
    state = feed(state, Passed(), now=LIMITS.offer)
    assert state.round.names == ("north", "south")
    state = until(state, lambda s: s.round.place.round == 1)
    assert state.round.invited == SILOS
    assert replace(state.silos[2]).why == ""


# --- a study that another version stored ------------------------------------------------------------------------------
NOW = (*PLAN[:2], (Tensor.HEADS,), (Tensor.METRICS,))
"""As `PLAN`, but the metrics have a round of their own."""


def test_a_stored_study_goes_on_under_another_plan_of_later_rounds():
    for state in (create(script()), started(), until(started(), lambda s: s.round.place.round == 1)):
        assert planned(state, PLAN) is state
        current = planned(state, NOW)
        assert current == replace(state, script=replace(state.script, tensors=NOW))
    done = until(current, lambda s: s.life in OVER)
    assert (done.life, done.round.place.round) == (Life.FINISHED, 3)


def test_a_study_within_a_round_that_is_planned_otherwise_does_not_go_on():
    state = until(started(), lambda s: s.round.place.round == 2)
    with pytest.raises(StudyStateError, match="its round 2 sums heads, metrics, but this version sums heads; create a"):
        planned(state, NOW)
