"""Made-up patients follow the law that was asked for."""

import numpy as np
import pytest

from deploy.local.logistic import design, logistic
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.made_up_records import MadeUp
from silo_agent.data.outcome import targets
from silo_agent.learning.figures.evaluation import auc
from support.studies import tiny_study


def test_prevalence_and_effect_are_those_asked_for():
    asked = MadeUp(patients=4000, prevalence=0.1, effect=2.0, difference=0.0, test=20_000)
    cohorts = asked.draw(tiny_study(), 3)
    assert set(cohorts.silos) == {"north", "south", "west"}
    assert cohorts.test.labels.mean() == pytest.approx(0.1, abs=0.01)
    weights = logistic(cohorts.silos["north"].training)
    assert auc(design(cohorts.test) @ weights, cohorts.test.labels) == pytest.approx(0.88, abs=0.02)


def test_without_an_effect_nothing_can_be_learned():
    cohorts = MadeUp(effect=0.0, test=20_000).draw(tiny_study(), 3)
    weights = logistic(cohorts.silos["north"].training)
    assert auc(design(cohorts.test) @ weights, cohorts.test.labels) == pytest.approx(0.5, abs=0.02)


def test_domains_differ_as_far_as_asked():
    cohorts = MadeUp(patients=3000, effect=3.0, difference=5.0).draw(tiny_study(), 1)
    slopes = []
    for m in (0, 1):
        own = cohorts.test.domains == m
        x, y = cohorts.test.inputs[own], cohorts.test.labels[own]
        slopes.append(x[y == 1].mean(axis=0) - x[y == 0].mean(axis=0))
    first, second = (slope / np.linalg.norm(slope) for slope in slopes)
    assert first @ second < 0.9


def test_without_any_wish_the_patients_are_those_of_the_command():
    assert MadeUp() == MadeUp(1000, 0.2, 1.5, 0.5, 0.25, 10_000)


def test_a_seed_repeats_the_patients():
    first, again, other = (MadeUp().draw(tiny_study(), seed).test.inputs for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_inputs_have_the_form_that_the_schema_gives():
    features = [
        {"kind": "number", "column": "crp", "minimum": 0, "maximum": 9, "fill": 1},
        {"kind": "category", "column": "pain", "values": [1, 2, 3], "optional": True},
    ]
    classes = {"column": "ill", "positive": [], "negative": [], "classes": [["a"], ["b"], ["c"]]}
    records = MadeUp().draw(tiny_study(data={"features": features, "label": classes}), 1).test
    assert records.inputs.shape == (10_000, 6)
    assert np.abs(records.inputs).max() <= 1
    assert (records.inputs[:, 2:].sum(axis=1) == 1).all()
    assert np.bincount(records.labels).min() > 2_000


def test_environments_are_equally_likely():
    environment = {"column": "ward", "values": ["a", "b", "c"]}
    plain, told = (MadeUp().draw(tiny_study(data={"environment": e}), 1).test for e in (None, environment))
    assert plain.environments is None
    assert np.bincount(told.environments, minlength=3).min() > 3_000


def test_a_number_can_be_explained_as_far_as_asked():
    label = {"column": "days", "positive": [], "negative": [], "minimum": 0, "maximum": 30}
    records = (
        MadeUp(effect=1.0, difference=0.0, test=20_000)
        .draw(tiny_study(data={"label": label}, evaluation={"bins": 10}), 1)
        .test
    )
    inputs, outcome = design(records), targets(records.labels)
    left = outcome - inputs @ np.linalg.lstsq(inputs, outcome, rcond=None)[0]
    assert 1 - left.var() / outcome.var() == pytest.approx(0.5, abs=0.02)
    assert outcome.std() == pytest.approx(0.4, abs=0.02)


def test_a_study_with_images_needs_records():
    study = tiny_study(data={"image": {"column": "scan", "height": 8, "width": 8}}, model={"encoder": "cnn"})
    with pytest.raises(SimulationError, match="no images"):
        MadeUp().draw(study, 1)


def test_a_digest_is_of_the_whole_law():
    assert MadeUp().digest == MadeUp().digest
    numbers = {"patients": 21, "prevalence": 0.3, "effect": 1.0, "difference": 0.1, "share": 0.3, "test": 11}
    others = {MadeUp(**{name: value}).digest for name, value in numbers.items()}
    assert len(others | {MadeUp().digest}) == len(numbers) + 1
