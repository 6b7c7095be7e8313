from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.accounting import accountant, overlap, planning
from policies.accounting.accountant import with_fields
from policies.accounting.planning import advise, price, scaled, split
from policies.errors import CostError
from policies.plan.release import plan

DELTA = 1e-5
# Every patient takes part in every step: priced by a closed formula.
WHOLE = {"encoder.sampling_rate": 1.0, "encoder.noise": 40.0}
RAW = {"model.encoder": "raw", "model.hidden": [], "model.representation": 5, "encoder.rounds": 0}
UNNOISED = {
    "privacy.mode": "none",
    "privacy.count_noise": 0,
    "heads.pooled_noise": 0,
    "heads.domain_noise": 0,
    "encoder.noise": 0,
    "evaluation.noise": 0,
}


def epsilon_with(make_study, fields, **changes):
    return accountant.epsilon(plan(make_study({**changes, **fields})).costs(), DELTA)


def test_the_prices_are_the_accountants(make_study):
    study = make_study()
    prices = price(study, DELTA)
    assert prices.total == accountant.epsilon(plan(study).costs(), DELTA)
    assert prices.total == max(prices.cohorts.values())
    assert set(prices.alone) == {"counts", "heads", "encoder", "metrics"}
    for tensor, costs in plan(study).tensor_costs().items():
        assert prices.alone[tensor] == accountant.epsilon(costs, DELTA)
        assert prices.alone[tensor] <= prices.total + 1e-9
    assert prices.dearest_round == max(
        accountant.epsilon(plan(study).round_costs(r).values(), DELTA) for r in range(plan(study).last + 1)
    )


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_one_repeated_round_is_priced_whichever_it_is(make_study, mode):
    study = make_study({"privacy.mode": mode})
    prices = price(study, DELTA)
    assert prices.repeated == pytest.approx(dearest_run(study, renewed=0), rel=1e-9)
    assert (prices.repeated > prices.total) == (mode == "distributed")


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_round_after_a_spoilt_sum_is_priced_with_all_that_it_releases(make_study, mode):
    """Nothing is sent again, so it costs more than another lost attempt: the encoder's noise is local in both modes."""
    study = make_study({"privacy.mode": mode})
    prices = price(study, DELTA)
    assert prices.spoilt == pytest.approx(dearest_run(study, renewed=1), rel=1e-9)
    assert prices.spoilt > prices.repeated


def test_where_nothing_can_be_sent_again_a_spoilt_sum_costs_no_more_than_a_lost_attempt(make_study):
    study = make_study({"privacy.mode": "distributed", **RAW})
    prices = price(study, DELTA)
    assert prices.total < prices.repeated == prices.spoilt


def dearest_run(study, renewed):
    """The most that a run costs in which one round has two charged attempts."""
    planned, runs = plan(study), []
    for number in range(planned.last + 1):
        others = [cost for r in range(planned.last + 1) if r != number for cost in planned.round_costs(r).values()]
        runs.append(accountant.epsilon([*others, *planned.repeated_costs(number, 2, renewed)], DELTA))
    return max(runs)


@pytest.mark.slow
def test_noise_for_a_target_can_cover_one_repeated_round(make_study):
    study = make_study({"privacy.mode": "distributed"})
    found = scaled(study, 2.0, DELTA, repeated=True)
    prices = price(with_fields(study, found.fields), DELTA)
    assert 0.98 * 2.0 < prices.repeated <= 2.0
    assert prices.total < prices.repeated == found.epsilon


def test_a_patient_of_several_hospitals_costs_more_and_only_of_the_studys(make_study):
    study = make_study({"silos": ["north", "south"], "min_silos": 2, "privacy.mode": "local"})
    prices = price(study, DELTA)
    assert prices.several == {2: overlap.epsilon([plan(study).costs()] * 2, DELTA)}
    assert prices.several[2] > prices.total


def test_without_noise_everything_is_without_bound(make_study):
    prices = price(make_study(UNNOISED), DELTA)
    assert all(math.isinf(value) for value in (prices.total, prices.dearest_round, *prices.alone.values()))
    with pytest.raises(CostError, match="without noise"):
        advise(make_study(UNNOISED), 1.0, DELTA)


