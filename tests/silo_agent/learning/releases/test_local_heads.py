"""FedDAR's own sums: a silo that is there twice changes nothing, domains do not mix, and patients are the weights."""

import numpy as np
import pytest

from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.device import choose_device
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases import local_heads
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.logs import TrainingLog
from support.entropy import SeededEntropy
from support.studies import tiny_study

SIZES = (30, 10)
PLAN = {
    "heads": {"pooled_rounds": 1, "domain_rounds": 1, "pooled_noise": 0.0, "domain_noise": 0.0},
    "encoder": {"noise": 0.0, "weight_clip": 1.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
}


def setting_of(folder, recipe):
    study = tiny_study(recipe=recipe, **PLAN)
    (folder / "counts.json").write_text("[1000.0, 1000.0]")
    return Setting(study, folder, SeededEntropy(1), choose_device("cpu"), TrainingLog(folder / "training.jsonl"))


def cohort(study, seed=1, sizes=SIZES):
    """Patients of two domains; the label follows the first input, the other way round in the second domain."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    inputs = rng.normal(size=(n, study.data.inputs)).astype(np.float32)
    domains = np.repeat(np.arange(2), sizes)
    labels = ((inputs[:, 0] > 0) ^ (domains == 1)).astype(np.int64)
    return Records(inputs, labels, domains, np.arange(n), tuple(map(str, range(n))))


def opened(setting, place, model, *cohorts):
    total = sum(local_heads.statistic(setting, one, place, model) for one in cohorts)
    grid = np.rint(total / SumGrid.of(setting.study).step).astype(np.int64)
    return total, local_heads.solve(setting, grid, place, model, noise_sd=SumGrid.of(setting.study).step)


@pytest.mark.parametrize("recipe", ["feddar-sa", "feddar-wa"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_same_silo_twice_asks_for_the_same_heads_one_for_all_domains_or_one_for_each(tmp_path, recipe, number):
    setting = setting_of(tmp_path, recipe)
    place, model = Place(setting.study.digest, number, 1), SharedModel.start(setting.study)
    whole = cohort(setting.study)
    _, heads = opened(setting, place, model, whole)
    _, twice = opened(setting, place, model, whole, whole)
    np.testing.assert_allclose(heads, twice, rtol=0.02, atol=1e-3)
    if number == 1:
        np.testing.assert_array_equal(heads[0], heads[1])
    else:
        alone = [opened(setting, place, model, whole.of_patients(whole.domains == m))[1] for m in range(2)]
        np.testing.assert_allclose(heads[0], alone[0][0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(heads[1], alone[1][1], rtol=1e-3, atol=1e-3)
        assert np.abs(heads[0] - heads[1]).max() > 0.05, "the domains' labels are turned"
    assert np.abs(heads).max() > 0.05


@pytest.mark.parametrize(("number", "patients"), [(1, [sum(SIZES)]), (2, SIZES)])
def test_patients_are_counted_by_domain_where_each_has_its_head_and_together_before(tmp_path, number, patients):
    setting = setting_of(tmp_path, "feddar-wa")
    place, model = Place(setting.study.digest, number, 1), SharedModel.start(setting.study)
    total, _ = opened(setting, place, model, cohort(setting.study))
    np.testing.assert_allclose(total.reshape(len(patients), -1)[:, 0], patients)


def test_the_mean_of_two_silos_lies_nearer_to_the_larger(tmp_path):
    setting = setting_of(tmp_path, "feddar-wa")
    place, model = Place(setting.study.digest, 2, 1), SharedModel.start(setting.study)
    large, small = cohort(setting.study, 1, (90, 90)), cohort(setting.study, 2, (10, 10))
    alone = [opened(setting, place, model, one)[1] for one in (large, small)]
    _, both = opened(setting, place, model, large, small)
    np.testing.assert_allclose(both, 0.9 * alone[0] + 0.1 * alone[1], rtol=1e-3, atol=1e-3)
