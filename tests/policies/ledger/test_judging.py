from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.accounting import totals
from policies.errors import CosignError
from policies.ledger.events import Debit, EntryRef
from policies.ledger.judging import (
    OLDEST,
    RECENT,
    SeenCheckpoint,
    Summed,
    chargeable,
    cost_of,
    kept,
    require_believable,
    require_explained,
    require_summed,
    standing,
)
from policies.plan.cost import Cost
from policies.plan.release import plan
from support.studies import tiny_study
from support.thefts import charged, extended, head_of

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
STUDY = tiny_study()
OTHER = tiny_study(
    name="other",
    heads={"pooled_noise": 16.0, "domain_noise": 21.0},
    encoder={"noise": 5.0},
    evaluation={"noise": 9.0},
    privacy={"count_noise": 31.0},
)
MADE_UP = Debit("f" * 64, "p", 0, 1, {"heads": Cost("training", 1.0, 0.5, 7)})
HOUR = timedelta(hours=1)
LAST = head_of(charged(STUDY, [0]))


# --- what binds ---------------------------------------------------------------------------------------------------
def seen(received=NOW, stolen=None, rounds=1):
    return SeenCheckpoint(head_of(charged(STUDY, range(rounds))), received, stolen)


def test_what_came_under_a_key_after_its_theft_binds_nobody():
    before, during = seen(NOW - HOUR, NOW, 1), seen(NOW, NOW, 2)
    after = seen(NOW + HOUR, NOW, 3)
    assert standing([before, during, after]) == before
    assert standing([during, after]) is None
    assert standing([]) is None


def test_only_the_cosigners_own_time_of_receipt_counts():
    """What the checkpoint itself says can be any time. What was kept without a time goes on binding."""
    backdated = SeenCheckpoint(replace(LAST, at="2020-01-01T00:00:00+00:00"), NOW, NOW - HOUR)
    assert not backdated.binds
    assert SeenCheckpoint(LAST, None, NOW - HOUR).binds
    assert seen(NOW, None).binds


@given(st.lists(st.integers(0, 5000), max_size=600).map(sorted))
def test_the_memory_is_bounded_and_keeps_the_newest_and_the_last_of_each_day(hours):
    times = [NOW + timedelta(hours=number) for number in hours]
    stay = kept(times)
    assert stay == sorted(set(stay))
    assert len(stay) <= OLDEST
    assert stay[-RECENT:] == list(range(len(times)))[-RECENT:]
    days = {times[place].date() for place in stay}
    older = [time.date() for time in times[: max(0, len(times) - RECENT)]]
    assert set(older[-1:]) <= days
    assert kept([times[place] for place in stay]) == list(range(len(stay))), "nothing more is dropped"


# --- what can be explained ----------------------------------------------------------------------------------------
def test_the_charges_of_a_running_study_are_explained_and_made_up_ones_are_not():
    offered = head_of(charged(STUDY, [0, 1, 2]))
    require_explained(offered, LAST, chargeable=chargeable([STUDY]))
    with pytest.raises(CosignError, match="what no study with this silo that is known here can have charged"):
        require_explained(offered, LAST, chargeable=chargeable([OTHER]))
    burnt = head_of(extended([MADE_UP], charged(STUDY, [0])))
    for studies in ([], [STUDY], [STUDY, OTHER]):
        with pytest.raises(CosignError, match="have the root revoke it as of the theft"):
            require_explained(burnt, LAST, chargeable=chargeable(studies))
    require_explained(LAST, LAST, chargeable=())


def test_a_study_explains_each_round_in_each_attempt_and_no_more():
    attempts = range(1, STUDY.max_attempts + 1)
    debits = [
        Debit(STUDY.digest, "p", number, attempt, plan(STUDY).round_costs(number))
        for number in range(plan(STUDY).last + 1)
        for attempt in attempts
    ]
    whole = chargeable([STUDY])
    most = [
        cost for number in range(plan(STUDY).last + 1) for cost in plan(STUDY).repeated_costs(number, len(attempts))
    ]
    assert whole == totals.merged(most)
    twice = head_of(extended([*debits, *(replace(one, attempt=one.attempt + 9) for one in debits)]))
    with pytest.raises(CosignError):
        require_explained(twice, replace(LAST, totals=(), epsilon=0.0), chargeable=whole)