def test_a_smaller_delta_costs_more(make_study):
    assert price(make_study(), 1e-8).total > price(make_study(), DELTA).total


@pytest.mark.parametrize(("changes", "target"), [({}, 1.0), (WHOLE, 0.5), (WHOLE, 2.0), (WHOLE, 16.0)])
def test_advice_as_printed_costs_no_more_than_the_target_and_little_less(changes, target, make_study):
    advice = advise(make_study(changes), target, DELTA)
    reached = epsilon_with(make_study, advice.scaled.fields, **changes)
    assert reached == advice.scaled.epsilon
    assert 0.995 * target <= reached <= target
    assert all(float(f"{noise:.4g}") == noise for noise in advice.scaled.fields.values())
    if advice.encoder_only is not None:
        assert set(advice.encoder_only.fields) == {"encoder.noise"}
        assert epsilon_with(make_study, advice.encoder_only.fields, **changes) == advice.encoder_only.epsilon <= target


@given(st.floats(math.log(1e-3), math.log(1e7)).map(math.exp))
def test_a_recommended_noise_is_the_least_of_four_digits_that_is_not_below_the_one_that_was_found(noise):
    written = planning._up(noise)
    assert float(f"{written:.4g}") == written
    assert noise * (1 - 2e-12) <= written <= noise * (1 + 1.001e-3)
    assert planning._up(written) == written
    assert written - 10.0 ** (math.floor(math.log10(noise)) - 3) < noise * (1 + 1e-12)


def test_where_the_written_noise_costs_a_little_too_much_it_is_raised_by_a_thousandth(make_study, monkeypatch):
    study, real = make_study(WHOLE), planning._epsilon
    plain = scaled(study, 2.0, DELTA)
    too_much = iter([2.0 + 1e-9])
    monkeypatch.setattr(planning, "_epsilon", lambda *given, **more: next(too_much, None) or real(*given, **more))
    raised = scaled(study, 2.0, DELTA)
    assert raised.epsilon == epsilon_with(make_study, raised.fields, **WHOLE) < plain.epsilon
    for field, noise in plain.fields.items():
        assert noise < raised.fields[field] < 1.0021 * noise
    monkeypatch.setattr(planning, "_epsilon", lambda *_, **__: 2.0 + 1e-9)
    with pytest.raises(
        CostError, match=r"no noise was found that costs at most epsilon 2 .* raise the target a little"
    ):
        scaled(study, 2.0, DELTA)


@pytest.mark.parametrize("target", [0.5, 2.0, 16.0])
def test_recommended_clips_cost_nothing_and_let_no_more_noise_through_than_planned(target, make_study):
    study, advice = make_study(WHOLE), advise(make_study(WHOLE), target, DELTA)
    for noises in filter(None, (advice.scaled, advice.encoder_only)):
        clipped = make_study({**WHOLE, **noises.fields, **noises.clips})
        assert accountant.epsilon(plan(clipped).costs(), DELTA) == noises.epsilon
        assert set(noises.clips) == {"encoder.clip"} | (
            {"heads.clip"} if "heads.domain_noise" in noises.fields else set()
        )
        _same_noise_or_same_clip(study.encoder.clip, study.encoder.noise, clipped.encoder.clip, clipped.encoder.noise)
    heads = make_study({**WHOLE, **advice.scaled.fields, **advice.scaled.clips}).heads
    if heads.clip > 0.5:
        _same_noise_or_same_clip(study.heads.clip, study.heads.domain_noise, heads.clip, heads.domain_noise)
    assert 0.5 <= heads.clip <= study.heads.clip


def _same_noise_or_same_clip(clip, noise, new_clip, new_noise):
    """More noise is made up for by the clip. Less noise was paid for, and a larger clip would give it back."""
    if new_noise > noise:
        assert new_clip * new_noise == pytest.approx(clip * noise, rel=0.01)
    else:
        assert new_clip == clip


