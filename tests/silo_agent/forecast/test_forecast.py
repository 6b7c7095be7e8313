"""A forecast follows the study's public numbers."""

import math

import numpy as np
import pytest

from silo_agent.data.records import Records
from silo_agent.forecast.assumptions import asked_of
from silo_agent.forecast.forecast import ForecastInterval, _Test, counted, forecast, limit_of, reached_without_noise
from silo_agent.forecast.simulated_rounds import Walk

DAYS = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}


def records_of(domains):
    count = len(domains)
    names = tuple(map(str, range(count)))
    return Records(np.zeros((count, 1), np.float32), np.zeros(count, np.int64), domains, np.arange(count), names)


def test_the_interval_holds_one_more_draw_of_ninety_in_a_hundred():
    rng = np.random.default_rng(1)
    draws = rng.normal(0.5, 0.01, (1000, 9))
    found = [ForecastInterval.of(own[:8]) for own in draws]
    held = np.mean([one.low <= own[8] <= one.high for one, own in zip(found, draws, strict=True)])
    assert held == pytest.approx(0.9, abs=0.03)


def test_an_interval_leaves_out_what_is_not_known():
    assert math.isnan(ForecastInterval.of([math.nan]).middle)
    assert ForecastInterval.of([0.6, math.nan]) == ForecastInterval(0.6, 0.6, 0.6)


def test_noise_costs(raw_study):
    study = raw_study(evaluation={"noise": 0.5})
    asked = asked_of(study, patients=[400], prevalence=0.3, effect=0.8)
    done = []
    first = forecast(study, asked, draws=2, done=done.append)
    (row,) = first.rows
    assert done == [1] * (2 * 6 + 2)  # two steps of six draws set the law
    assert (first.figure, first.draws, row.effect, row.coin) == ("auc", 2, 0.8, 0.5)
    assert 0.5 < row.mean.middle < row.plain_mean.middle < 0.83
    assert row.worst.middle <= row.mean.middle
    assert row.gap.middle == pytest.approx(row.plain_mean.middle - row.mean.middle)
    assert row.gain.middle == pytest.approx(row.mean.middle - row.alone.middle)
    assert 0 < row.width < 1


@pytest.mark.parametrize(("patients", "effect"), [(300, 0.8), (3000, 0.62)])
def test_without_noise_the_study_reaches_the_stated_effect(raw_study, patients, effect):
    study = raw_study()
    asked = asked_of(study, patients=[patients], prevalence=0.3, effect=effect)
    limit = limit_of(study, asked, effect, counted(study, asked))
    assert effect <= limit < 1
    assert reached_without_noise(study, asked, limit, counted(study, asked)) == pytest.approx(effect, abs=0.004)


def test_of_a_number_as_well(raw_study):
    study = raw_study(data={"label": DAYS}, evaluation={"bins": 10, "noise": 0.5})
    asked = asked_of(study, patients=[300], effect=0.3)
    limit = limit_of(study, asked, 0.3, counted(study, asked))
    assert limit > 0.3
    assert reached_without_noise(study, asked, limit, counted(study, asked)) == pytest.approx(0.3, abs=0.01)


def test_every_run_is_of_the_patients_that_were_asked_about_and_no_more(raw_study, monkeypatch):
    times = []

    def watched(*given):
        times.append((walk := Walk(*given)).times)
        return walk

    monkeypatch.setattr("silo_agent.forecast.forecast.Walk", watched)
    study = raw_study()
    forecast(study, asked_of(study, patients=[100], effect=0.8), draws=1)
    assert len(times) >= 2
    assert set(times) == {1.0}


@pytest.mark.slow
def test_the_same_study_has_the_same_forecast(raw_study):
    study = raw_study()
    asked = asked_of(study, patients=[200], effect=0.8)
    first, again = (forecast(study, asked, draws=2).rows[0].mean for _ in range(2))
    assert first == again


@pytest.mark.slow
def test_a_range_of_effects_has_a_row_for_each(raw_study):
    study = raw_study()
    found = forecast(study, asked_of(study, patients=[300]), draws=4)
    assert found.draws == 2
    assert [row.effect for row in found.rows] == [0.62, 0.7, 0.8]
    assert found.rows[0].plain_mean.middle < found.rows[2].plain_mean.middle


@pytest.mark.parametrize(
    ("label", "figure"),
    [
        (DAYS, "r2"),
        ({"column": "ill", "classes": [[0], [1], [2]], "positive": [], "negative": []}, "accuracy"),
    ],
)
def test_other_outcomes_have_their_own_figure(raw_study, label, figure):
    study = raw_study(data={"label": label}, evaluation={"bins": 10, "noise": 0.5})
    found = forecast(study, asked_of(study, patients=[400], effect=0.6), draws=2)
    (row,) = found.rows
    assert found.figure == figure
    assert (row.alone is None) == (figure == "accuracy")
    assert row.plain_mean.middle > row.coin


def test_it_is_about_the_domains_that_the_study_will_publish(raw_study):
    expected = {"patients": [2000], "shares": [0.05, 0.95], "prevalence": 0.2}
    study = raw_study(expected=expected)
    assert counted(study, asked_of(study)) == (0, 1)
    assert counted(study, asked_of(study, patients=[10])) == (0, 1)
    empty = raw_study(expected=expected | {"shares": [0, 1]})
    assert counted(empty, asked_of(empty)) == (1,)
    least = raw_study(expected=expected, privacy={"smallest_domain": 100})
    assert counted(least, asked_of(least)) == (1,)
    assert counted(least, asked_of(least, patients=[4000])) == (0, 1)
    assert counted(least, asked_of(least, patients=[10])) == (0, 1)


def test_what_sampling_costs_falls_like_one_over_the_root_of_the_patients(raw_study):
    study, domains = raw_study(), np.repeat([0, 1], 50)
    test = _Test(study, records_of(domains), np.tile(np.linspace(0.05, 0.95, 50), 2))
    best = test.measure(np.stack([1.0 - test.risks, test.risks], axis=1))
    reached = (best[0] - 0.04, best[1] - 0.1)
    np.testing.assert_allclose(test.missed(reached, 4.0), [0.02, 0.05])
    np.testing.assert_allclose(test.missed(reached, 1.0), [0.0, 0.0])
    np.testing.assert_allclose(test.missed((1.0, 1.0), 4.0), [0.0, 0.0])


def test_the_mean_of_several_runs_varies_less(raw_study):
    study = raw_study(heads={"pooled_noise": 8.0, "domain_noise": 8.0})
    asked = asked_of(study, patients=[100], prevalence=0.4, effect=0.8)
    one, many = (forecast(study, asked, draws=8, runs=runs, about=(1,)).rows[0].mean for runs in (1, 6))
    assert many.high - many.low < one.high - one.low
