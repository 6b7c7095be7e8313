"""The paper's methods are all there, in the order that the stack takes them."""

import pytest

from bench.papers.personal_models import hospitals
from bench.papers.personal_models.published import CONSTRAINTS, HETEROGENEITIES, PRINTED, SETTINGS, SHARED


@pytest.mark.parametrize("heterogeneity", HETEROGENEITIES)
def test_every_printed_accuracy_has_its_method(heterogeneity):
    methods = SETTINGS[heterogeneity].methods
    assert [method.constraint for method in methods] == 2 * list(range(len(CONSTRAINTS)))
    assert [bool(method.ditto) for method in methods] == [False] * 5 + [True] * 5
    assert {SHARED, *(method.name for method in methods)} - {"alone"} == PRINTED[heterogeneity].keys()


def test_hospitals_have_the_same_terms():
    assert list(hospitals.METHODS) == [
        "alone", "cosine", "mk-mmd", "mmd-d", "ditto", "ditto + cosine", "ditto + mk-mmd", "ditto + mmd-d"
    ]  # fmt: skip
    assert hospitals.METHODS["ditto + mk-mmd"] == {"ditto": 0.1, "mmd": 1.0, "cosine": 0.0, "mmd_d": 0.0}
    assert not any(hospitals.METHODS["alone"].values())
