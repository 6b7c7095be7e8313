"""One table says of every metric what it is for; what else must know them reads the table."""

from typing import get_args

import pytest

from policies.documents.document import DocumentError, check_document
from policies.documents.policy import Policy
from policies.documents.sections.evaluation import METRICS, OF_CLASSES, OF_NUMBERS, Metric
from policies.documents.study import Study
from policies.documents.words.explain import explain
from support.small_cohort import policy_document
from support.studies import tiny_study


def test_every_metric_has_one_row():
    assert set(METRICS) == set(get_args(Metric))
    assert set(METRICS) == OF_CLASSES | OF_NUMBERS
    assert {"patients"} == OF_CLASSES & OF_NUMBERS


def test_a_policy_may_allow_all_metrics_and_says_each_in_words():
    policy = Policy.model_validate(policy_document("ward", publish=list(METRICS)))
    text = " ".join(paragraph for _, paragraph in explain(policy))
    assert all(metric.words in text for metric in METRICS.values())


@pytest.mark.parametrize("metric", METRICS)
def test_a_study_publishes_a_metric_of_its_outcome_alone(metric):
    """Of two classes, of three classes, and of a number."""
    row = METRICS[metric]
    two = tiny_study().model_dump(mode="json")
    three = {**two, "data": {**two["data"], "label": {"column": "ill", "classes": [[0], [1], [2]]}}}
    plain = {name: value for name, value in two["evaluation"].items() if name != "bins"}
    number = {
        **two,
        "evaluation": plain,
        "data": {**two["data"], "label": {"column": "ill", "minimum": 0, "maximum": 9}},
    }
    for document, fits in ((two, row.classes), (three, row.classes and not row.two_only), (number, row.numbers)):
        stated = {**document, "publish": [metric]}
        if fits:
            assert check_document(stated, Study, "study").publish == (metric,)
        else:
            with pytest.raises(DocumentError, match="publish lists"):
                check_document(stated, Study, "study")
