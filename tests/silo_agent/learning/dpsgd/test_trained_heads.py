import numpy as np
import pytest
import torch

from policies.documents.study import EncoderPlan
from policies.plan import shapes
from policies.plan.release import encoder_release
from silo_agent.learning.dpsgd.trained_heads import TrainedHeads
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import build_encoder
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.cross_entropy import cross_entropy
from support.entropy import SeededEntropy

PLAN = EncoderPlan(steps=1, sampling_rate=1.0, batch_size=10, learning_rate=0.5, noise=0, clip=100.0, max_update=100.0)
WEIGHTS = np.array([1.0, 0.5, 2.0])


@pytest.mark.parametrize(("joint", "classes"), [(1, 2), (3, 2), (3, 4)])
def test_a_step_moves_encoder_and_heads_along_their_common_gradient(make_study, make_records, joint, classes):
    study, records = make_study(classes=classes), make_records(30, classes=classes)
    release = encoder_release(study.model_copy(update={"encoder": PLAN}), joint)
    family, rng = family_of(classes), np.random.default_rng(0)
    heads = rng.normal(size=(3 if joint > 1 else 1, shapes.head_width(study))).repeat(3 // (3 if joint > 1 else 1), 0)
    encoder = build_encoder(study.model, study.data, stochastic=False)
    update = train_encoder(
        Training(
            encoder=encoder,
            heads=heads,
            records=records,
            plan=PLAN,
            release=release,
            family=family,
            domain_weights=WEIGHTS,
            joint=joint,
        ),
        mode="none",
        entropy=SeededEntropy(0),
    )
    assert update.vector.shape == (release.values,)
    own = torch.tensor(heads[:joint], dtype=torch.float32, requires_grad=True)
    rows = torch.tensor(records.domains) if joint > 1 else torch.zeros(30, dtype=torch.int64)
    losses = cross_entropy(family, encoder(torch.tensor(records.inputs)), own, rows, torch.tensor(records.labels))
    (torch.tensor(WEIGHTS[records.domains]) * losses).sum().backward()
    gradient = [parameter.grad.ravel() for parameter in encoder.parameters()] + [own.grad.ravel()]
    wanted = -PLAN.learning_rate / PLAN.batch_size * torch.cat(gradient).numpy()
    np.testing.assert_allclose(update.vector, wanted, atol=2e-3)


def test_with_noise_the_heads_are_under_the_same_clip_as_the_encoder(make_study, make_records):
    """One patient whose gradient is long: encoder and heads together move by no more than the clip."""
    study, records = make_study(), make_records(1)
    plan = PLAN.model_copy(update={"clip": 0.1, "batch_size": 1, "learning_rate": 1.0})
    heads = np.random.default_rng(1).normal(size=(3, shapes.head_width(study))) * 5
    update = train_encoder(
        Training(
            encoder=build_encoder(study.model, study.data, stochastic=False),
            heads=heads,
            records=records,
            plan=plan,
            release=encoder_release(study.model_copy(update={"encoder": plan}), 3),
            family=family_of(2),
            domain_weights=100 * np.ones(3),
            joint=3,
        ),
        mode="none",
        entropy=SeededEntropy(0),
    )
    moved = update.vector
    assert np.linalg.norm(moved) == pytest.approx(0.1, rel=1e-2)
    assert np.linalg.norm(moved[-heads.size :]) > 0.01


def test_one_head_serves_every_domain():
    one, many = TrainedHeads(np.ones((1, 2))), TrainedHeads(np.arange(6.0).reshape(3, 2))
    domains = torch.tensor([2, 0])
    assert one(domains).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert many(domains).tolist() == [[4.0, 5.0], [0.0, 1.0]]