def test_an_ended_study_explains_a_last_round_alone():
    """A silo may have crashed after its last charge; all before was cosigned."""
    ended = chargeable([], [STUDY])
    for number in range(plan(STUDY).last + 1):
        require_explained(head_of(charged(STUDY, [0, number])), LAST, chargeable=ended)
    drawn_anew = tiny_study(privacy={"mode": "distributed"})
    most = drawn_anew.max_attempts
    heads = {"heads": plan(drawn_anew).release(1, "heads").cost}
    debits = [Debit(drawn_anew.digest, "p", 1, attempt, heads) for attempt in range(1, most + 2)]
    first = charged(drawn_anew, [0])
    inside, above = (head_of(extended(debits[:count], first)) for count in (most, most + 1))
    for allowed in (chargeable([drawn_anew]), chargeable([], [drawn_anew])):
        require_explained(inside, head_of(first), chargeable=allowed)
        with pytest.raises(CosignError):
            require_explained(above, head_of(first), chargeable=allowed)
    whole = head_of(charged(drawn_anew, [1], extended(debits[: most - 1], first), attempt=most))
    require_explained(whole, head_of(first), chargeable=ended + chargeable([], [drawn_anew]))


def test_what_the_coordinator_signed_before_explains_what_this_cosigner_does_not_know():
    known = charged(OTHER, [0, 1, 2], charged(STUDY, [0]))
    offered = head_of(charged(STUDY, [1], known))
    with pytest.raises(CosignError):
        require_explained(offered, LAST, chargeable=chargeable([STUDY]))
    require_explained(offered, LAST, chargeable=chargeable([STUDY]), evidence=[head_of(known)])
    foreign = head_of(charged(OTHER, [0, 1, 2, 3], charged(STUDY, [0])))
    with pytest.raises(CosignError):
        require_explained(offered, LAST, chargeable=chargeable([STUDY]), evidence=[foreign])


def test_a_recovery_may_charge_again_what_it_covers_and_nothing_else():
    lost = head_of(charged(STUDY, [0, 1, 2]))
    again = replace(LAST, totals=totals.merged([*LAST.totals, *lost.totals]), covers=(lost.head,), epsilon=9.0)
    require_explained(again, LAST, chargeable=(), known=[lost])
    for known in ([], [LAST]):
        with pytest.raises(CosignError):
            require_explained(again, LAST, chargeable=(), known=known)
    with pytest.raises(CosignError):
        require_explained(again, head_of(charged(OTHER, [0])), chargeable=())
    require_explained(again, head_of(charged(OTHER, [0])), chargeable=(), evidence=[lost])
    unknown = replace(again, covers=(EntryRef(7, "a" * 64),))
    with pytest.raises(CosignError):
        require_explained(unknown, LAST, chargeable=(), known=[lost])


def test_an_epsilon_does_not_change_without_a_charge():
    with pytest.raises(CosignError, match="states another epsilon"):
        require_explained(replace(LAST, epsilon=1e300), LAST, chargeable=())


# --- what is signed ---------------------------------------------------------------------------------------------------
def believed(offered, last=LAST, studies=((STUDY,), ()), *, summed=None, evidence=(), known=()):
    """Whether a cosigner signs. `summed` given: it remembers a later checkpoint than `last`, which binds no more."""

    def ask(answer, *, asked):
        assert asked, "asked for what is not needed"
        return answer

    try:
        require_believable(
            offered,
            last,
            tuple(iter(each) for each in studies),
            lambda: ask(summed, asked=summed is not None),
            forgiven=summed is not None,
            evidence=lambda: ask(iter(evidence), asked=last is not None),
            known=iter(known),
        )
    except CosignError:
        return False
    return True


