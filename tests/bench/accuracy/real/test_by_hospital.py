import json
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest

from bench.accuracy.real import by_hospital
from deploy.local.processes import FederationError
from policies.reports.published import PublishedFigure

SILOS = ("one", "two", "three", "four")


def measured(public, same, pooled, complete, recipe):
    """Two splits that agree."""
    found = by_hospital.MethodAccuracy()
    found.hospital = {by_hospital.PUBLIC: [np.array(public)] * 2, by_hospital.SAME: [np.array(same)] * 2}
    found.hospital[by_hospital.POOLED] = [np.array(pooled)] * 2
    found.complete = {by_hospital.PUBLIC: [np.array(complete)] * 2}
    found.flamby = [np.array(recipe)] * 2
    return found


FINE = ([80.0] * 4, [83.0] * 4, [83.0] * 4, [70.0] * 4, [73.0] * 4)


def judged(*, own=by_hospital.ACCEPTED, values=FINE):
    return [figure.met for figure in by_hospital.figures(measured(*values), np.array(own), SILOS)]


def test_three_points_below_are_met_and_more_are_missed_at_one_hospital_alone():
    assert judged() == [True] * 16
    below = ([80.0, 79.9, 80.0, 80.0], *FINE[1:])
    assert judged(values=below) == [True] * 5 + [False] + [True] * 3 + [False] + [True] * 6
    stronger = (FINE[0], FINE[1], [83.1, 83.0, 83.0, 83.0], *FINE[3:])
    assert judged(values=stronger) == [True] * 8 + [False] + [True] * 7
    complete = (*FINE[:3], [70.0, 70.0, 70.0, 69.9], FINE[4])
    assert judged(values=complete) == [True] * 15 + [False]
    above = ([99.0] * 4, *FINE[1:])
    assert judged(values=above) == [True] * 16


def test_what_is_judged_can_be_written_down():
    found = [asdict(figure) for figure in by_hospital.figures(measured(*FINE), np.array(by_hospital.ACCEPTED), SILOS)]
    assert json.loads(json.dumps(found)) == found


def test_the_table_holds_means_over_splits_and_of_the_first_method_interval_and_noise():
    found = by_hospital.MethodAccuracy(draws=[np.array([[80.0, 60.0], [82.0, 60.0]])])
    for number, method in enumerate(by_hospital.METHODS):
        found.hospital[method] = [np.array([80.0 + number]), np.array([82.0 + number])]
        found.domain[method] = [np.array([60.0]), np.array([60.0])]
    lines = by_hospital.accuracy_table(found, ("one", "a"))
    assert lines[2] == "| one | 81.0 | 68.3 to 93.7 | +- 1.4 | 82.0 | 83.0 | 84.0 | 85.0 | 86.0 |"
    assert lines[3].startswith("| a | 60.0 | 60.0 to 60.0 | +- 0.0 |")
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(("change", "met"), [(0.49, True), (-0.49, True), (0.51, False), (-0.51, False)])
def test_the_recipe_must_give_what_flamby_published(change, met):
    own = np.array(by_hospital.ACCEPTED)
    own[2] += change
    assert judged(own=own) == [True, True, met] + [True] * 13


def test_the_mean_over_splits_is_judged():
    values = measured(*FINE)
    values.hospital[by_hospital.PUBLIC] = [np.array([70.0] * 4), np.array([90.0] * 4)]
    assert all(figure.met for figure in by_hospital.figures(values, np.array(by_hospital.ACCEPTED), SILOS))


@pytest.mark.parametrize(("epsilon", "met"), [(8.0, True), (8.001, False)])
def test_the_private_study_has_a_budget(epsilon, met):
    assert by_hospital.epsilon_figure(epsilon).met is met


def test_the_interval_is_students():
    low, high = by_hospital.ends(np.array([80.0, 82.0, 84.0, 86.0, 88.0]))
    # 2.7764 is the 97.5 % quantile for four degrees of freedom, sqrt(10) the deviation.
    assert (low + high) / 2 == pytest.approx(84.0)
    assert high - 84.0 == pytest.approx(2.7764 * np.sqrt(10) / np.sqrt(5), rel=1e-4)


