import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from policies.documents.study import NUMBER
from silo_agent.learning.outcomes.links import losses
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.personal.refit import Sample, logits_under, refit

BINARY, THREE = 2, 3
BOTH = [(True, False), (False, True), (True, True)]


def sample_of(n=300, k=3, *, seed=0, classes=2, shift=0.0, slope=1.0):
    r = np.random.default_rng(seed)
    phi = r.normal(size=(n, k))
    truth = slope * phi[:, 0] + shift
    if classes == 2:
        labels = (r.random(n) < expit(truth)).astype(np.int64)
    else:
        labels = np.digitize(truth + r.normal(size=n) / 2, [-0.5, 0.5]).astype(np.int64)
    return Sample(phi, labels, r.integers(0, 2, n), r.choice([0.5, 1.0], n))


def mean_loss(sample, heads, family):
    logits = logits_under(sample.phi, heads, sample.domains, family.form.logits)
    return np.average(losses(logits, sample.labels, family), weights=sample.counted)


def test_logits_are_those_of_each_domains_own_head():
    sample, heads = sample_of(5), np.arange(8.0).reshape(2, 4)
    wanted = [phi @ heads[m, :3] + heads[m, 3] for phi, m in zip(sample.phi, sample.domains, strict=True)]
    np.testing.assert_allclose(logits_under(sample.phi, heads, sample.domains, 1)[:, 0], wanted)
    without_bias = [phi @ heads[m, :3] for phi, m in zip(sample.phi, sample.domains, strict=True)]
    np.testing.assert_allclose(logits_under(sample.phi, heads[:, :3], sample.domains, 1)[:, 0], without_bias)


def test_it_is_the_minimum_of_loss_and_prior_by_another_solver():
    """The same objective written down again, in the coordinates of the change itself, by a search without gradients."""
    sample, family = sample_of(80, k=2, shift=1.0), family_of(BINARY)
    heads = np.array([[0.5, -0.2, 0.1], [0.3, 0.4, -0.3]])
    base = logits_under(sample.phi, heads, sample.domains, 1)[:, 0]
    share = sample.counted / sample.counted.sum()
    centred = sample.phi - share @ sample.phi
    length = np.sqrt(share @ (centred**2).sum(axis=1))

    def objective(x):
        logits = (base - share @ base) * x[0] + share @ base + x[1] + centred @ x[2:]
        loss = sample.counted @ (np.logaddexp(0.0, logits) - sample.labels * logits)
        prior = ((x[0] - 1) / 0.5) ** 2 + (x[1] / 3.0) ** 2 + ((x[2:] * length / 0.25) ** 2).sum()
        return loss + prior / 2

    start = np.array([1.0, 0.0, 0.0, 0.0])
    x = minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000}).x
    wanted = (base - share @ base) * x[0] + share @ base + x[1] + centred @ x[2:]
    found = refit(sample, heads, family, factor=True, weights=True)
    np.testing.assert_allclose(logits_under(sample.phi, found, sample.domains, 1)[:, 0], wanted, atol=1e-4)


@pytest.mark.parametrize(("factor", "weights"), BOTH)
@pytest.mark.parametrize("classes", [BINARY, THREE, NUMBER])
@pytest.mark.parametrize("bias", [True, False])
def test_every_family_fits_its_records_better_and_moves_all_heads_alike(classes, factor, weights, bias):
    family = family_of(classes)
    rows = family.form.logits
    sample = sample_of(classes=3 if classes == THREE else 2, slope=2.0, shift=0.7)
    if classes == NUMBER:
        places = ((np.tanh(sample.phi[:, 0]) * 0.4 + 0.6) * 2**19).astype(np.int64)
        sample = Sample(sample.phi, places, sample.domains, sample.counted)
    heads = np.random.default_rng(1).normal(scale=0.3, size=(2, rows * (3 + bias)))
    found = refit(sample, heads, family, factor=factor, weights=weights)
    assert mean_loss(sample, found, family) < mean_loss(sample, heads, family)
    if not factor:
        np.testing.assert_allclose(found[1] - found[0], heads[1] - heads[0], atol=1e-12)
    if not weights:
        ratio = (found / heads).reshape(2, rows, -1)[:, :, :3]
        np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-9)


def test_few_records_move_little_and_none_move_nothing():
    family, heads = family_of(BINARY), np.zeros((2, 4))
    many, few = (refit(sample_of(n, slope=3.0), heads, family, factor=False, weights=True) for n in (2000, 10))
    assert np.abs(few[:, :3]).max() < 0.3 * np.abs(many[:, :3]).max()
    nobody = sample_of(300).rows(np.zeros(300, bool))
    np.testing.assert_array_equal(refit(nobody, heads, family, factor=True, weights=True), heads)


@pytest.mark.parametrize("label", [0, 1])
def test_records_of_one_class_and_constant_features_are_normal(label):
    sample = Sample(np.ones((20, 3)), np.full(20, label), np.zeros(20, np.int64), np.ones(20))
    found = refit(sample, np.zeros((2, 4)), family_of(BINARY), factor=True, weights=True)
    assert np.isfinite(found).all()
    assert (logits_under(sample.phi, found, sample.domains, 1) > 0).all() == bool(label)
