import pytest
import torch
from torch.distributions import Normal, kl_divergence

from policies.plan import shapes
from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.cmi import Prior, gaussian_kl, losses, prior_of
from silo_agent.learning.terms.term import Batch, Latent, Seen


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("classes", [2, 5])
def test_it_starts_as_fedsr_does_and_has_the_public_size(make_study, classes, scale):
    study = make_study(cmi=0.1, cmi_scale=scale, classes=classes)
    prior = prior_of(study.model, study.data, study.encoder)
    mean, deviation = prior(torch.tensor([0, 1, classes - 1]))
    assert not mean.any()
    torch.testing.assert_close(deviation, torch.full((3, 4), 1.3133 + 1e-3), atol=1e-4, rtol=0)
    assert len(flatten(prior)) == shapes.prior_values(study) == 2 * 4 * classes + scale
    if scale:
        torch.testing.assert_close(prior.scale_of(torch.tensor([0, 1])), torch.ones(2, 1))


def test_a_record_reads_its_own_class_and_no_deviation_is_zero():
    prior = Prior(4, 2)
    with torch.no_grad():
        prior.mean.weight[1] = 2.0
        prior.raw.weight[0] = -1e4
    mean, deviation = prior(torch.tensor([0, 1]))
    assert mean[0].unique().tolist() == [0.0]
    assert mean[1].unique().tolist() == [2.0]
    assert deviation[0].min() > 0


def test_the_divergence_is_that_of_gaussians():
    mean, deviation, other, width = (t.abs() + 0.1 for t in torch.randn(4, 5, 3))
    expected = kl_divergence(Normal(mean, deviation), Normal(other, width)).sum(1)
    torch.testing.assert_close(gaussian_kl(mean, deviation, other, width), expected)
    torch.testing.assert_close(gaussian_kl(mean, deviation, mean, deviation), torch.zeros(5), atol=1e-6, rtol=0)


def test_the_scale_multiplies_what_is_compared_and_stays_positive():
    nothing, labels = torch.zeros(2, 0), torch.tensor([0, 1])
    batch = Batch(nothing, None, labels, torch.zeros(2), None, nothing, family_of(2))
    prior, mean, deviation = Prior(3, 2, scaled=True), torch.randn(2, 3), torch.rand(2, 3) + 0.1
    with torch.no_grad():
        prior.scale.weight[0] = 2.0
    scale = prior.scale_of(labels)
    found = losses(Seen(batch, mean, Latent(mean, deviation, prior, scale)))
    torch.testing.assert_close(found, gaussian_kl(scale[0] * mean, scale[0] * deviation, *prior(labels)))
    plain = losses(Seen(batch, mean, Latent(mean, deviation, prior)))
    torch.testing.assert_close(plain, gaussian_kl(mean, deviation, *prior(labels)))
    with torch.no_grad():
        prior.scale.weight[0] = -1e4
    assert prior.scale_of(labels).min() > 0
    assert losses(Seen(batch, mean, Latent(mean, deviation, prior, prior.scale_of(labels)))).isfinite().all()


def test_features_that_are_not_drawn_have_no_divergence():
    nothing = torch.zeros(2, 0)
    batch = Batch(nothing, None, torch.zeros(2, dtype=torch.int64), torch.zeros(2), None, nothing, family_of(2))
    with pytest.raises(ValueError, match="stochastic encoder"):
        losses(Seen(batch, torch.zeros(2, 3)))
