"""An earlier study's opened sums say what to expect of a later one."""

import json

import pytest

from silo_agent.forecast import earlier_study
from silo_agent.forecast.assumptions import Asked
from silo_agent.forecast.earlier_study import known_after
from silo_agent.forecast.forecast import forecast
from silo_agent.learning.errors import LearningError
from silo_agent.storage.folders import StudyFolder


def estimate(value, half):
    return {"value": value, "low": value - half, "high": value + half}


def stored(path, study, *, counts=(90.0, 270.0), areas=((0.75, 0.05), (0.77, 0.05)), classes=(60.0, 20.0)):
    folder = StudyFolder(path)
    folder.counts.write_text(json.dumps(counts))
    by_domain = [{"auc": estimate(*area)} for area in areas]
    folder.results.write_text(json.dumps({"study": study.digest, "by_domain": by_domain}))
    if classes:
        folder.classes.write_text(json.dumps(classes))
    return folder


@pytest.fixture
def _straight(monkeypatch):
    """A forecast that says .1 less than the effect, a little differently in every draw."""
    monkeypatch.setattr(earlier_study, "reached_without_noise", lambda _study, _asked, limit, _about: limit)
    monkeypatch.setattr(earlier_study, "outcomes", lambda _study, _asked, effect, **_: [effect - 0.11, effect - 0.09])


@pytest.mark.usefixtures("_straight")
def test_its_sums_are_what_is_expected(raw_study, quick_path):
    study = raw_study()
    known = known_after(raw_study(name="later"), study, stored(quick_path, study))
    assert known.patients == (120,)
    assert known.shares == (0.25, 0.75)
    assert known.prevalence == 0.25
    assert known.effect == pytest.approx(0.86)
    assert known.unsure == pytest.approx(0.023, abs=0.001)
    assert "360 patients who train at 3 hospitals" in known.notes[0]


@pytest.mark.usefixtures("_straight")
def test_a_domain_with_a_wide_interval_says_nothing_of_the_effect(raw_study, quick_path):
    study = raw_study()
    assert known_after(
        study, study, stored(quick_path, study, areas=((0.5, 0.4), (0.7, 0.05)))
    ).effect == pytest.approx(0.8)
    none = known_after(study, study, stored(quick_path, study, areas=((0.5, 0.4), (0.7, 0.2))))
    assert none.effect is None
    assert "do not tell the effect" in none.notes[-1]


def test_noise_that_hides_the_effect_is_said(raw_study, quick_path, monkeypatch):
    study = raw_study()
    monkeypatch.setattr(earlier_study, "outcomes", lambda *_, **__: [0.5, 0.52])
    assert known_after(study, study, stored(quick_path, study)).effect is None


def test_what_it_did_not_store_is_said(raw_study, quick_path):
    other = raw_study(data={"features": [{"kind": "number", "column": "age", "minimum": 0, "maximum": 120}]},
                      model={"representation": 1})  # fmt: skip
    known = known_after(raw_study(), other, stored(quick_path, other, classes=(), counts=(-3.0, -1.0)))
    assert (known.patients, known.shares, known.prevalence, known.effect) == ((1,), (0.5, 0.5), None, None)
    assert "no sums of its outcome" in known.notes[1]
    assert "features are others" in known.notes[2]


def test_another_outcome_is_refused_and_so_is_a_study_without_counts(raw_study, quick_path):
    label = {"column": "dead", "positive": [1], "negative": [0]}
    with pytest.raises(LearningError, match=r"data\.label of study [0-9a-f]{12} is another than this study's"):
        known_after(raw_study(), raw_study(data={"label": label}), StudyFolder(quick_path))
    with pytest.raises(LearningError, match="has opened no counts here"):
        known_after(raw_study(), raw_study(), StudyFolder(quick_path))


@pytest.mark.slow
def test_the_forecast_of_a_forecast_is_the_effect(raw_study, quick_path):
    study = raw_study(heads={"pooled_noise": 0.5, "domain_noise": 0.5}, evaluation={"noise": 0.5})
    asked = Asked((800,) * 3, (0.25, 0.75), 0.3, (0.8,))
    mean = forecast(study, asked, draws=12).rows[0].mean.middle
    folder = stored(quick_path, study, counts=(600, 1800), areas=((mean, 0.02), (mean, 0.02)), classes=(420, 180))
    known = known_after(study, study, folder)
    assert known.effect == pytest.approx(0.8, abs=2 * known.unsure)
    assert known.unsure < 0.05


def test_another_studys_results_are_refused_by_file(raw_study, quick_path):
    study, other = raw_study(), raw_study(name="other")
    with pytest.raises(LearningError, match=r"results\.json holds the results of another study than"):
        known_after(raw_study(name="later"), study, stored(quick_path, other))
