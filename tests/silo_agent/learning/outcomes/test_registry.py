"""What every family must keep, asked of each: public sizes, links, derivatives, the bound, cells."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import NUMBER
from policies.plan.families import form_of
from silo_agent.learning.encoder.layers import OPERATIONS
from silo_agent.learning.outcomes.family import C
from silo_agent.learning.outcomes.more_classes import Categorical
from silo_agent.learning.outcomes.registry import FAMILIES, family_of
from silo_agent.learning.outcomes.two_classes import Bernoulli

CLASSES = [2, 3, 5]
EVERY = pytest.mark.parametrize("classes", CLASSES)
N = 40


def logits_of(classes, seed=0, n=N):
    rows = form_of(classes).logits
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, rows)) * 2)


def labels_of(classes, n=N):
    return np.arange(n, dtype=np.int64) % classes


def probabilities_of(classes):
    return family_of(classes).probabilities(logits_of(classes).numpy())


def test_a_study_finds_its_family_by_its_classes():
    assert family_of(2) == Bernoulli()
    assert family_of(7) == Categorical(7)


@EVERY
def test_a_family_says_the_public_form_of_its_classes(classes):
    family = family_of(classes)
    assert family.form == form_of(classes)
    assert isinstance(family, type(FAMILIES[family.form.name](classes, 0.5)))
    assert family.operation in OPERATIONS


@EVERY
def test_probabilities_are_the_mean_that_the_sums_use(classes):
    family, logits = family_of(classes), logits_of(classes)
    p = family.probabilities(logits.numpy())
    assert p.shape == (N, classes)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    expected = family.expected(logits)
    np.testing.assert_allclose(expected.mean.numpy(), p[:, classes - family.form.logits :])
    np.testing.assert_allclose(expected.rest.numpy(), 1.0 - p[:, classes - family.form.logits :])


@EVERY
def test_residual_and_curvature_are_the_derivatives_of_the_loss(classes):
    family, logits, labels = family_of(classes), logits_of(classes), torch.tensor(labels_of(classes))
    expected = family.expected(logits)

    def loss(one, label):
        return family.losses(one[None], label[None])[0]

    gradients = torch.stack([torch.func.grad(loss)(one, label) for one, label in zip(logits, labels, strict=True)])
    torch.testing.assert_close(family.residual(expected, labels), gradients)
    curvatures = torch.stack([torch.func.hessian(loss)(one, label) for one, label in zip(logits, labels, strict=True)])
    torch.testing.assert_close(family.curvature_norm(expected), curvatures.flatten(1).norm(dim=1))
    z = torch.tensor(np.random.default_rng(1).normal(size=(N, 3)))
    weight = torch.tensor(np.random.default_rng(2).random(N))
    summed = torch.einsum("n,nab,ni,nj->aibj", weight, curvatures, z, z)
    size = family.form.logits * 3
    torch.testing.assert_close(family.curvature_sum(expected, z, weight), summed.reshape(size, size))


@pytest.mark.parametrize("classes", [*CLASSES, NUMBER])
@given(part=st.floats(1e-3, 1.0))
def test_a_smaller_part_of_the_curvature_changes_its_factor_alone(classes, part):
    family = family_of(classes)
    lighter = family.with_curvature(part)
    assert lighter.hessian_factor == pytest.approx(part * family.hessian_factor)
    assert lighter.gradient_divisor == family.gradient_divisor
    assert lighter.with_curvature(1.0) == family


@EVERY
@given(seed=st.integers(0, 10_000), spread=st.floats(0.1, 50.0))
def test_no_record_is_longer_than_one(classes, seed, spread):
    """The bound that each family proves, at the longest z."""
    family = family_of(classes)
    expected = family.expected(logits_of(classes, seed, 50) * spread)
    residual = family.residual(expected, torch.tensor(labels_of(classes, 50)))
    hessian = family.hessian_factor * C**2 * family.curvature_norm(expected)
    gradient = residual.norm(dim=1) * C / family.gradient_divisor
    assert torch.sqrt(hessian**2 + gradient**2).max().item() <= 1 + 1e-12


@EVERY
def test_directions_that_no_prediction_depends_on_are_taken_out(classes):
    family, width = family_of(classes), form_of(classes).logits * 2
    r = np.random.default_rng(0)
    hessian, gradient = r.normal(size=(1, width, width)), r.normal(size=(1, width))
    h, g = family.centred(hessian, gradient)
    if classes == 2:
        assert h is hessian
        assert g is gradient
        return
    np.testing.assert_allclose(g.reshape(classes, 2).sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(h.reshape(classes, 2, width).sum(axis=0), 0, atol=1e-12)


@EVERY
@pytest.mark.parametrize("bins", [2, 7, 10])
def test_a_right_prediction_lies_in_a_right_cell(classes, bins):
    family, p, labels = family_of(classes), probabilities_of(classes), labels_of(classes)
    edges = family.edges(bins)
    assert edges.shape == (bins + 1,)
    assert (np.diff(edges) > 0).all()
    cell = np.searchsorted(edges[1:-1], family.scores(p), "right") + bins * family.side(p, labels)
    assert cell.max() < family.form.cells_per_bin * bins
    right = family.right_cells(bins)
    assert right.shape == (classes, family.form.cells_per_bin * bins)
    np.testing.assert_array_equal(right[labels, cell] == 1.0, family.decisions(p) == labels)


@EVERY
def test_what_is_no_number_counts_as_undecided(classes):
    family = family_of(classes)
    undecided = np.full((1, classes), 1.0 / classes)
    np.testing.assert_allclose(family.scores(np.full((1, classes), np.nan)), family.scores(undecided))


@EVERY
def test_claims_are_the_probability_of_what_happens(classes):
    """Of outcomes drawn by the probabilities themselves, what is claimed happens as often."""
    family, r = family_of(classes), np.random.default_rng(0)
    p = family.probabilities(logits_of(classes, 1, 20_000).numpy())
    labels = (p.cumsum(axis=1) < r.random((len(p), 1))).sum(axis=1).clip(max=classes - 1)
    happened, claimed = family.claim(p, labels)
    assert set(np.unique(happened)) == {0.0, 1.0}
    assert abs(happened.mean() - claimed.mean()) < 5 / math.sqrt(len(p))


@EVERY
def test_cells_for_calibration_keep_every_patient(classes):
    family, bins = family_of(classes), 4
    cells = np.random.default_rng(0).random((classes, family.form.cells_per_bin * bins))
    pair, summed = family.calibration_cells(cells)
    assert pair.shape == (2 * bins,)
    assert pair.sum() == pytest.approx(cells.sum())
    assert summed == cells.size / pair.size
    edges = family.edges(bins)
    claimed = family.claimed(edges, pair[:bins] + pair[bins:])
    assert claimed.shape == (bins, bins)


def test_an_area_under_the_curve_needs_one_score():
    assert family_of(2).has_auc
    assert not family_of(3).has_auc
