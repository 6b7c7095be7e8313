import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from silo_agent.learning.heads import (
    HESSIAN_SHARE,
    C,
    hessian_noise_sd,
    pack,
    packed_size,
    second_order_sums,
    unpack,
)

K, M = 3, 4


def sums(phi, y, d, p, heads, *, pooled=False, clip=1.0):
    return second_order_sums(
        torch.tensor(np.asarray(phi), dtype=torch.float64),
        np.asarray(y, np.float32),
        np.asarray(d, np.int64),
        np.asarray(p, np.int64),
        heads,
        pooled=pooled,
        clip=clip,
    )


def sample(seed, n, patients=None, k=K):
    r = np.random.default_rng(seed)
    phi = r.normal(size=(n, k))
    phi /= np.maximum(1, np.linalg.norm(phi, axis=1, keepdims=True))
    p = np.arange(n) if patients is None else np.unique(r.integers(0, patients, n), return_inverse=True)[1]
    return phi, (r.random(n) < 0.4).astype(np.float32), r.integers(0, M, n), p, r.normal(size=(M, k + 1)) * 2


def one_patient():
    """Any records of one patient, several domains, features even outside the unit ball, any heads."""
    n = st.shared(st.integers(1, 6), key="n")
    return st.tuples(
        n.flatmap(lambda n: arrays(np.float64, (n, K), elements=st.floats(-3, 3))),
        n.flatmap(lambda n: arrays(np.int64, n, elements=st.integers(0, 1))),
        n.flatmap(lambda n: arrays(np.int64, n, elements=st.integers(0, M - 1))),
        arrays(np.float64, (M, K + 1), elements=st.floats(-20, 20)),
    )


@given(one_patient(), st.booleans())
def test_one_patient_moves_the_packed_statistic_by_at_most_one(patient, pooled):
    phi, y, d, heads = patient
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    vector = pack(*sums(phi, y, d, np.zeros(len(y)), heads, pooled=pooled))
    assert np.linalg.norm(vector) <= 1 + 1e-12


def test_the_bound_is_reached_so_the_hessian_costs_nothing_and_no_more_would_be_free():
    # Wrong-class probability 1 / golden ratio, largest norm.
    w = math.log(1 / (math.sqrt(5) / 2 - 0.5 + 1e-300) - 1)
    heads = np.array([[0.0, 0.0, 0.0, -w]])
    vector = pack(*sums([[1.0, 0.0, 0.0]], [0], [0], [0], heads))
    p = 1 / (1 + math.exp(w))
    assert p == pytest.approx((math.sqrt(5) - 1) / 2)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)
    assert pytest.approx(0.83255, abs=1e-4) == HESSIAN_SHARE


@given(st.integers(0, 1000), st.booleans())
def test_removing_a_patient_changes_the_sum_by_this_patients_statistic_alone(seed, pooled):
    phi, y, d, p, heads = sample(seed, 30, patients=8)
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    gone = p == 0
    rest = np.unique(p[~gone], return_inverse=True)[1]
    whole = pack(*sums(phi, y, d, p, heads, pooled=pooled))
    without = pack(*sums(phi[~gone], y[~gone], d[~gone], rest, heads, pooled=pooled))
    alone = pack(*sums(phi[gone], y[gone], d[gone], p[gone], heads, pooled=pooled))
    np.testing.assert_allclose(whole - without, alone, atol=1e-12)
    assert np.linalg.norm(whole - without) <= 1 + 1e-9


@given(one_patient(), st.booleans(), st.floats(0.01, 1.0))
def test_one_patient_moves_the_clipped_statistic_by_at_most_one(patient, pooled, clip):
    phi, y, d, heads = patient
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    vector = pack(*sums(phi, y, d, np.zeros(len(y)), heads, pooled=pooled, clip=clip))
    assert np.linalg.norm(vector) <= 1 + 1e-12