def test_a_cosigner_signs_what_the_studies_of_the_silo_explain_or_another_has_signed():
    offered = head_of(charged(STUDY, [0, 1, 2]))
    assert believed(offered)
    assert not believed(offered, studies=((OTHER,), ()))
    assert not believed(offered, studies=((), ()))
    long = tiny_study(heads={"domain_rounds": 2})
    before, twice = charged(long, [0]), head_of(charged(long, [0, 2, 3]))
    assert believed(twice, head_of(before), studies=((long,), ()))
    assert not believed(twice, head_of(before), studies=((), (long,)))
    assert believed(head_of(charged(long, [0, 2])), head_of(before), studies=((), (long,)))
    assert believed(offered, studies=((), ()), evidence=[offered])
    assert not believed(head_of(extended([MADE_UP], charged(STUDY, [0]))))


def test_a_cosigner_of_which_nothing_binds_signs_whatever_comes_first():
    assert believed(head_of(extended([MADE_UP])), last=None, studies=((), ()))


def test_a_cosigner_lets_a_recovery_charge_again_what_it_remembers_or_what_is_in_signed_lists():
    lost = head_of(charged(OTHER, [0, 1, 2]))
    again = replace(LAST, totals=totals.merged([*LAST.totals, *lost.totals]), covers=(lost.head,), epsilon=9.0)
    assert believed(again, known=[lost])
    assert not believed(again)
    listed = [Summed(STUDY.digest, number, 1, "heads") for number in (1, 2)]
    twice = replace(
        LAST, totals=totals.merged([*chargeable([STUDY]), *cost_of([STUDY], listed), *LAST.totals]), epsilon=9.0
    )
    assert believed(twice, summed=listed)
    assert not believed(twice)
    assert not believed(twice, summed=[])


@pytest.mark.parametrize("last", [None, LAST])
@pytest.mark.parametrize("studies", [((STUDY,), ()), ((), (STUDY,))])
def test_what_a_stolen_key_had_stated_is_forgiven_except_for_what_is_in_sums(last, studies):
    listed = [Summed(STUDY.digest, 1, 1, "heads")]
    assert believed(LAST, last, studies, summed=[])
    assert not believed(LAST, last, studies, summed=listed)
    assert believed(head_of(charged(STUDY, [0, 1])), last, studies, summed=listed)


# --- what is never forgiven ---------------------------------------------------------------------------------------
def test_every_release_in_a_signed_list_is_charged_once_for_each_draw():
    places = [Summed(STUDY.digest, number, attempt, "heads") for number in (1, 2) for attempt in (1, 2)]
    once = plan(STUDY).release(1, "heads")
    draws = 1 if once.resendable else 2
    wanted = totals.merged([plan(STUDY).release(number, "heads").cost for number in (1, 2)] * draws)
    assert cost_of([STUDY], places) == wanted
    assert cost_of([OTHER], places) == ()
    assert cost_of([STUDY], [Summed(STUDY.digest, 999, 1, "heads")]) == ()


def test_a_ledger_that_lacks_what_is_in_a_sum_is_refused():
    summed = cost_of([STUDY], [Summed(STUDY.digest, number, 1, "heads") for number in (1, 2)])
    require_summed(head_of(charged(STUDY, [0, 1, 2])), summed)
    require_summed(LAST, ())
    with pytest.raises(CosignError, match="a stolen key forgives only what is in no sum"):
        require_summed(head_of(charged(STUDY, [0, 1])), summed)


@given(st.data())
def test_a_ledger_never_goes_back_except_by_what_is_in_no_signed_list(data):
    """Whatever was cosigned under the stolen key, and whenever the hospital says that it was stolen."""
    last = plan(STUDY).last
    rounds = data.draw(st.lists(st.integers(0, last), unique=True, min_size=1).map(sorted))
    listed = data.draw(st.lists(st.sampled_from(rounds), unique=True))
    back = data.draw(st.integers(0, len(rounds)))
    summed = cost_of(
        [STUDY],
        [Summed(STUDY.digest, number, 1, tensor) for number in listed for tensor in plan(STUDY).tensors(number)],
    )
    put_back = head_of(charged(STUDY, rounds[:back]))
    forgiven = totals.beyond(head_of(charged(STUDY, rounds)).totals, put_back.totals)
    try:
        require_summed(put_back, summed)
    except CosignError:
        assert set(listed) - set(rounds[:back])
    else:
        assert not totals.beyond(summed, put_back.totals)
        assert not totals.beyond(totals.merged([*forgiven, *summed]), totals.merged([*forgiven, *put_back.totals]))
