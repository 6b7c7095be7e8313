import itertools

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.linalg import helmert, sqrtm
from scipy.special import log_softmax, softmax
from scipy.stats import entropy, multivariate_normal

from silo_agent.learning.heads import hierarchical
from silo_agent.learning.heads.evidence import Evidence, mixed
from silo_agent.learning.heads.hierarchical import Scale, frame_of, solve
from silo_agent.learning.heads.sums import pack, packed_size, second_order_sums, unpack
from silo_agent.learning.outcomes.registry import family_of

FAMILY = family_of(2)
SCALE = Scale(FAMILY.hessian_factor, FAMILY.gradient_divisor)
M, K = 3, 4


def curvatures(rng, sizes, width=K):
    found = []
    for size in sizes:
        x = rng.normal(size=(size, width)) * np.linspace(1.0, 0.2, width)
        found.append(x.T @ x / 4)
    return np.array(found)


def evidence_of(hessian, heads, *, share=0.3, noise=0.05, rounds=3, rng=None, frame=None, rows=1):
    """Evidence as quadratic losses with their minima at `heads` give it, released at other heads in every round."""
    rng = rng or np.random.default_rng(7)
    count, width = heads.shape
    found = Evidence.start(count, rows, width // rows, share)
    frame = np.eye(width // rows) if frame is None else frame
    across = np.kron(np.eye(rows), frame)
    found = found.turned(frame[np.triu_indices(len(frame))], share)
    for _ in range(rounds):
        at = heads + rng.normal(size=heads.shape) * 0.3
        gradient = np.einsum("mij,mj->mi", hessian, at - heads)
        opened = mixed(across @ hessian @ across, gradient @ across, share)
        noises = [rng.normal(size=part.shape) * noise for part in opened]
        noises[0] = (noises[0] + noises[0].transpose(0, 2, 1)) / 2 / SCALE.hessian_factor
        found = found.plus(opened[0] + noises[0], opened[1] + noises[1] * SCALE.gradient_divisor, at, noise_sd=noise)
    return found


def dense(evidence, rows=1):
    """The same posterior mean from one large Gaussian, without any of the solver's identities."""
    basis = np.kron(helmert(rows) if rows > 1 else np.ones((1, 1)), np.eye(K))
    evidence, rows = evidence.seen_by(basis), max(rows - 1, 1)
    own, pooled = evidence.own, evidence.pooled
    count, width = own.heads.shape
    across = np.kron(np.eye(rows), evidence.frame)
    back = np.linalg.inv(across)
    h = hierarchical._curvature(evidence, SCALE, rows)
    blocks = np.zeros((count * width, count * width))
    for m in range(count):
        blocks[m * width : (m + 1) * width, m * width : (m + 1) * width] = h[m]
    points = (own.heads / own.weight) @ back
    observed = [np.einsum("mij,mj->mi", h, points).ravel() - (own.gradient / own.weight).ravel()]
    design, noise = [np.eye(count * width)], [np.full(count * width, SCALE.gradient_divisor**2 / own.weight)]
    if pooled.weight:
        points = (pooled.heads / pooled.weight) @ back
        observed.append(np.einsum("mij,mj->i", h, points) - pooled.gradient[0] / pooled.weight)
        design.append(np.tile(np.eye(width), (1, count)))
        noise.append(np.full(width, SCALE.gradient_divisor**2 / pooled.weight))
    seen, reads, noise = np.concatenate(observed), np.vstack(design), np.diag(np.concatenate(noise))
    spread = back @ np.kron(np.eye(rows), np.diag([*np.ones(width // rows - 1), 4.0])) @ back
    root = sqrtm(spread).real
    log_weights, means = [], []
    for shape in (spread, root * np.trace(spread) / np.trace(root)):
        for b, a in itertools.product(hierarchical._OWN, hierarchical._SHARED):
            prior = np.kron(a * np.ones((count, count)) + b * np.eye(count), shape)
            mean = reads @ blocks
            covariance = mean @ prior @ mean.T + reads @ blocks @ reads.T + noise
            covariance = (covariance + covariance.T) / 2
            log_weights.append(multivariate_normal.logpdf(seen, cov=covariance) + np.log(0.5 if b == 0 else 0.05))
            means.append((prior @ mean.T @ np.linalg.solve(covariance, seen)).reshape(count, width) @ across @ basis)
    weights = np.exp(np.array(log_weights) - max(log_weights))
    weights /= weights.sum()
    return np.tensordot(weights, np.array(means), 1), weights.reshape(2, -1, len(hierarchical._SHARED))[:, 0].sum()


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("rows", [1, 3])
def test_it_is_the_posterior_of_one_large_gaussian(share, rows):
    rng = np.random.default_rng(3)
    hessian = curvatures(rng, (300, 120, 40), rows * K)
    heads = rng.normal(size=(M, rows * K)) + rng.normal(size=rows * K)
    frame = frame_of(hessian.sum(axis=0), 0.1, rows)
    evidence = evidence_of(hessian, heads, share=share, noise=2.0, frame=frame, rows=rows)
    wanted, one_head = dense(evidence, rows)
    found = solve(evidence, SCALE, rows, share)
    assert found.heads == pytest.approx(wanted, abs=1e-6)
    assert found.share == pytest.approx(share + (0.95 - share) * one_head, abs=1e-6)


def test_equal_domains_get_one_head_and_the_next_release_is_theirs_together():
    rng = np.random.default_rng(5)
    hessian, head = curvatures(rng, (400, 300, 200)), rng.normal(size=K)
    found = solve(evidence_of(hessian, np.tile(head, (M, 1)), noise=1.0), SCALE, 1, 0.3)
    assert found.share > 0.8
    assert np.ptp(found.heads, axis=0).max() < 0.1
    assert found.heads == pytest.approx(np.tile(head, (M, 1)), abs=0.3)


def test_different_domains_keep_their_heads_and_a_small_one_borrows():
    rng = np.random.default_rng(6)
    hessian, centre = curvatures(rng, (40_000, 30_000, 20)), rng.normal(size=K)
    heads = centre + np.array([[1.0], [-1.0], [0.0]]) * rng.normal(size=K)
    found = solve(evidence_of(hessian, heads, noise=5.0), SCALE, 1, 0.3)
    assert found.share == pytest.approx(0.3, abs=0.01)
    assert found.heads[:2] == pytest.approx(heads[:2], abs=0.15)
    alone = np.linalg.norm(found.heads[2])
    assert 0 < alone < 2 * np.linalg.norm(heads), "with its own sums alone it would be noise"


@settings(max_examples=40)
@example(seed=0, noise=1e3, sizes=[0, 0], rows=1).via("noise leaves no positive eigenvalue")
@given(
    seed=st.integers(0, 2**32),
    noise=st.sampled_from([1e-6, 1.0, 1e3]),
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=4),
    rows=st.sampled_from([1, 3]),
)
def test_whatever_was_opened_gives_finite_heads_and_a_share_in_range(seed, noise, sizes, rows):
    """Empty domains, fewer patients than weights, one domain, noise alone."""
    rng = np.random.default_rng(seed)
    hessian = curvatures(rng, sizes, rows * K)
    evidence = evidence_of(hessian, rng.normal(size=(len(sizes), rows * K)) * 30, noise=noise, rng=rng, rows=rows)
    found = solve(evidence, SCALE, rows, 0.3)
    assert np.isfinite(found.heads).all()
    assert 0.3 <= found.share <= hierarchical.MOST_SHARE


@pytest.mark.parametrize("seed", [1, 2])
def test_rare_and_frequent_classes_do_not_drive_each_other_away(seed):
    """Five classes, 500 patients, and noise that hides most of the curvature: heads stay better than none."""
    family, rng, n, inputs = family_of(5).with_curvature(hierarchical.CURVATURE), np.random.default_rng(seed), 500, 20
    phi, domains, weights = rng.normal(size=(n, inputs)) / np.sqrt(inputs), np.arange(n) % M, np.ones(n)
    logits = 3 * phi @ rng.normal(size=(inputs, 5)) + np.array([2.0, 1.0, 0.0, 0.0, -1.5])
    labels = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    scale = Scale(family.hessian_factor, family.gradient_divisor)
    evidence, heads, sd = Evidence.start(M, 5, inputs + 1, 0.8), np.zeros((M, 5 * (inputs + 1))), 6.0
    for _ in range(5):
        given = torch.tensor(phi), labels, domains, weights, heads
        opened = mixed(*second_order_sums(*given, family=family, pooled=False, norm_bound=2.0), 0.8)
        noised = pack(*opened, family) + rng.normal(0, sd, packed_size(M + 1, heads.shape[1]))
        evidence = evidence.plus(*family.centred(*unpack(noised, M + 1, heads.shape[1], family)), heads, sd)
        heads = solve(evidence, scale, 5, 0.8).heads
    said = np.einsum("nk,nrk->nr", np.column_stack([phi, weights]), heads.reshape(M, 5, -1)[domains])
    rates = np.bincount(labels) / n
    assert -log_softmax(said, axis=1)[np.arange(n), labels].mean() < entropy(rates)
    np.testing.assert_allclose(heads.reshape(M, 5, -1).sum(axis=1), 0, atol=1e-9)


def test_a_small_change_of_the_sums_changes_the_heads_little():
    """No choice jumps: two machines that differ in the last bits agree within the grid."""
    rng = np.random.default_rng(8)
    evidence = evidence_of(curvatures(rng, (300, 120, 40)), rng.normal(size=(M, K)), noise=3.0)
    flat = evidence.to_array()
    near = Evidence.from_array(flat * (1 + 1e-12 * rng.normal(size=flat.shape)), M, 1, K)
    assert solve(near, SCALE, 1, 0.3).heads == pytest.approx(solve(evidence, SCALE, 1, 0.3).heads, abs=1e-7)


def test_the_frame_evens_the_curvature_out_and_keeps_its_sum():
    hessian = np.diag([100.0, 10.0, 1.0, 0.01])
    frame = frame_of(hessian, 0.1, 1)
    evened = frame @ hessian @ frame
    assert np.array_equal(frame, frame.T)
    assert np.trace(evened) == pytest.approx(np.trace(hessian), rel=0.01)
    assert evened[0, 0] / evened[1, 1] < 3 < hessian[0, 0] / hessian[1, 1]
    assert frame[3, 3] / frame[2, 2] < 1.1, "a rare code is not stretched"
    assert np.isfinite(frame_of(np.zeros((4, 4)), 0.0, 1)).all()
    assert frame_of(np.kron(np.eye(2), hessian), 0.1, 2) == pytest.approx(frame)


@pytest.mark.parametrize("bias", [True, False])
def test_without_a_bias_no_coordinate_is_special(bias):
    rng, order = np.random.default_rng(4), np.array([3, 1, 0, 2])
    hessian, heads = curvatures(rng, (40, 30, 20)), rng.normal(size=(M, K))
    turned = hessian[:, order][:, :, order], heads[:, order]
    kept, moved = (
        solve(evidence_of(*own, noise=1e-9), SCALE, 1, 0.3, bias=bias).heads for own in ((hessian, heads), turned)
    )
    assert np.allclose(kept[:, order], moved, atol=1e-6) is not bias
