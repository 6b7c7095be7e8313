import numpy as np
import pytest

from coordinator.publishing import accept
from protos.messages import Confirm, Place, Publication, Tensor
from protos.steps import Task
from silo_agent.data.outcome import half_range
from silo_agent.learning.figures.evaluation import DomainResult, Estimate, NumberResult, Results
from silo_agent.learning.figures.moments import results_from_moments
from silo_agent.protocol.publishing import publication
from support.studies import tiny_study


def result(auc=True):
    estimates = [Estimate(number, number - 0.1, number + 0.1) for number in (0.81234, 0.71239, 0.69999, 0.05554)]
    few = Estimate(None, 0.0, 1.0)
    return DomainResult(
        estimates[0] if auc else None,
        *estimates[1:3],
        few,
        Estimate(1.23456, 0.9, 130.0 / 9),
        Estimate(41.7, 30.2, 53.1),
        estimates[3] if auc else None,
    )


RESULTS = Results("5" * 64, ("a", "b"), (result(), result(auc=False)), 1.5)


def figures(*metrics):
    study = tiny_study(publish=list(metrics))
    return study, {(f.domain, f.metric): (f.value, f.low, f.high) for f in publication(study, RESULTS).figures}


def test_what_the_study_lists_is_published_rounded_and_nothing_else():
    study, got = figures("accuracy", "patients")
    assert got == {
        ("a", "accuracy"): (0.712, 0.612, 0.812),
        ("b", "accuracy"): (0.712, 0.612, 0.812),
        ("a", "patients"): (42, 30, 53),
        ("b", "patients"): (42, 30, 53),
    }
    blob = publication(study, RESULTS).canonical()
    assert Publication.parse(blob) == publication(study, RESULTS)


def test_a_figure_without_a_value_stays_without_one():
    assert figures("calibration")[1]["a", "calibration"] == (None, 0.0, 1.0)


def test_a_metric_that_has_no_meaning_is_left_out():
    assert list(figures("auc", "false_negatives")[1]) == [("a", "auc"), ("a", "false_negatives")]


def test_a_study_that_announces_its_hospitals_says_how_far_the_largest_could_have_moved_each_figure():
    sized = DomainResult(*(getattr(result(), name) for name in list(vars(result()))[:-1]), sizes=(60.0, 40.0))
    results = Results("5" * 64, ("a", "b"), (sized, result()), 1.5)
    study = tiny_study(publish=["auc", "accuracy"], expected={"patients": [600, 300, 100]})
    found = {(f.domain, f.metric): f.value for f in publication(study, results).figures}
    share = 0.6 * 2 * 41.7
    assert found["a", "accuracy_moved"] == round(share / 100, 3)
    assert found["a", "auc_moved"] == round(1 - (1 - share / 60) * 0, 3) == 1.0
    assert not any(metric.endswith("_moved") for domain, metric in found if domain == "b"), "it has no sizes"
    assert Publication.parse(publication(study, results).canonical()) == publication(study, results)
    whole = Results("5" * 64, ("a", "b"), (sized, sized), 1.5)
    for announced in (study, tiny_study(publish=study.publish)):
        place = Place(announced.digest, announced.rounds + 1, 1)
        signed = Confirm(
            place, Task.OPEN, Tensor.METRICS, "m", publication=publication(announced, whole).canonical(), signature=b"s"
        )
        assert accept(announced, "north", signed, b"pem") is not None, "a coordinator takes what a silo publishes"


def test_figures_of_all_patients_follow_those_of_the_domains():
    study = tiny_study(publish=["accuracy", "patients"], evaluation={"together": True})
    whole = Results(RESULTS.study, RESULTS.domains, RESULTS.by_domain, RESULTS.noise_sd, RESULTS.by_domain[0])
    named = [(figure.domain, figure.metric) for figure in publication(study, whole).figures]
    assert named[-2:] == [("all patients", "accuracy"), ("all patients", "patients")]
    assert list(dict.fromkeys(domain for domain, _ in named)) == list(study.reported)


@pytest.mark.parametrize("noise", [0.0, 2e-5])
def test_processors_that_differ_in_the_last_digits_sign_the_same(noise):
    moved = [
        DomainResult(
            *(
                None
                if e is None
                else Estimate(None if e.value is None else e.value + noise, e.low + noise, e.high + noise)
                for e in (
                    r.auc,
                    r.accuracy,
                    r.balanced_accuracy,
                    r.calibration,
                    r.expected_observed,
                    r.patients,
                    r.false_negatives,
                )
            )
        )
        for r in RESULTS.by_domain
    ]
    study = tiny_study(publish=["auc", "accuracy", "balanced_accuracy", "patients"])
    other = Results(RESULTS.study, RESULTS.domains, tuple(moved), RESULTS.noise_sd)
    assert publication(study, other).canonical() == publication(study, RESULTS).canonical()


@pytest.mark.parametrize(
    ("minimum", "maximum", "published"), [(0, 30, 1.23), (-1000, 1000, 1.0), (0, 1e9, 0.0), (0, 1e-6, 1.23456789)]
)
def test_errors_of_a_number_are_rounded_by_its_range(minimum, maximum, published):
    label = {"positive": [], "negative": [], "minimum": minimum, "maximum": maximum}
    study = tiny_study(publish=["mae", "r2"], data={"label": label}, evaluation={"bins": 10})
    figure, share = Estimate(1.23456789, 1.2, 1.3), Estimate(0.43219, 0.4, 0.5)
    results = Results("5" * 64, ("a",), (NumberResult(figure, share, figure, figure),), 1.5)
    first, second = publication(study, results).figures
    assert (first.metric, first.value, second.metric, second.value) == ("mae", published, "r2", 0.432)


def test_the_widest_range_that_a_label_may_have_fits_into_a_figure():
    label = {"positive": [], "negative": [], "minimum": -1e11, "maximum": 1e11}
    study = tiny_study(publish=["mean_error"], data={"label": label}, evaluation={"bins": 10})
    (found, *_) = results_from_moments(np.zeros(22), 1.0, half_range(study.data.label), count=2, largest_error=1.0)
    results = Results("5" * 64, ("a",), (found,), 1.0)
    (figure,) = publication(study, results).figures
    assert (figure.value, figure.low, figure.high) == (None, -2e11, 2e11)
