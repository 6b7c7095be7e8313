import dataclasses

import numpy as np
import pytest

from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.figures.paired import PairedDifference, paired
from silo_agent.models import beside_own as module
from silo_agent.models.beside_own import BesideOwn, GroupBeside, beside_own, sentences
from support.models import random_alone, random_model, study_of


def records(study, n=200, seed=0):
    """Records whose outcome follows what a regression of this hospital says."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, study.data.inputs)).astype(np.float32)
    domains = rng.integers(0, len(study.data.domains), n)
    said = random_alone(study).predict(x, domains)
    if study.data.label.number is None:
        labels = (rng.random(n)[:, None] > said.cumsum(axis=1)).sum(axis=1).clip(0, said.shape[1] - 1)
    else:
        labels = ((said[:, 0] + 1) * 2**19).astype(np.int64)
    names = tuple(f"p{place}" for place in range(n // 2))
    return Records(x, labels.astype(np.int64), domains, np.arange(n) // 2, names)


def test_both_models_are_measured_on_the_same_patients_by_domain():
    study = study_of("linear mlp")
    shared, alone, own = random_model(study), random_alone(study), records(study)
    found = beside_own(shared, alone, own)
    assert (found.kind, found.figure) == ("regression", "AUC")
    assert [one.domain for one in found.groups] == [None, *study.data.domains]
    said = [model.predict(own.inputs, own.domains) for model in (shared, alone)]
    for number, one in enumerate(found.groups):
        rows = np.ones(len(own), np.bool_) if number == 0 else own.domains == number - 1
        first, second = (each[rows] for each in said)
        assert one.shared == auc(first[:, 1], own.labels[rows])
        assert one.own == auc(second[:, 1], own.labels[rows])
        wanted = paired(second, first, own.labels[rows], own.patients[rows], shared.family)
        assert (one.patients, one.difference) == (wanted.patients, wanted.auc)
        assert one.difference.value == pytest.approx(one.shared - one.own)
    assert found.groups[0].verdict == "worse", "the outcome is what the other model says"


@pytest.mark.parametrize("kind", ["stochastic mlp of three classes", "mlp of a number"])
def test_without_an_area_under_a_curve_the_loss_is_compared_and_less_is_better(kind):
    study = study_of(kind)
    found = beside_own(random_model(study), random_alone(study), records(study))
    assert found.figure == "loss"
    whole = found.groups[0]
    assert whole.difference.value == pytest.approx(whole.shared - whole.own, abs=0.01)
    assert (whole.difference.low > 0, whole.verdict) == (True, "worse")


def test_few_patients_and_empty_domains_are_called_that():
    study = study_of("linear mlp")
    few = records(study, n=12)
    few = dataclasses.replace(few, domains=np.zeros(12, np.int64))
    groups = beside_own(random_model(study), random_alone(study), few).groups
    assert [one.verdict for one in groups] == ["too few patients"] * len(groups)
    assert (groups[2].patients, groups[2].shared, groups[2].difference) == (0, None, None)


@pytest.mark.parametrize(
    ("ends", "area", "loss"),
    [
        ((0.01, 0.03), "better", "worse"),
        ((-0.03, -0.01), "worse", "better"),
        ((-0.01, 0.03), "no clear difference", "no clear difference"),
        ((0.0, 0.03), "no clear difference", "no clear difference"),
        ((None, None), "too few patients", "too few patients"),
    ],
)
def test_a_difference_is_one_only_if_its_interval_is_on_one_side(ends, area, loss):
    found = PairedDifference(0.01 if ends[0] is None else sum(ends) / 2, *ends)
    assert module._verdict(found, more_is_better=True) == area
    assert module._verdict(found, more_is_better=False) == loss


def test_only_groups_that_are_worse_off_have_a_sentence():
    group = GroupBeside("b", 31, 0.79, 0.817, None, "worse")
    verdicts = ("better", "no clear difference", "too few patients")
    others = tuple(dataclasses.replace(group, verdict=verdict) for verdict in verdicts)
    found = BesideOwn("boosting", "AUC", (dataclasses.replace(group, domain=None), *others, group))
    worse = "the shared model is worse than one of this hospital's records alone: AUC 0.790 and not 0.817."
    assert sentences(found) == [f"For all patients together {worse}", f"For the domain b {worse}"]