def test_the_encoders_noise_alone_is_the_least_that_does(make_study):
    study = make_study(WHOLE)
    now = price(study, DELTA).total
    for target in (now * 0.95, now * 1.5):
        (noise,) = advise(study, target, DELTA).encoder_only.fields.values()
        assert (noise < study.encoder.noise) == (target > now)
        assert epsilon_with(make_study, {**WHOLE, "encoder.noise": noise}) <= target
        assert epsilon_with(make_study, {**WHOLE, "encoder.noise": noise * 0.98}) > target


def test_where_anything_would_do_the_encoder_gets_the_least_noise_that_is_recommended(make_study):
    study = make_study({**WHOLE, "encoder.steps": 1})
    assert advise(study, 32.0, DELTA).encoder_only.fields == {"encoder.noise": 0.5}


def test_the_encoder_alone_cannot_make_up_for_dear_heads(make_study):
    study = make_study({**WHOLE, "heads.pooled_noise": 1.0})
    advice = advise(study, 1.0, DELTA)
    assert advice.encoder_only is None
    assert advice.domain_rounds is None


def test_fewer_rounds_are_advised_where_they_fit(make_study):
    changes = {**WHOLE, "heads.domain_rounds": 8, "heads.domain_noise": 4.0}
    target = epsilon_with(make_study, {**changes, "heads.domain_rounds": 3})
    advice = advise(make_study(changes), target, DELTA)
    assert advice.domain_rounds == 3
    assert epsilon_with(make_study, {**changes, "heads.domain_rounds": 4}) > target
    assert advise(make_study(WHOLE), 8.0, DELTA).domain_rounds == make_study().heads.domain_rounds


def test_a_study_of_one_round_has_no_encoder_to_advise_on(make_study):
    advice = advise(make_study({"heads.pooled_rounds": 1, "heads.domain_rounds": 0}), 2.0, DELTA)
    assert advice.encoder_only is None


@pytest.mark.parametrize("target", [0.0, -1.0, 33.0, math.nan, math.inf])
def test_a_target_that_cannot_be_is_a_named_error(target, make_study):
    with pytest.raises(CostError, match="cannot be aimed at"):
        advise(make_study(), target, DELTA)


SEALED = {"encoder.sealed_steps": True, "encoder.sampling_rate": 1.0, "encoder.sealing": "ring64"}


@pytest.mark.parametrize(
    ("changes", "share"),
    [(SEALED, 0.4), (SEALED, 0.05), pytest.param({}, 0.4, marks=pytest.mark.slow)],
)
def test_a_share_of_the_budget_goes_to_the_encoder_and_the_rest_is_spent(changes, share, make_study):
    noises = split(make_study(changes), 2.0, DELTA, share)
    assert 0.99 * 2.0 <= epsilon_with(make_study, noises.fields, **changes) == noises.epsilon <= 2.0
    fields = make_study({**changes, **noises.fields})
    alone = accountant.epsilon(plan(fields).tensor_costs()["encoder"], DELTA)
    mu = next(mu for mu in (number / 1000 for number in range(1, 5000)) if accountant.gaussian_epsilon(mu, DELTA) > 2)
    assert alone == pytest.approx(accountant.gaussian_epsilon(math.sqrt(share) * mu, DELTA), rel=0.01)
    before, after = make_study(changes), fields
    assert after.heads.pooled_noise / before.heads.pooled_noise == pytest.approx(
        after.privacy.count_noise / before.privacy.count_noise, rel=0.01
    )
    assert advise(make_study(SEALED), 2.0, DELTA, 0.4).split == split(make_study(SEALED), 2.0, DELTA, 0.4)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, math.nan])
def test_a_share_that_is_none_is_refused(share, make_study):
    with pytest.raises(CostError, match="must lie between 0 and 1"):
        split(make_study(SEALED), 2.0, DELTA, share)


def test_an_encoder_that_is_not_trained_has_no_share(make_study):
    with pytest.raises(CostError, match="trains no encoder"):
        split(make_study({"encoder.rounds": 0}), 2.0, DELTA, 0.4)