@given(one_patient(), st.floats(0.01, 1.0))
def test_a_clipped_record_keeps_its_direction(patient, clip):
    phi, y, d, heads = patient
    whole = pack(*sums(phi[:1], y[:1], d[:1], [0], heads))
    clipped = pack(*sums(phi[:1], y[:1], d[:1], [0], heads, clip=clip))
    expected = whole / max(clip, np.linalg.norm(whole))
    np.testing.assert_allclose(clipped, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pooled", [True, False])
def test_sums_are_the_derivatives_of_the_patient_averaged_logistic_loss(pooled):
    phi, y, d, p, heads = sample(1, 40, patients=15)
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    weight = torch.tensor(1.0 / np.bincount(p)[p])
    z = torch.tensor(np.c_[phi, np.ones(len(phi))])
    blocks = 1 if pooled else M

    def loss(w):
        own = w[torch.zeros(len(z), dtype=torch.long) if pooled else torch.tensor(d)]
        terms = torch.nn.functional.binary_cross_entropy_with_logits(
            (z * own).sum(1), torch.tensor(y, dtype=torch.float64), reduction="none"
        )
        return (weight * terms).sum()

    w = torch.tensor(heads[:blocks])
    hessian, gradient = sums(phi, y, d, p, heads, pooled=pooled)
    np.testing.assert_allclose(gradient, torch.func.grad(loss)(w), atol=1e-12)
    full = torch.func.hessian(loss)(w)
    for m in range(blocks):
        np.testing.assert_allclose(hessian[m], full[m, :, m], atol=1e-12)


def test_records_of_one_patient_count_as_their_average():
    phi, y, d, _, heads = sample(2, 5)
    hessian, gradient = sums(phi, y, d, np.zeros(5), heads)
    each = [sums(phi[i : i + 1], y[i : i + 1], d[i : i + 1], [0], heads) for i in range(5)]
    np.testing.assert_allclose(hessian, sum(h for h, _ in each) / 5, atol=1e-14)
    np.testing.assert_allclose(gradient, sum(g for _, g in each) / 5, atol=1e-14)


def test_an_absent_domain_gives_zeros_and_so_do_no_patients_at_all():
    phi, y, _, p, heads = sample(3, 10)
    hessian, gradient = sums(phi, y, np.full(10, 2), p, heads)
    assert not hessian[[0, 1, 3]].any()
    assert not gradient[[0, 1, 3]].any()
    assert hessian[2].any()
    hessian, gradient = sums(np.zeros((0, K)), [], [], [], heads)
    assert hessian.shape == (M, K + 1, K + 1)
    assert not hessian.any()
    assert not gradient.any()


def test_features_that_break_their_promise_are_brought_back():
    heads = np.ones((1, K + 1))
    for phi in ([[np.nan] * K], [[np.inf] * K], [[1e30] * K]):
        vector = pack(*sums(phi, [1], [0], [0], heads))
        assert np.isfinite(vector).all()
        assert np.linalg.norm(vector) <= 1 + 1e-12


def test_pooled_sums_of_different_heads_are_refused():
    phi, y, d, p, heads = sample(4, 5)
    with pytest.raises(ValueError, match="one common head"):
        sums(phi, y, d, p, heads, pooled=True)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_unpack_is_the_inverse_of_pack_and_both_are_linear_isometries(blocks, width, seed):
    r = np.random.default_rng(seed)
    hessian = r.normal(size=(blocks, width, width))
    hessian += hessian.transpose(0, 2, 1)
    gradient = r.normal(size=(blocks, width))
    vector = pack(hessian, gradient)
    assert vector.shape == (packed_size(blocks, width),)
    again = unpack(vector, blocks, width)
    np.testing.assert_allclose(again[0], hessian, atol=1e-12)
    np.testing.assert_allclose(again[1], gradient, atol=1e-12)
    scale = 4 * HESSIAN_SHARE / C**2
    squared = (scale * np.linalg.norm(hessian)) ** 2 + (np.linalg.norm(gradient) / C) ** 2
    assert vector @ vector == pytest.approx(squared)
    np.testing.assert_allclose(pack(3 * hessian, 3 * gradient), 3 * vector)


def test_unpack_refuses_another_length():
    with pytest.raises(ValueError, match="values was expected"):
        unpack(np.zeros(5), 1, 4)


def test_the_noise_of_the_hessian_is_that_of_its_svec():
    r = np.random.default_rng(0)
    hessian, _ = unpack(r.normal(0, 2.0, packed_size(4000, 4)), 4000, 4)
    assert hessian[:, 1, 1].std() == pytest.approx(hessian_noise_sd(2.0), rel=0.06)
    assert hessian[:, 0, 1].std() == pytest.approx(hessian_noise_sd(2.0) / math.sqrt(2), rel=0.06)


def test_float32_features_agree_with_float64():
    phi, y, d, p, heads = sample(5, 200, patients=50)
    single = second_order_sums(torch.tensor(phi, dtype=torch.float32), y, d, p, heads, pooled=False)
    for a, b in zip(single, sums(phi, y, d, p, heads), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert a.dtype == np.float64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: GPU and CPU Hessian sums are not compared")
def test_gpu_and_cpu_sums_agree():
    phi, y, d, p, heads = sample(6, 5000, patients=2000, k=16)
    x = torch.tensor(phi, dtype=torch.float32)
    cpu = second_order_sums(x, y, d, p, heads, pooled=False)
    gpu = second_order_sums(x.cuda(), y, d, p, heads, pooled=False)
    for a, b in zip(cpu, gpu, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
