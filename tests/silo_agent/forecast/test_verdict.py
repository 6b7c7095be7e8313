"""The sentences of a forecast."""

import dataclasses

import pytest

from silo_agent.forecast import verdict
from silo_agent.forecast.assumptions import asked_of
from silo_agent.forecast.forecast import Forecast, ForecastInterval, Row, forecast
from silo_agent.forecast.verdict import is_coin, is_no_gain, is_often_no_gain, sentences
from support.studies import with_label


def at(value, reach=0.01):
    return ForecastInterval(value, value - reach, value + reach)


def row(mean, plain=0.8, alone=0.6):
    return Row(0.8, at(mean), at(mean), at(plain), at(plain), at(plain - mean), at(mean - alone), at(alone), 0.1, 0.5)


@pytest.fixture
def said(raw_study, monkeypatch):
    """Sentences of one row, with what so many times the patients would reach."""

    def say(own, reached):
        study = raw_study()
        monkeypatch.setattr(verdict, "reached", lambda *_, times: reached(times))
        return sentences(study, Forecast("auc", asked_of(study, patients=[100], effect=0.8), 4, (own,)))

    return say


def test_a_study_that_is_worth_its_price_needs_no_sentence(said):
    assert said(row(0.75), lambda _: 1.0) == []


def test_a_coin_is_named_with_what_it_takes(said):
    (text,) = said(row(0.52), lambda times: 0.5 + 0.02 * times)
    assert "no better than a coin (AUC 0.520)" in text
    assert "about 8 times the patients, or 8 times less noise (about 8 times the epsilon)" in text
    assert "fewer inputs than 8 and fewer domains than 2" in text
    (never,) = said(row(0.52), lambda _: 0.5)
    assert "Not even 64 times the patients" in never


def test_staying_alone_is_named(said):
    (text,) = said(row(0.6, alone=0.66), lambda times: 0.6 + 0.04 * (times - 1))
    assert "no better than staying alone (AUC 0.600; one hospital reaches 0.660 by itself)" in text
    assert "about 4 times the patients" in text


def test_a_gain_that_fails_to_come_in_more_than_one_draw_of_five_is_told_whatever_the_middle_says(said):
    likely = dataclasses.replace(row(0.75, alone=0.74), no_gain=0.21)
    (text,) = said(likely, lambda _: 0.75)
    assert text.startswith("In 21% of the draws the study is no better than staying alone: it gains +0.010 in AUC")
    assert "(+0.000 to +0.020)" in text
    assert text.endswith("More hospitals, fewer inputs and fewer domains make a gain surer.")
    assert said(dataclasses.replace(likely, no_gain=0.2), lambda _: 0.75) == []
    assert is_often_no_gain(likely)
    assert not is_often_no_gain(row(0.75))
    (worse,) = said(dataclasses.replace(row(0.6, alone=0.66), no_gain=0.9), lambda _: 0.6)
    assert worse.startswith("The study would be no better than staying alone")


def test_the_share_of_draws_without_a_gain_is_counted(raw_study):
    study = raw_study()
    found = forecast(study, asked_of(study, patients=[300], effect=0.7), draws=6)
    (only,) = found.rows
    assert only.no_gain in {count / 6 for count in range(7)}
    assert (only.no_gain >= 0.5) == (only.gain.middle <= 0.0) or only.no_gain == 0.5


def test_features_that_say_too_little_are_not_blamed_on_noise(said):
    (text,) = said(row(0.52, plain=0.54), lambda _: 1.0)
    assert "Without any noise it would reach 0.540, so less privacy does not help" in text


def test_one_case_in_five_is_enough_for_a_coin():
    assert is_coin("auc", row(0.54))
    assert not is_coin("auc", row(0.56))
    assert is_no_gain(row(0.6, alone=0.6))
    assert not is_no_gain(row(0.6, alone=0.59))


def test_a_range_says_for_which_effect(raw_study, monkeypatch):
    monkeypatch.setattr(verdict, "reached", lambda *_, times: 0.5 + times / 100)
    study = raw_study()
    found = Forecast("auc", asked_of(study, patients=[60]), 4, (row(0.52), row(0.75)))
    (text,) = sentences(study, found)
    assert text.startswith("If the features reach AUC 0.8: The study would be no better than a coin")


@pytest.mark.slow
def test_a_hopeless_study_is_told_what_it_takes(raw_study):
    study = raw_study(heads={"pooled_noise": 30.0, "domain_noise": 30.0, "clip": 1.0})
    asked = asked_of(study, patients=[60], effect=0.8)
    (text,) = sentences(study, forecast(study, asked, draws=4))
    assert "no better than a coin" in text
    assert "times" in text


