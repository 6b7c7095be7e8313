from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.documents.study import EnvironmentColumn
from policies.plan.release import encoder_release
from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd.training import Training
from silo_agent.learning.encoder.encoder import build_encoder, flatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.releases.whole_batches import train_plainly
from silo_agent.learning.terms.environments import Steps
from silo_agent.learning.terms.losses import cross_entropy, irm
from silo_agent.learning.terms.term import Batch, Seen


@pytest.fixture
def study(make_study):
    """A study of public data with environments, whose recipe trains one head with the encoder."""
    whole = make_study(domains=1)
    data = whole.data.model_copy(update={"environment": EnvironmentColumn(column="ward", values=("a", "b"))})
    encoder = whole.encoder.model_copy(
        update={"noise": 0.0, "sampling_rate": 1.0, "irm": 5.0, "steps": 1, "learning_rate": 0.1, "max_update": 0.05}
    )
    privacy = whole.privacy.model_copy(update={"mode": "none"})
    return whole.model_copy(update={"data": data, "encoder": encoder, "privacy": privacy, "recipe": "fedavg"})


@pytest.fixture
def records(make_records):
    return replace(make_records(60, domains=1), environments=np.arange(60) % 2)


def train(study, records, *, count=1, steps=None):
    encoder = build_encoder(study.model, study.data, stochastic=False)
    heads = np.random.default_rng(0).normal(size=(1, 5))
    steps = steps or Steps.start(study.encoder, 2)
    release = replace(encoder_release(study, 1), count=count)
    update = train_plainly(
        study,
        Training(
            encoder=encoder,
            heads=heads,
            records=records,
            release=release,
            joint=1,
            family=family_of(2),
            domain_weights=np.ones(1),
            whole=10,
            plan=study.encoder,
            first=steps.taken,
        ),
        steps=steps,
    )
    return update.vector, encoder, heads


def test_one_step_is_the_gradient_of_the_whole_loss_over_irms_weight(study, records):
    change, encoder, heads = train(study, records)
    weights = torch.tensor(heads, dtype=torch.float32, requires_grad=True)
    x, none = torch.tensor(records.inputs), torch.zeros(60, dtype=torch.int64)
    where = torch.tensor(records.environments)
    batch = Batch(x, None, torch.tensor(records.labels), none, None, weights, family_of(2), where)
    seen = Seen(batch, encoder(x))
    whole = (cross_entropy.losses(seen).mean() + 5.0 * irm.loss(seen, None, None)) / 5.0
    gradients = torch.autograd.grad(whole, [*encoder.parameters(), weights])
    wanted = -0.1 * np.concatenate([part.numpy().ravel() for part in gradients])
    np.testing.assert_allclose(change, wanted, atol=1e-7)


def test_steps_and_weights_go_on_and_no_coordinate_passes_the_bound(study, records):
    plan = study.encoder.model_copy(update={"group_dro": 0.5, "group_rate": 1.0, "irm_after": 3, "learning_rate": 9.0})
    study, steps = study.model_copy(update={"encoder": plan}), Steps.start(plan, 2)
    change, *_ = train(study, records, count=4, steps=steps)
    assert np.abs(change).max() == plan.max_update
    assert steps.taken == 4
    assert steps.weights[0] != steps.weights[1]


def test_a_silo_without_records_moves_nothing(study, records):
    nobody = records.of_patients(np.zeros(60, bool))
    change, encoder, heads = train(study, nobody)
    assert change.tolist() == [0.0] * (len(flatten(encoder)) + heads.size)


def test_data_that_are_not_public_are_refused_by_name(study, records):
    private = study.model_copy(update={"privacy": study.privacy.model_copy(update={"mode": "local"})})
    with pytest.raises(Refused, match="the term irm") as caught:
        train(private, records)
    assert caught.value.reason is Reason.BATCH_STATISTICS


def test_records_without_environments_are_an_error(study, make_records):
    with pytest.raises(LearningError, match="no environments"):
        train(study, make_records(20, domains=1))