def test_the_deviation_between_draws_leaves_the_splits_out():
    draws = [np.array([[80.0, 50.0], [82.0, 50.0]]), np.array([[90.0, 60.0], [92.0, 60.0]])]
    assert by_hospital.noise_deviation(draws) == pytest.approx([np.sqrt(2.0), 0.0])


SPLIT = SimpleNamespace(
    domains=("a",),
    training={},
    held_out={"one": SimpleNamespace(labels=np.array([1, 0]), domains=np.array([0, 0]), inputs=0)},
    complete_held_out={"one": np.array([True, False])},
)


class Says:
    """A model that predicts these risks."""

    def __init__(self, *risks):
        self.risks = np.array(risks)

    def predict(self, inputs, domains):
        return np.stack([1 - self.risks, self.risks], axis=1)


def outcome(*risks):
    return SimpleNamespace(model=Says(*risks))


def test_draws_of_a_split_are_found_again(monkeypatch):
    for method in ("of_pooled", "of_alone", "of_majority"):
        monkeypatch.setattr(by_hospital.hospitals, method, lambda cohorts: {"one": np.array([1.0, -1.0])})
    monkeypatch.setattr(by_hospital.hospitals, "of_flamby", lambda cohorts: np.array([50.0]))
    noised = [outcome(0.9, 0.1), outcome(0.1, 0.1), outcome(0.9, 0.9), outcome(0.1, 0.9)]
    found = by_hospital.measure([SPLIT] * 2, [SPLIT] * 2, noised, [outcome(0.9, 0.1)] * 2)
    assert [draws[:, 0].tolist() for draws in found.draws] == [[100.0, 50.0], [50.0, 0.0]]
    assert [own.tolist() for own in found.hospital[by_hospital.PRIVATE]] == [[75.0], [25.0]]
    assert [own.tolist() for own in found.hospital[by_hospital.PUBLIC]] == [[100.0], [100.0]]


@pytest.mark.parametrize(("risks", "met"), [((0.8, 0.2), True), ((0.2, 0.2), False)])
def test_agents_give_the_simulated_accuracy_without_noise(risks, met):
    ran = SimpleNamespace(model=Says(*risks), seconds=1.0, **vars(sealed(2.0)))
    (figure,) = by_hospital.public_figures(ran, outcome(0.9, 0.1), SPLIT)
    assert figure.met is met


def test_a_method_counts_with_the_mean_of_its_draws():
    found = by_hospital.MethodAccuracy()
    found.add("m", [{"one": np.array([1.0, -1.0])}, {"one": np.array([-2.0, -1.0])}], SPLIT)
    assert found.hospital["m"][0].tolist() == [75.0]
    assert found.domain["m"][0].tolist() == [75.0]
    assert found.complete["m"][0].tolist() == [50.0]


def sealed(*patients):
    """What agents read of the domains a and b."""
    counted = [PublishedFigure(name, "patients", n, n, n) for name, n in zip("ab", patients, strict=False)]
    return SimpleNamespace(sealed=[PublishedFigure("a", "accuracy", 0.9, 0.8, 1.0), *counted])


def test_agents_that_held_out_other_records_are_found_out():
    cohorts = SimpleNamespace(
        domains=("a", "b"),
        held_out={name: SimpleNamespace(domains=np.array(d)) for name, d in {"x": [0, 1, 1], "y": [0, 0]}.items()},
    )
    by_hospital.check_cohorts(sealed(3.0, 2.0), cohorts)
    with pytest.raises(FederationError, match="splits differ"):
        by_hospital.check_cohorts(sealed(2.0, 3.0), cohorts)


def test_no_reported_split_is_one_that_the_studies_were_tuned_on():
    assert len(set(by_hospital.SPLITS)) == 5
    assert not any(name.startswith("tune") for name in by_hospital.SPLITS)
