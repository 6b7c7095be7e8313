"""The mutation gate: faults that have broken other systems are planted in the running code, and all are caught."""

import pytest
import torch

from audit.mutants import MUTANTS, NAMED
from audit.scenes import crowd, silo, study
from audit.statistics import STATISTICS
from policies.ledger.ledger import read_ledger
from policies.plan import release as planned
from policies.refusals import Refused
from silo_agent import gate
from silo_agent.learning import learner
from silo_agent.learning.dpsgd import batches, gradients, rounded_gaussian, sampling, step, training
from silo_agent.learning.figures import moments
from silo_agent.learning.heads import calibration
from silo_agent.learning.noise import noised_sum
from silo_agent.learning.outcomes import more_classes
from silo_agent.learning.releases import encoder, heads, noising

pytestmark = pytest.mark.slow

NINE = {
    "no noise, encoder",
    "no noise, releases",
    "half noise",
    "double clip",
    "per-batch clip",
    "shuffle for Poisson",
    "fixed seed",
    "scale from N",
    "uncharged heads",
    "uncharged encoder",
    "r(z|y) without noise feeds the upload",
    "personal heads feed the upload",
}
"""The nine faults that no release may have, three of them in two places."""


@pytest.mark.parametrize(
    ("fault", "statistic"), [(name, catcher) for name, mutant in MUTANTS.items() for catcher in mutant.caught_by]
)
def test_the_fault_is_caught(fault, statistic, tmp_path):
    with MUTANTS[fault].plant():
        verdict = STATISTICS[statistic](tmp_path)
    assert not verdict.holds, verdict.seen


@pytest.mark.parametrize("fault", NAMED)
def test_the_fault_is_refused_by_name_before_anything_is_charged(fault, tmp_path):
    plant, reason = NAMED[fault]
    made = study(encoder={"cmi": 0.01, "prior": "local"})
    with plant(), pytest.raises(Refused) as caught, silo(tmp_path, made, crowd(5), crowd(5), 1):
        pytest.fail("the silo began the study")
    assert caught.value.reason is reason
    (ledger,) = tmp_path.rglob("ledger.sqlite3")
    assert len(read_ledger(ledger)[1]) == 0


def test_every_fault_has_a_statistic_and_every_statistic_a_fault():
    assert set(MUTANTS) >= NINE
    assert all(mutant.caught_by for mutant in MUTANTS.values())
    assert {name for mutant in MUTANTS.values() for name in mutant.caught_by} == set(STATISTICS)


PLANTED = {name: mutant.plant for name, mutant in MUTANTS.items()} | {name: plant for name, (plant, _) in NAMED.items()}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_gone_afterwards(fault):
    """A mutant's parts are put back; otherwise the tests that follow would judge it instead of the real code."""
    parts = _replaceable()
    with PLANTED[fault]():
        assert _replaceable() != parts
    assert _replaceable() == parts


_REPLACED = (
    more_classes.Categorical,
    gate.Gate,
    learner.Learner,
    encoder.EncoderUpdates,
    heads.Heads,
    batches.Batches,
    step.PrivateStep,
    rounded_gaussian.RoundedGaussian,
    sampling.PatientSampler,
)


def _replaceable():
    return [
        *(
            vars(module).copy()
            for module in (
                learner,
                noising,
                encoder,
                heads,
                calibration,
                training,
                gradients,
                moments,
                noised_sum,
                planned,
                torch.optim,
            )
        ),
        *(dict(vars(kind)) for kind in _REPLACED),
    ]
