"""What every released statistic keeps, asked of each: a patient counts once, whatever records the patient has.

Records of a patient may lie in several domains, classes and chunks. The statistics are computed as for a release, and
only the noise is left out.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.device import choose_device
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases import heads as heads_module
from silo_agent.learning.releases import metrics as metrics_module
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.counts import Counts
from silo_agent.learning.releases.heads import Heads
from silo_agent.learning.releases.metrics import MetricSums
from silo_agent.logs import TrainingLog
from support.entropy import SeededEntropy

ROUNDS = {"counts": 0, "pooled heads": 1, "domain heads": 5, "calibration": 7, "metrics": 8}
HEAD_PLANS = [
    {"solver": "newton", "calibration": "domain"},
    {"solver": "hierarchical", "calibration": "pooled", "clip": 0.4},
]


def planned(study, changes):
    plan = study.heads.model_copy(update={"calibration_noise": 1.0} | changes)
    return study.model_copy(update={"heads": plan, "privacy": study.privacy.model_copy(update={"max_patients": 1000})})


@pytest.fixture(params=[(2, HEAD_PLANS[0]), (2, HEAD_PLANS[1]), (4, HEAD_PLANS[0])], ids=["two", "two-h", "four"])
def statistics(request, make_study, tmp_path):
    """Each statistic by its name, as a function of records, at heads that are sure of much."""
    classes, heads = request.param
    study = planned(make_study(classes=classes, hidden=()), heads)
    setting = Setting(study, tmp_path, SeededEntropy(1), choose_device("cpu"), TrainingLog(tmp_path / "log"))
    (tmp_path / "counts.json").write_text(json.dumps([20.0, 20.0, 20.0]))
    start = SharedModel.start(study)
    model = replace(start, heads=np.random.default_rng(2).normal(0, 6, start.heads.shape))
    assert (ROUNDS["calibration"], ROUNDS["metrics"]) == (study.rounds, plan(study).last)

    def of(name):
        number = ROUNDS[name]
        tensor = name if name in {"counts", "metrics"} else "heads"
        release, place = plan(study).release(number, tensor), Place(study.digest, number, 1)
        given_model = model
        if name == "pooled heads":
            given_model = replace(model, heads=np.tile(model.heads[:1], (3, 1)))
        return {
            Tensor.COUNTS: lambda records: Counts(setting).statistic(release, records),
            Tensor.HEADS: lambda records: Heads(setting).statistic(release, records, place, given_model),
            Tensor.METRICS: lambda records: MetricSums(setting).statistic(release, records, given_model),
        }[Tensor(tensor)]

    return classes, {name: of(name) for name in ROUNDS}


def drawn(seed, classes, count, patients, domains=3):
    """Records of a few patients in any order, domain and class."""
    r = np.random.default_rng(seed)
    whose = np.unique(r.integers(0, patients, count), return_inverse=True)[1].astype(np.int64)
    names = tuple(f"p{number}" for number in range(whose.max() + 1))
    x = r.uniform(-1, 1, (count, 5)).astype(np.float32)
    return Records(x, r.integers(0, classes, count), r.integers(0, domains, count), whose, names)


FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(seed=st.integers(0, 2**32 - 1), patients=st.integers(1, 6))
@FEW
def test_a_patient_moves_each_statistic_by_at_most_one(statistics, seed, patients):
    classes, each = statistics
    records = drawn(seed, classes, 24, patients)
    chosen = np.arange(records.patient_count) == seed % records.patient_count
    for name, statistic in each.items():
        moved = np.linalg.norm(statistic(records) - statistic(records.of_patients(~chosen)))
        alone = np.linalg.norm(statistic(records.of_patients(chosen)))
        assert alone <= 1.0, name
        assert moved == pytest.approx(alone, abs=1e-9), name
        assert moved > 0, name


@given(seed=st.integers(0, 2**32 - 1), rows=st.sampled_from([1, 5, 23]))
@FEW
def test_the_size_of_a_chunk_changes_no_statistic(statistics, seed, rows):
    """So what a record counts follows from all of its patient's records, not from those in its chunk."""
    classes, each = statistics
    records = drawn(seed, classes, 24, 4)
    whole = {name: statistic(records) for name, statistic in each.items()}
    with pytest.MonkeyPatch.context() as small:
        for module in (heads_module, metrics_module):
            small.setattr(module, "chunk_rows", lambda _: rows)
        for name, statistic in each.items():
            np.testing.assert_allclose(statistic(records), whole[name], atol=1e-9, err_msg=name)
