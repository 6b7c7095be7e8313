"""FedDAR's Eq. 8 and what it becomes where curvatures are singular, domains are empty or patients few."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.documents.study import HeadPlan
from silo_agent.learning.heads import hessian_average, newton
from silo_agent.learning.heads.local_steps import local_heads
from silo_agent.learning.heads.sums import second_order_sums
from silo_agent.learning.outcomes.registry import family_of

M = 3


def plan(**changes):
    return HeadPlan(**({"pooled_noise": 0, "domain_noise": 0, "max_step": 50.0, "ridge": 0.0, "steps": 10} | changes))


def patients(rng, count, k, *, domains=M):
    phi = rng.normal(size=(count, k))
    phi /= np.maximum(1.0, np.linalg.norm(phi, axis=1, keepdims=True))
    return phi, (rng.random(count) < 0.4).astype(np.int64), rng.integers(0, domains, count)


def sums_of(phi, labels, domains):
    def sums(heads):
        ones = np.ones(len(labels))
        return second_order_sums(
            torch.tensor(phi), labels, domains, ones, heads, family=family_of(2), pooled=False, norm_bound=1.0
        )

    return sums


def averaged(silos, heads, plan):
    """The next heads, as silos and their sum give them."""
    sent = [hessian_average.statistic(sums_of(*own), heads, plan) for own in silos]
    opened = hessian_average.opened(sum(one for one, _ in sent), sum(one for _, one in sent), plan)
    return newton.solve(heads, *opened, 0.0, plan, pooled=False)


def repeated(own, times):
    return tuple(np.concatenate([part] * times) for part in own)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4))
def test_the_sum_gives_local_heads_weighted_by_their_hessians(seed, count, k):
    rng = np.random.default_rng(seed)
    silos = [patients(rng, 60, k) for _ in range(count)]
    heads = rng.normal(size=(M, k + 1))
    local = [local_heads(sums_of(*own), heads, plan()) for own in silos]
    hessians = [sums_of(*own)(at)[0] for own, at in zip(silos, local, strict=True)]
    weighted = sum(np.einsum("dij,dj->di", h, at) for h, at in zip(hessians, local, strict=True))
    wanted = np.linalg.solve(sum(hessians), weighted[..., None])[..., 0]
    np.testing.assert_allclose(averaged(silos, heads, plan()), wanted, rtol=1e-5, atol=1e-7)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_converged_heads_of_quadratic_losses_give_newtons_step_at_the_common_head(seed, count):
    """Whoever has which patients: it is the pooled least squares."""
    rng = np.random.default_rng(seed)
    designs = [rng.normal(size=(12, 3)) for _ in range(count)]
    answers = [rng.normal(size=12) for _ in range(count)]
    heads, steps = rng.normal(size=(1, 3)), plan(steps=1000, learning_rate=1.5)
    sent = []
    for x, y in zip(designs, answers, strict=True):
        sums = lambda w, x=x, y=y: ((x.T @ x)[None], (w @ x.T - y) @ x)  # noqa: E731
        sent.append(hessian_average.statistic(sums, heads, steps))
    opened = hessian_average.opened(sum(one for one, _ in sent), sum(one for _, one in sent), steps)
    wanted = np.linalg.lstsq(np.vstack(designs), np.concatenate(answers), rcond=None)[0]
    np.testing.assert_allclose(newton.solve(heads, *opened, 0.0, steps, pooled=False)[0], wanted, atol=1e-4)


def test_one_silo_alone_gets_its_own_heads():
    rng = np.random.default_rng(1)
    own, heads = patients(rng, 200, 3), rng.normal(size=(M, 4))
    wanted = local_heads(sums_of(*own), heads, plan())
    np.testing.assert_allclose(averaged([own], heads, plan()), wanted, atol=1e-8)


def test_an_empty_domain_keeps_its_head_and_a_silo_without_it_changes_nothing():
    rng = np.random.default_rng(2)
    with_two, only_first = patients(rng, 100, 3, domains=2), patients(rng, 50, 3, domains=1)
    heads = rng.normal(size=(M, 4))
    found = averaged([with_two, only_first], heads, plan())
    np.testing.assert_array_equal(found[2], heads[2])
    np.testing.assert_allclose(found[1], averaged([with_two], heads, plan())[1], atol=1e-9)
    assert np.abs(found[0] - averaged([with_two], heads, plan())[0]).max() > 1e-3


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.integers(2, 5), st.floats(0, 0.1))
def test_every_patient_several_times_gives_the_same_heads(seed, times, ridge):
    rng = np.random.default_rng(seed)
    silos, heads = [patients(rng, 60, 2) for _ in range(3)], rng.normal(size=(M, 3))
    doubled = averaged([repeated(own, times) for own in silos], heads, plan(ridge=ridge))
    np.testing.assert_allclose(averaged(silos, heads, plan(ridge=ridge)), doubled, rtol=1e-6, atol=1e-8)


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.sampled_from([8, 40]), st.floats(-1e4, 1e4))
def test_wide_heads_of_few_patients_and_extreme_logits_stay_within_the_trust_region(seed, k, size):
    """The curvature is singular: more weights than patients, or every probability 0 or 1."""
    rng = np.random.default_rng(seed)
    silos, heads = [patients(rng, 5, k) for _ in range(3)], size * rng.normal(size=(M, k + 1))
    found = averaged(silos, heads, plan(max_step=8.0, ridge=1e-3))
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - heads, axis=1).max() <= 8.0 * (1 + 1e-9)


def test_a_direction_that_no_patient_has_keeps_what_the_head_had_there():
    rng = np.random.default_rng(3)
    phi, labels, domains = patients(rng, 90, 4)
    phi[:, 2:] = 0.0
    heads = rng.normal(size=(M, 5))
    found = averaged([(phi, labels, domains)], heads, plan())
    np.testing.assert_allclose(found[:, 2:4], heads[:, 2:4], atol=1e-5)
    assert np.abs(found - heads).max() > 0.1


def test_the_ridge_holds_a_mean_that_would_lie_far_outside_of_the_heads():
    """Two silos see nearly the same direction, and want different things of it: 1 and -1 in all."""
    seen = np.array([[1.0, 0.0], [np.cos(0.01), np.sin(0.01)]])
    curvature = sum(np.outer(a, a) for a in seen)[None]
    pull = -(seen[0] - seen[1])[None] / 8.0
    free, held = (
        newton.solve(np.zeros((1, 2)), *hessian_average.opened(curvature, pull, own), 0.0, own, pooled=False)
        for own in (plan(ridge=0.0, max_step=8.0), plan(ridge=1e-2, max_step=8.0))
    )
    assert np.linalg.norm(free) == 8.0, "only the trust region ends it"
    assert np.linalg.norm(held) < 2.0


def test_the_ridge_is_its_part_of_the_mean_eigenvalue_and_the_pull_comes_back_from_its_unit():
    rng = np.random.default_rng(4)
    curvature, pull = rng.normal(size=(2, 3, 3)), rng.normal(size=(2, 3))
    held, back = hessian_average.opened(curvature, pull, plan(ridge=0.5, max_step=8.0))
    for own, before in zip(held, curvature, strict=True):
        np.testing.assert_allclose(own, before + 0.5 * np.trace(before) / 3 * np.eye(3))
    np.testing.assert_allclose(back, 8.0 * pull)
    sent, unit = hessian_average.weighed(lambda at: (curvature, at), pull, np.zeros((2, 3)), plan(max_step=8.0))
    assert sent is curvature
    np.testing.assert_allclose(unit, [h @ w / 8.0 for h, w in zip(curvature, pull, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("k", [16, 64, 128])
def test_wide_heads_get_better_from_round_to_round(k):
    """From k = 64 on there are more weights than patients of a domain, and most patients can be separated."""
    rng = np.random.default_rng(k)
    truth = 6.0 * rng.normal(size=(M, k + 1))
    silos = []
    for _ in range(4):
        phi, _, domains = patients(rng, 60, k)
        logits = np.hstack([phi, np.ones((60, 1))]) * truth[domains]
        silos.append((phi, (rng.random(60) < 1 / (1 + np.exp(-logits.sum(axis=1)))).astype(np.int64), domains))
    phi, labels, domains = (np.concatenate(parts) for parts in zip(*silos, strict=True))
    heads, losses = np.zeros((M, k + 1)), [np.log(2.0)]
    for _ in range(5):
        heads = averaged(silos, heads, plan(max_step=8.0, ridge=1e-3, steps=20))
        logits = (np.hstack([phi, np.ones((len(phi), 1))]) * heads[domains]).sum(axis=1)
        losses.append(float(np.mean(np.logaddexp(0.0, logits) - labels * logits)))
    assert np.isfinite(heads).all()
    assert np.linalg.norm(heads, axis=1).max() <= 5 * 8.0
    assert (np.diff(losses) < 0).all(), losses
