import math
from types import SimpleNamespace

from deploy.demo import gather
from deploy.demo.report_data import NoisedFigure
from protos.messages import Tensor
from protos.status import PhaseTime, UploadSize

KNOWN = {"value": 0.8, "low": 0.7, "high": 0.9}
UNKNOWN = {"value": None, "low": 0.0, "high": 1.0}


def result(**changes):
    names = ("auc", "accuracy", "balanced_accuracy", "calibration", "expected_observed")
    return {**dict.fromkeys(names, KNOWN), "patients": {"value": 40.2, "low": 30.0, "high": 50.0}, **changes}


def test_a_domain_keeps_every_figure_under_its_own_name():
    figures = {name: {**KNOWN, "value": 0.1 * i} for i, name in enumerate(("auc", "accuracy", "balanced_accuracy"))}
    domain = gather.sealed_domain(result(**figures))
    assert domain.patients == NoisedFigure(40.2, 30.0, 50.0)
    assert (domain.auc.value, domain.accuracy.value, domain.balanced_accuracy.value) == (0.0, 0.1, 0.2)
    assert domain.calibration == NoisedFigure(0.8, 0.7, 0.9)


def test_figures_that_nobody_can_tell_are_none():
    domain = gather.sealed_domain(result(auc=None, accuracy=UNKNOWN, balanced_accuracy=UNKNOWN))
    assert (domain.auc, domain.accuracy, domain.balanced_accuracy) == (None, None, None)
    assert domain.calibration is not None


def test_phases_are_added_up_under_words_for_people():
    times = (
        PhaseTime(1, 1, "share", None, 1.0),
        PhaseTime(1, 1, "catch_up", None, 2.0),
        PhaseTime(1, 1, "gather", Tensor.HEADS, 4.0),
    )
    found = {phase.name: phase.seconds for phase in gather.phases(SimpleNamespace(times=times))}
    assert found == {"catching up": 3.0, "training and uploads": 4.0}


def test_a_round_counts_the_most_that_one_silo_sent_and_everything_that_it_fetched():
    uploads = (
        UploadSize(1, 1, Tensor.HEADS, "ckks", "a", 100),
        UploadSize(1, 1, Tensor.HEADS, "ckks", "b", 100),
        UploadSize(1, 1, None, "heads", "a", 30),
    )
    (found,) = gather.rounds(SimpleNamespace(uploads=uploads))
    assert (found.round, found.sent, found.fetched) == (1, 130, 130)


def test_a_models_areas_are_numbers_by_domain():
    area = gather.areas([{"auc": 0.6, "accuracy": 0.9}, {"auc": None, "accuracy": 0.8}])
    assert area[0] == 0.6
    assert math.isnan(area[1])


def test_the_mean_of_a_model_leaves_out_domains_without_a_figure():
    evaluated = {
        "a": {"shared": [{"auc": 0.6}, {"auc": None}, {"auc": 0.8}], "personal": [{"auc": 0.9}] * 3},
        "b": {"shared": [{"auc": 0.6}], "personal": None},
    }
    (one,) = gather.personal(evaluated)
    assert (one.silo, one.shared, one.personal) == ("a", 0.7, 0.9)
