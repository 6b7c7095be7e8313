import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.special import softmax

from policies.documents.study import NUMBER
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import record_weights
from silo_agent.learning.heads import sums as module
from silo_agent.learning.heads.evidence import mixed
from silo_agent.learning.heads.sums import hessian_noise_sd as noise_for
from silo_agent.learning.heads.sums import pack as pack_for
from silo_agent.learning.heads.sums import packed_size, rounding_slack, second_order_sums
from silo_agent.learning.heads.sums import unpack as unpack_for
from silo_agent.learning.outcomes.family import C
from silo_agent.learning.outcomes.more_classes import SHARE as SOFTMAX_SHARE
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.outcomes.two_classes import SHARE as HESSIAN_SHARE

K, M = 3, 4
MANY = (3, 4, 7)


def pack(hessian, gradient, classes=2):
    return pack_for(hessian, gradient, family_of(classes))


def unpack(vector, blocks, width, classes=2):
    return unpack_for(vector, blocks, width, family_of(classes))


def centred(hessian, gradient, classes):
    return family_of(classes).centred(hessian, gradient)


def hessian_noise_sd(sd, classes):
    return noise_for(sd, family_of(classes))


def family_for(phi, heads):
    """By the rows of a head; one stands for two classes."""
    return family_of(max(heads.shape[1] // (phi.shape[1] + 1), 2))


def sums(phi, y, d, p, heads, *, pooled=False, clip=1.0, blind=False):
    phi = np.asarray(phi, np.float64)
    return second_order_sums(
        torch.tensor(phi),
        np.asarray(y, np.int64),
        np.asarray(d, np.int64),
        record_weights(np.asarray(p, np.int64)),
        heads,
        family=family_for(phi, heads),
        pooled=pooled,
        clip=clip,
        blind=blind,
    )


def sample(seed, n, patients=None, k=K, classes=2):
    r = np.random.default_rng(seed)
    phi = r.normal(size=(n, k))
    phi /= np.maximum(1, np.linalg.norm(phi, axis=1, keepdims=True))
    p = np.arange(n) if patients is None else np.unique(r.integers(0, patients, n), return_inverse=True)[1]
    rows = 1 if classes == 2 else classes
    y = (r.random(n) < 0.4).astype(np.int64) if classes == 2 else r.integers(0, classes, n)
    return phi, y, r.integers(0, M, n), p, r.normal(size=(M, rows * (k + 1))) * 2


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


@given(one_patient(), st.booleans(), st.floats(0.01, 1.0), st.booleans())
def test_one_patient_moves_the_clipped_statistic_by_at_most_one(patient, pooled, clip, blind):
    phi, y, d, heads = patient
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    vector = pack(*sums(phi, y, d, np.zeros(len(y)), heads, pooled=pooled, clip=clip, blind=blind))
    assert np.linalg.norm(vector) <= 1 + 1e-12


LONG = 3.0
"""Norm bound of features that are cut even at a clip of 1."""


def long_sums(family, labels, *, seed, blind, clip=1.0, n=60):
    """Sums of records that are longer than the clip, of any labels, and the records' weights in units of the clip."""
    r = np.random.default_rng(seed)
    phi, heads = r.uniform(-1.5, 1.5, (n, K)), r.normal(size=(1, family.form.logits * (K + 1)))
    return second_order_sums(
        torch.tensor(phi),
        labels,
        np.zeros(n, np.int64),
        np.ones(n),
        heads,
        family=family,
        pooled=True,
        clip=clip,
        blind=blind,
        norm_bound=LONG,
    )


def any_labels(family, seed, n=60):
    """Outcomes of all kinds, ends included."""
    most = family.form.logits if family.form.logits > 1 else 2
    if family == family_of(NUMBER):
        return np.random.default_rng(seed).choice([0, TARGET_STEPS // 3, TARGET_STEPS], n)
    return np.random.default_rng(seed).integers(0, most, n)


@pytest.mark.parametrize("clip", [1.0, 0.3])
@pytest.mark.parametrize("classes", [2, 3, 7, NUMBER])
def test_what_an_outcome_blind_clip_cuts_does_not_depend_on_outcomes(classes, clip):
    """The curvature is weighed as the gradient is. By a term's own length it differs with the outcomes."""
    family = family_of(classes)
    first, second = (any_labels(family, seed) for seed in (1, 2))
    blind, again = (long_sums(family, y, seed=5, blind=True, clip=clip)[0] for y in (first, second))
    np.testing.assert_array_equal(blind, again)
    own, other = (long_sums(family, y, seed=5, blind=False, clip=clip)[0] for y in (first, second))
    assert np.abs(own - other).max() > 1e-3
    assert np.trace(blind[0]) < min(np.trace(own[0]), np.trace(other[0])), "terms only get shorter"


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
def test_a_record_with_the_worst_outcome_is_cut_as_by_its_own_length(classes):
    family = family_of(classes)
    r = np.random.default_rng(5)
    phi, heads = r.uniform(-1.5, 1.5, (60, K)), r.normal(size=(1, family.form.logits * (K + 1)))
    rows = torch.tensor(heads.reshape(family.form.logits, K + 1))
    z = torch.cat([torch.tensor(phi), torch.ones(60, 1, dtype=torch.float64)], dim=1)
    labels = family.farthest(family.expected(z @ rows.T)).numpy()
    blind, own = (long_sums(family, labels, seed=5, blind=way) for way in (True, False))
    for one, other in zip(blind, own, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("blind", [True, False])
def test_at_the_true_heads_an_outcome_blind_gradient_is_zero_in_the_mean(blind):
    """Of a rare yes or no in a long column: the clip by a term's own length pulls its weight down."""
    r = np.random.default_rng(0)
    n = 200_000
    x = np.column_stack([r.uniform(-2, 2, n), np.where(r.random(n) < 0.1, 2.0, -2.0)])
    truth = np.array([[0.6, 0.0, -2.0]])
    p = 1 / (1 + np.exp(-(x @ truth[0, :2] + truth[0, 2])))
    _, gradient = second_order_sums(
        torch.tensor(x),
        (r.random(n) < p).astype(np.int64),
        np.zeros(n, np.int64),
        np.ones(n),
        truth,
        family=family_of(2),
        pooled=True,
        blind=blind,
        norm_bound=LONG,
    )
    bias = np.abs(gradient[0]).max() / math.sqrt(n)
    assert (bias < 2.0) == blind, bias


@given(one_patient(), st.booleans(), st.floats(0.01, 1.0), st.floats(0, 0.99), st.floats(1e-3, 1e3))
def test_one_patient_moves_the_statistic_by_at_most_one_in_any_frame(patient, pooled, clip, share, stretch):
    """Raw inputs are longer than 1, a frame stretches them, and the domains' sum stands beside the domains."""
    phi, y, d, heads = patient
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    turn = np.linalg.qr(np.vander([0.3, -0.8, 1.7, 0.9]))[0]
    frame = (turn * np.array([stretch, 1.0, 0.1, 3.0])) @ turn.T
    opened = second_order_sums(
        torch.tensor(phi),
        y,
        d,
        record_weights(np.zeros(len(y), np.int64)),
        heads,
        family=family_of(2),
        pooled=pooled,
        clip=clip,
        frame=frame,
        norm_bound=4.0,
    )
    vector = pack(*(opened if pooled else mixed(*opened, share)))
    assert np.linalg.norm(vector) <= 1 + 1e-12


@pytest.mark.parametrize("classes", [2, 3])
def test_sums_in_a_frame_are_those_of_the_turned_features(classes):
    """H and g become A H A and A g where nothing is clipped, and the logits stay."""
    phi, y, d, p, heads = sample(4, 50, classes=classes)
    frame = np.diag([0.5, 0.2, 0.4, 0.3])
    given = torch.tensor(phi), y, d, record_weights(p), heads
    plain = second_order_sums(*given, family=family_of(classes), pooled=False)
    framed = second_order_sums(*given, family=family_of(classes), pooled=False, frame=frame)
    across = np.kron(np.eye(1 if classes == 2 else classes), frame)
    assert framed[0] == pytest.approx(across @ plain[0] @ across)
    assert framed[1] == pytest.approx(plain[1] @ across)


def without(lost, records, heads, *, classes, pooled):
    """The packed sums of all records, each of a patient of its own, and of those alone that are not lost."""
    return [
        pack(*sums(*(part[kept] for part in records), np.arange(kept.sum()), heads, pooled=pooled), classes)
        for kept in (np.ones_like(lost), ~lost)
    ]


@pytest.mark.parametrize("classes", MANY)
@pytest.mark.parametrize("pooled", [False, True])
def test_a_record_whose_logits_overflow_counts_as_zero(classes, pooled):
    phi, y, d, _, heads = sample(3, 30, classes=classes)
    lost = np.arange(30) % 3 == 0
    phi[:, 0] = np.where(lost, 0.5, -0.5)
    phi[:, 1:] *= 0.5
    heads = np.tile(heads[0], (M, 1))
    heads[:, 0], heads[:, K] = 1.7e308, 1.7e308
    whole, rest = without(lost, (phi, y, d), heads, classes=classes, pooled=pooled)
    assert np.linalg.norm(rest) > 1.0
    slack = rounding_slack(len(y), len(y), heads.shape[1])
    assert np.linalg.norm(whole - rest) <= slack < 1e-11, "rounding alone: the order of additions is left open"


@pytest.mark.parametrize("run", [1, 2, 4, 8, 16, 32])
def test_a_record_whose_logit_is_no_number_counts_as_zero(run):
    """Of two classes: a sum that overflows to both sides at once, which the order of additions decides."""
    k = 64
    phi, y, d, _, heads = sample(3, 30, k=k)
    lost = np.arange(30) % 3 == 0
    phi[lost] = np.where(np.arange(k) // run % 2, -1.0, 1.0) / np.sqrt(k)
    phi[~lost] = np.eye(k)[: (~lost).sum()] * 0.5
    heads[:, :k], heads[:, k] = 1.7e308, 0.0
    z = np.column_stack([phi, np.ones(30)])
    logits = (torch.tensor(z) * torch.tensor(heads)[torch.tensor(d)]).sum(dim=1)
    whole, rest = without(torch.isnan(logits).numpy(), (phi, y, d), heads, classes=2, pooled=False)
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(whole, rest, rtol=1e-12)


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


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
@pytest.mark.parametrize("pooled", [True, False])
def test_without_a_bias_the_sums_are_those_of_the_features_alone_and_smaller(classes, pooled):
    """A bias of 0 leaves the logits, so what is left of the sums without it is the same; no term reaches 1."""
    phi, y, d, p, _ = sample(2, 12, classes=max(classes, 2))
    family = family_of(classes)
    rows = family.form.logits
    heads = np.tile(np.random.default_rng(3).normal(size=(rows, K)), (M, 1, 1)) * 2
    padded = np.concatenate([heads, np.zeros((M, rows, 1))], axis=2)
    given = torch.tensor(phi), y, d, record_weights(p)
    slim, whole = (
        second_order_sums(*given, own.reshape(M, -1), family=family, pooled=pooled) for own in (heads, padded)
    )
    kept = np.flatnonzero(np.arange(rows * (K + 1)) % (K + 1) < K)
    np.testing.assert_allclose(slim[0], whole[0][:, kept][:, :, kept], atol=1e-12)
    np.testing.assert_allclose(slim[1], whole[1][:, kept], atol=1e-12)
    one = second_order_sums(*(part[:1] for part in given), heads.reshape(M, -1), family=family, pooled=pooled)
    assert np.linalg.norm(pack_for(*one, family)) <= math.sqrt(0.5) + 1e-12


def test_pooled_sums_of_different_heads_are_refused():
    phi, y, d, p, heads = sample(4, 5)
    with pytest.raises(ValueError, match="one common head"):
        sums(phi, y, d, p, heads, pooled=True)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1), st.sampled_from([2, 3, 9]))
def test_unpack_is_the_inverse_of_pack_and_both_are_linear_isometries(blocks, width, seed, classes):
    r = np.random.default_rng(seed)
    hessian = r.normal(size=(blocks, width, width))
    hessian += hessian.transpose(0, 2, 1)
    gradient = r.normal(size=(blocks, width))
    vector = pack(hessian, gradient, classes)
    assert vector.shape == (packed_size(blocks, width),)
    again = unpack(vector, blocks, width, classes)
    np.testing.assert_allclose(again[0], hessian, atol=1e-12)
    np.testing.assert_allclose(again[1], gradient, atol=1e-12)
    scale, divisor = (4 * HESSIAN_SHARE / C**2, C) if classes == 2 else (2 * SOFTMAX_SHARE / C**2, math.sqrt(2) * C)
    squared = (scale * np.linalg.norm(hessian)) ** 2 + (np.linalg.norm(gradient) / divisor) ** 2
    assert vector @ vector == pytest.approx(squared)
    np.testing.assert_allclose(pack(3 * hessian, 3 * gradient, classes), 3 * vector)
    # The triangles of all domains come first.
    assert np.array_equal(vector[-blocks * width :], (gradient / divisor).ravel())


def test_unpack_refuses_another_length():
    with pytest.raises(ValueError, match="values was expected"):
        unpack(np.zeros(5), 1, 4)


def test_the_noise_of_the_hessian_is_that_of_its_svec():
    r = np.random.default_rng(0)
    hessian, _ = unpack(r.normal(0, 2.0, packed_size(4000, 4)), 4000, 4)
    sd = hessian_noise_sd(2.0, classes=2)
    assert hessian[:, 1, 1].std() == pytest.approx(sd, rel=0.06)
    assert hessian[:, 0, 1].std() == pytest.approx(sd / math.sqrt(2), rel=0.06)
    hessian, gradient = unpack(r.normal(0, 2.0, packed_size(4000, 6)), 4000, 6, classes=3)
    assert hessian[:, 1, 1].std() == pytest.approx(hessian_noise_sd(2.0, classes=3), rel=0.06)
    assert gradient.std() == pytest.approx(2.0 * math.sqrt(2) * C, rel=0.06)


@pytest.mark.parametrize("classes", [2, 5])
def test_float32_features_agree_with_float64(classes):
    phi, y, d, p, heads = sample(5, 200, patients=50, classes=classes)
    single = second_order_sums(
        torch.tensor(phi, dtype=torch.float32), y, d, record_weights(p), heads, family=family_of(classes), pooled=False
    )
    for a, b in zip(single, sums(phi, y, d, p, heads), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert a.dtype == np.float64


# --- more than two classes --------------------------------------------------------------------------------------------
def records_of_one_patient():
    """As `one_patient`, with 3 to 7 classes and heads so large that probabilities come to lie on simplex edges."""
    n = st.shared(st.integers(1, 5), key="n")
    classes = st.shared(st.sampled_from(MANY), key="classes")
    return st.tuples(
        n.flatmap(lambda n: arrays(np.float64, (n, K), elements=st.floats(-3, 3))),
        st.tuples(n, classes).flatmap(lambda t: arrays(np.int64, t[0], elements=st.integers(0, t[1] - 1))),
        n.flatmap(lambda n: arrays(np.int64, n, elements=st.integers(0, M - 1))),
        classes.flatmap(lambda c: arrays(np.float64, (M, c * (K + 1)), elements=st.floats(-30, 30))),
        classes,
    )


@given(records_of_one_patient(), st.booleans(), st.sampled_from([1.0, 0.6, 0.05]), st.booleans())
@settings(max_examples=300)
def test_one_patient_moves_the_softmax_statistic_by_at_most_one(patient, pooled, clip, blind):
    phi, y, d, heads, classes = patient
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    vector = pack(*sums(phi, y, d, np.zeros(len(y)), heads, pooled=pooled, clip=clip, blind=blind), classes)
    assert np.linalg.norm(vector) <= 1 + 1e-12


def joint_norms(p, y):
    """Norm of one record's packed term at ||z|| = C for probabilities p (n, C) and the class y, by the definition."""
    s = np.einsum("nc,cd->ncd", p, np.eye(p.shape[1])) - p[:, :, None] * p[:, None, :]
    error = p - np.eye(p.shape[1])[y]
    return np.sqrt((2 * SOFTMAX_SHARE) ** 2 * (s**2).sum(axis=(1, 2)) + (error**2).sum(axis=1) / 2)


@pytest.mark.parametrize("classes", [3, 4, 5, 9, 30])
@pytest.mark.parametrize("concentration", [0.02, 0.1, 0.5, 2.0])
def test_no_probabilities_break_the_bound(classes, concentration):
    p = np.random.default_rng(classes).dirichlet(np.full(classes, concentration), 4000)
    assert joint_norms(p, 0).max() <= 1 + 1e-12


@pytest.mark.parametrize("classes", [3, 4, 6])
def test_no_probabilities_that_are_searched_for_break_the_bound(classes):
    r = np.random.default_rng(0)
    best = 0.0
    for _ in range(30):
        found = minimize(lambda t: -joint_norms(softmax(t)[None], 0)[0], r.normal(size=classes) * 3, method="BFGS")
        best = max(best, -found.fun)
    assert best <= 1 + 1e-9
    assert best > 1 - 1e-3, "the search must come near the bound, or it shows nothing"


def test_the_softmax_bound_is_reached_where_two_wrong_classes_share_the_probability():
    p = np.array([[0.0, 0.5, 0.5]])
    assert joint_norms(p, 0) == pytest.approx(1, abs=1e-12)
    heads = np.zeros((1, 3 * (K + 1)))
    heads[0, K] = -60.0
    vector = pack(*sums([[1.0, 0.0, 0.0]], [0], [0], [0], heads), 3)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("classes", [3, 5])
def test_softmax_sums_are_the_derivatives_of_the_patient_averaged_loss(pooled, classes):
    phi, y, d, p, heads = sample(1, 40, patients=15, classes=classes)
    if pooled:
        heads = np.tile(heads[0], (M, 1))
    weight = torch.tensor(1.0 / np.bincount(p)[p])
    z = torch.tensor(np.c_[phi, np.ones(len(phi))])
    blocks = 1 if pooled else M

    def loss(w):
        own = w[torch.zeros(len(z), dtype=torch.long) if pooled else torch.tensor(d)].view(len(z), classes, K + 1)
        logits = (own * z[:, None, :]).sum(2)
        return (weight * torch.nn.functional.cross_entropy(logits, torch.tensor(y), reduction="none")).sum()

    w = torch.tensor(heads[:blocks])
    hessian, gradient = sums(phi, y, d, p, heads, pooled=pooled)
    np.testing.assert_allclose(gradient, torch.func.grad(loss)(w), atol=1e-12)
    full = torch.func.hessian(loss)(w)
    for m in range(blocks):
        np.testing.assert_allclose(hessian[m], full[m, :, m], atol=1e-12)


@given(records_of_one_patient(), st.floats(0.01, 1.0))
def test_a_clipped_softmax_record_keeps_its_direction(patient, clip):
    phi, y, d, heads, classes = patient
    whole = pack(*sums(phi[:1], y[:1], d[:1], [0], heads), classes)
    clipped = pack(*sums(phi[:1], y[:1], d[:1], [0], heads, clip=clip), classes)
    np.testing.assert_allclose(clipped, whole / max(clip, np.linalg.norm(whole)), rtol=1e-7, atol=1e-12)


def test_chunks_change_nothing(monkeypatch):
    phi, y, d, p, heads = sample(2, 300, patients=120, classes=5)
    whole = sums(phi, y, d, p, heads, clip=0.4)
    monkeypatch.setattr(module, "_CHUNK", 150)
    for a, b in zip(sums(phi, y, d, p, heads, clip=0.4), whole, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_with_a_third_class_out_of_reach_it_is_the_binary_head():
    phi, y, d, p, heads = sample(3, 60, patients=25)
    unlikely = np.zeros_like(heads)
    unlikely[:, -1] = -80.0
    rows = np.hstack([np.zeros_like(heads), heads, unlikely])
    hessian, gradient = sums(phi, y, d, p, heads)
    twice, both = sums(phi, y, d, p, rows)
    k = K + 1
    np.testing.assert_allclose(both, np.hstack([-gradient, gradient, 0 * gradient]), atol=1e-12)
    np.testing.assert_allclose(twice[:, k : 2 * k, k : 2 * k], hessian, atol=1e-12)
    np.testing.assert_allclose(twice[:, :k, k : 2 * k], -hessian, atol=1e-12)
    np.testing.assert_allclose(twice[:, 2 * k :], 0, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_centring_takes_noise_away_and_leaves_true_sums_alone(classes):
    phi, y, d, p, heads = sample(4, 80, classes=classes)
    true = sums(phi, y, d, p, heads)
    for a, b in zip(centred(*true, classes=classes), true, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    if classes == 2:
        return
    r = np.random.default_rng(0)
    noise = r.normal(size=true[0].shape)
    hessian, gradient = centred(noise + noise.transpose(0, 2, 1), r.normal(size=true[1].shape), classes=classes)
    common = np.kron(np.ones(classes), np.eye(K + 1))
    np.testing.assert_allclose(hessian @ common.T, 0, atol=1e-12)
    np.testing.assert_allclose(gradient @ common.T, 0, atol=1e-12)
    np.testing.assert_allclose(hessian, hessian.transpose(0, 2, 1), atol=1e-12)
    again = centred(hessian, gradient, classes=classes)
    np.testing.assert_allclose(again[0], hessian, atol=1e-12)


def test_heads_that_do_not_fit_the_features_are_refused():
    phi, y, d, p, _ = sample(4, 5)
    with pytest.raises(ValueError, match="do not fit"):
        sums(phi, y, d, p, np.zeros((M, 7)))


def test_absent_domains_and_nobody_give_softmax_zeros():
    phi, y, _, p, heads = sample(3, 10, classes=3)
    hessian, gradient = sums(phi, y, np.full(10, 2), p, heads)
    assert not hessian[[0, 1, 3]].any()
    assert hessian[2].any()
    hessian, gradient = sums(np.zeros((0, K)), [], [], [], heads)
    assert hessian.shape == (M, 3 * (K + 1), 3 * (K + 1))
    assert not hessian.any()
    assert not gradient.any()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: GPU and CPU Hessian sums are not compared")
@pytest.mark.parametrize("classes", [2, 10])
def test_gpu_and_cpu_sums_agree(classes):
    phi, y, d, p, heads = sample(6, 5000, patients=2000, k=16, classes=classes)
    x = torch.tensor(phi, dtype=torch.float32)
    family = family_of(classes)
    cpu = second_order_sums(x, y, d, record_weights(p), heads, family=family, pooled=False)
    gpu = second_order_sums(x.cuda(), y, d, record_weights(p), heads, family=family, pooled=False)
    for a, b in zip(cpu, gpu, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def moved_by(records, heads, frame, family, *, clip, share):
    """How far one patient moves a domain round that is whitened."""
    phi, labels, domains = records
    opened = second_order_sums(
        torch.tensor(phi),
        labels,
        domains,
        record_weights(np.zeros(len(labels), np.int64)),
        heads,
        family=family,
        pooled=False,
        clip=clip,
        frame=frame,
        norm_bound=2.0,
    )
    return float(np.linalg.norm(pack_for(*mixed(*opened, share), family)))


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, NUMBER])
@pytest.mark.parametrize("clip", [1.0, 0.2])
def test_a_search_for_the_worst_patient_of_a_whitened_round_finds_one_and_no_more(classes, clip):
    """Coordinate search over features, heads, frame and share, from several starts. It comes close to the bound."""
    family, rng = family_of(classes), np.random.default_rng(classes)
    width, found = family.form.logits * (K + 1), []
    sizes = (2 * K, M * width, K + 1, 1)
    for _ in range(2):
        labels = np.zeros(2, np.int64)
        domains = rng.integers(0, M, 2)

        def worst(values, labels=labels, domains=domains):
            phi, heads, stretch, share = np.split(values, np.cumsum(sizes)[:-1])
            frame = np.diag(np.exp(np.clip(stretch, -5, 5)))
            split = 1 / (1 + np.exp(-share[0]))
            records = phi.reshape(2, K), labels, domains
            return moved_by(records, heads.reshape(M, width), frame, family, clip=clip, share=split)

        at, step = rng.normal(size=sum(sizes)), 1.0
        best = worst(at)
        for _ in range(150):
            tried = at + step * rng.normal(size=len(at)) * (rng.random(len(at)) < 0.3)
            value = worst(tried)
            at, best, step = (tried, value, 1.3 * step) if value > best else (at, best, 0.97 * step)
        found.append(best)
    assert max(found) <= 1 + 1e-9
    assert max(found) > 0.95


@pytest.mark.parametrize("bias", [False, True])
def test_features_beyond_the_bound_are_shortened_to_it_and_all_others_stay(bias):
    features = torch.tensor([[3.0, 4.0], [1.2, 1.6], [0.3, -0.4], [0.0, 0.0], [math.nan, math.inf]])
    found = module._bounded(features, 2.0, bias=bias)
    whole = torch.tensor([[1.2, 1.6], [1.2, 1.6], [0.3, -0.4], [0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(found[:, :2], whole, rtol=1e-6, atol=0.0)
    assert found[:, 2:].tolist() == [[1.0]] * 5 if bias else found.shape == (5, 2)
