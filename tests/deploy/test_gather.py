import math
from types import SimpleNamespace

from deploy.demo import gather
from policies.reports.published import PublishedFigure
from protos.messages import Tensor
from protos.status import PhaseTime, UploadSize

KNOWN = {"value": 0.8, "low": 0.7, "high": 0.9}
UNKNOWN = {"value": None, "low": 0.0, "high": 1.0}


def test_figures_keep_their_domain_and_name_and_unknown_ones_are_none():
    results = {
        "domains": ["a", "b"],
        "by_domain": [{"auc": KNOWN, "accuracy": {**KNOWN, "value": 0.75}}, {"auc": None, "accuracy": UNKNOWN}],
        "together": {"auc": {**KNOWN, "value": 0.85}, "sizes": [3.0, 4.0]},
    }
    assert gather.opened_figures(results) == (
        PublishedFigure("a", "auc", 0.8, 0.7, 0.9),
        PublishedFigure("a", "accuracy", 0.75, 0.7, 0.9),
        PublishedFigure("b", "accuracy", None, 0.0, 1.0),
        PublishedFigure("all patients", "auc", 0.85, 0.7, 0.9),
    )
    del results["together"]
    assert len(gather.opened_figures(results)) == 3


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
