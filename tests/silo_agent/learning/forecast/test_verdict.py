"""The sentences of a forecast."""

import pytest

from silo_agent.learning.forecast import verdict
from silo_agent.learning.forecast.asked import asked_of
from silo_agent.learning.forecast.forecast import Forecast, Interval, Row, forecast
from silo_agent.learning.forecast.verdict import is_coin, is_no_gain, sentences


def at(value, reach=0.01):
    return Interval(value, value - reach, value + reach)


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
