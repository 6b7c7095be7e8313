"""What a forecast starts from: the study, then options, then defaults."""

import pytest

from silo_agent.forecast import assumptions
from silo_agent.forecast.assumptions import asked_of
from silo_agent.learning.errors import LearningError
from support.studies import tiny_study

NUMBER = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}


def test_without_patients_there_is_nothing_to_forecast():
    assert asked_of(tiny_study()) is None
    assert asked_of(tiny_study(), effect=0.7) is None


def test_options_replace_what_the_study_says():
    study = tiny_study(expected={"patients": [100, 200, 300], "shares": [0.25, 0.75], "prevalence": 0.2, "effect": 0.7})
    found = asked_of(study)
    assert (found.patients, found.shares, found.prevalence, found.effects) == (
        (100, 200, 300),
        (0.25, 0.75),
        0.2,
        (0.7,),
    )
    assert found.total == 600
    assert found.aside == 150
    assert found.is_stated
    other = asked_of(study, patients=[50], prevalence=0.4, effect=0.9, held_out=0.5)
    assert (other.patients, other.prevalence, other.effects, other.aside) == ((50,) * 3, 0.4, (0.9,), 150)


def test_what_nobody_expects_has_a_default():
    found = asked_of(tiny_study(), patients=[100])
    assert (found.shares, found.prevalence, found.effects) == ((0.5, 0.5), 0.5, assumptions.AREAS)
    assert not found.is_stated
    study = tiny_study(data={"label": NUMBER}, evaluation={"bins": 10})
    assert asked_of(study, patients=[100]).effects == assumptions.EXPLAINED


def test_what_is_known_stands_between_the_study_and_the_options():
    study = tiny_study(expected={"patients": [100, 200, 300], "prevalence": 0.2, "effect": 0.7})
    known = assumptions.KnownData((50,), (0.1, 0.9), None, 0.75, 0.03, ())
    found = asked_of(study, known=known)
    assert (found.patients, found.shares, found.prevalence) == ((50,) * 3, (0.1, 0.9), 0.2)
    assert (found.effects, found.unsure) == ((0.75,), 0.03)
    other = asked_of(study, known=known, patients=[10], effect=0.9)
    assert (other.patients, other.shares, other.effects, other.unsure) == ((10,) * 3, (0.1, 0.9), (0.9,), 0.01)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"patients": [1, 2]}, "--patients has 2 numbers; give one, or one for each of the 3 silos"),
        ({"patients": [0]}, "each at least 1"),
        ({"patients": [9], "prevalence": 1.0}, "--prevalence is a share between 0 and 1"),
        ({"patients": [9], "effect": 0.4}, r"\(expected.effect\) is 0.4; give a number between 0.5 and 1"),
    ],
)
def test_what_does_not_fit_is_named(given, said):
    with pytest.raises(LearningError, match=said):
        asked_of(tiny_study(), **given)


def test_images_have_no_forecast():
    image = {"column": "scan", "height": 16, "width": 16}
    study = tiny_study(data={"image": image}, model={"encoder": "cnn"})
    with pytest.raises(LearningError, match="a study with images has no forecast"):
        asked_of(study, patients=[100])


def test_other_recipes_have_no_forecast():
    study = tiny_study(recipe="fedavg", heads={"domain_rounds": 0})
    with pytest.raises(LearningError, match="recipe fedavg has no forecast"):
        asked_of(study, patients=[100])