def test_a_coin_is_told_by_the_middle_and_the_low_end_together():
    def wide(mean, low):
        return dataclasses.replace(row(0.6), mean=ForecastInterval(mean, low, 2 * mean - low))

    assert is_coin("auc", wide(0.58, 0.51))
    assert not is_coin("auc", wide(0.58, 0.53))


@pytest.fixture
def levers(raw_study, monkeypatch):
    """The sentence of a study at a coin, if `reached` is told of the changed study; and which changes were tried."""

    def say(reached, **heads):
        study, tried = raw_study(heads=heads), []

        def told(other, *_, times):
            tried.append((other.heads.clip, other.heads.solver))
            return reached(other) if times == 1 else 1.0

        monkeypatch.setattr(verdict, "reached", told)
        (text,) = sentences(study, Forecast("auc", asked_of(study, patients=[100], effect=0.8), 4, (row(0.52),)))
        return text, tried

    return say


@pytest.mark.parametrize(
    ("clip", "solver", "named"),
    [
        (0.60, 0.55, "heads.clip: 0.5 costs nothing and would give about 0.600."),
        (0.60, 0.65, "heads.solver: hierarchical costs nothing and would give about 0.650."),
        (0.65, 0.60, "heads.clip: 0.5 costs nothing and would give about 0.650."),
        (0.525, 0.529, None),
    ],
)
def test_the_change_without_a_price_that_helps_most_is_named_if_it_helps(levers, clip, solver, named):
    text, _ = levers(
        lambda o: clip if o.heads.clip == 0.5 else solver if o.heads.solver != "newton" else 0.52, clip=1.0
    )
    assert (named in text) if named else ("costs nothing" not in text)


def test_what_the_study_has_already_is_not_named(levers):
    _, tried = levers(lambda _: 0.52, clip=0.3)
    assert {clip for clip, _ in tried} == {0.3}
    text, _ = levers(lambda other: 0.65 if other.heads.solver == "hierarchical" else 0.52, clip=0.5, solver="newton")
    assert "heads.solver: hierarchical costs nothing and would give about 0.650." in text


@pytest.mark.parametrize(("reach", "times"), [(0.6, 2), (0.6001, None)])
def test_what_it_takes_is_a_tenth_above_a_coin(said, reach, times):
    (text,) = said(row(0.52, plain=0.7), lambda _: reach if times is None else (0.6 if _ >= times else 0.5))
    assert "For AUC 0.60 it takes about 2 times the patients" in text


def test_without_noise_it_must_reach_what_is_wanted(said):
    assert "less privacy does not help" in said(row(0.52, plain=0.599), lambda _: 1.0)[0]
    assert "less privacy does not help" not in said(row(0.52, plain=0.601), lambda _: 1.0)[0]
    assert "less privacy does not help" in said(row(0.62, plain=0.65, alone=0.66), lambda _: 1.0)[0]


@pytest.mark.parametrize(
    ("figure", "near", "worth"), [("auc", 0.05, 0.1), ("accuracy", 0.02, 0.05), ("r2", 0.02, 0.05)]
)
def test_each_figure_has_its_own_distance_from_a_coin(raw_study, monkeypatch, figure, near, worth):
    """The middle and the low end of these rows lie a hundredth apart."""
    monkeypatch.setattr(verdict, "reached", lambda *_, times: 0.5 + worth - 1e-9 if times < 16 else 0.5 + worth)
    assert is_coin(figure, row(0.504 + near))
    assert not is_coin(figure, row(0.506 + near))
    study = raw_study()
    (text,) = sentences(study, Forecast(figure, asked_of(study, patients=[100], effect=0.8), 4, (row(0.5),)))
    assert f"For {verdict.NAMES[figure]} {0.5 + worth:.2f} it takes about 16 times the patients" in text


@pytest.mark.parametrize(
    ("width", "publish", "told"),
    [
        (0.51, ["mae", "r2"], "R2 would be published with 95 % intervals 0.51 wide, which says nothing"),
        (0.5, ["mae", "r2"], ""),
        (
            float("nan"),
            ["r2"],
            "R2 would be published for no domain, as too few patients are held out, which says nothing",
        ),
        (0.51, ["mae"], ""),
    ],
)
def test_an_r2_whose_interval_says_nothing_is_not_to_be_published(width, publish, told):
    label = {"column": "days", "minimum": 0, "maximum": 60}
    study = with_label(label).model_copy(update={"publish": tuple(publish)})
    own = dataclasses.replace(row(0.75), width=width)
    found = sentences(study, Forecast("r2", asked_of(study, patients=[100], effect=0.8), 4, (own,)))
    assert [text.partition(": take")[0] for text in found] == ([told] if told else [])
