import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.study import Study
from policies.plan import shapes
from silo_agent.learning.heads.evidence import Evidence, mixed
from support.studies import tiny_document, tiny_study

M, R, K = 3, 2, 4
W = R * K


def symmetric(rng, blocks):
    raw = rng.normal(size=(blocks, W, W))
    return raw + raw.transpose(0, 2, 1)


def release(rng, share):
    """Blocks as they are opened, and the heads at which they were released."""
    hessian, gradient, heads = symmetric(rng, M), rng.normal(size=(M, W)), rng.normal(size=(M, W))
    return (*mixed(hessian, gradient, share), heads), (hessian, gradient, heads)


def test_it_is_the_same_after_it_was_written_and_read():
    rng = np.random.default_rng(0)
    frame = np.arange(K * (K + 1) / 2)
    evidence = Evidence.start(M, R, K, 0.3).plus(*release(rng, 0.3)[0], noise_sd=2.0).turned(frame, 0.6)
    flat = evidence.to_array()
    again = Evidence.from_array(flat, M, R, K)
    assert np.array_equal(again.to_array(), flat)
    assert np.array_equal(again.frame, again.frame.T)
    assert again.share == 0.6
    assert np.array_equal(again.own.hessian, evidence.own.hessian)
    assert again.pooled.weight == pytest.approx(0.3 / 4)


@pytest.mark.parametrize("classes", [2, 3])
def test_its_size_is_the_plans(classes):
    document = tiny_document(heads={"solver": "hierarchical"})
    if classes > 2:
        document["data"]["label"] = {"column": "ill", "classes": [[value] for value in range(classes)]}
    study = Study.model_validate(document)
    domains, features = len(study.data.domains), study.model.representation + 1
    start = Evidence.start(domains, shapes.head_width(study) // features, features, 0.3)
    assert shapes.evidence_values(study) == len(start.to_array())
    assert shapes.evidence_values(tiny_study()) == 0


def test_the_frame_follows_from_all_pooled_rounds_and_the_domain_rounds_begin_with_nothing():
    rng = np.random.default_rng(2)
    hessians, empty = [symmetric(rng, 1), symmetric(rng, 1)], Evidence.start(M, R, K, 0.3)
    evidence = empty
    for hessian, noise in zip(hessians, (1.0, 2.0), strict=True):
        evidence = evidence.before(hessian, np.zeros((1, W)), np.zeros((M, W)), noise_sd=noise)
    mean = evidence.pooled.hessian / evidence.pooled.weight
    np.testing.assert_allclose(mean, (4 * hessians[0] + hessians[1]) / 5)
    assert evidence.own.weight == 0
    assert np.array_equal(evidence.emptied().to_array(), empty.to_array())


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_it_keeps_the_means_of_all_releases_weighted_by_their_precision(share):
    rng = np.random.default_rng(1)
    evidence, truths, weights = Evidence.start(M, R, K, share), [], []
    for noise in (1.0, 0.5, 2.0):
        opened, truth = release(rng, share)
        evidence = evidence.plus(*opened, noise_sd=noise)
        truths.append(truth)
        weights.append(noise**-2)
    for own, true in zip(
        (evidence.own.hessian, evidence.own.gradient), list(zip(*truths, strict=True))[:2], strict=True
    ):
        assert own / evidence.own.weight == pytest.approx(np.average(true, axis=0, weights=weights))
    assert evidence.own.weight == pytest.approx((1 - share) * sum(weights))
    assert evidence.pooled.weight == pytest.approx(share * sum(weights))
    if share:
        whole = np.average([truth[1].sum(axis=0) for truth in truths], axis=0, weights=weights)
        assert evidence.pooled.gradient[0] / evidence.pooled.weight == pytest.approx(whole)


@given(
    blocks=st.lists(st.lists(st.floats(-1, 1), min_size=5, max_size=5), min_size=1, max_size=4),
    share=st.floats(0, 0.999),
)
def test_a_patient_moves_the_mixed_blocks_by_at_most_what_the_norms_of_the_blocks_add_up_to(blocks, share):
    parts = np.array(blocks)
    most = np.linalg.norm(parts, axis=1).sum()
    hessian, gradient = mixed(np.zeros((len(parts), 1, 1)), parts, share)
    assert hessian.shape == (len(parts) + 1, 1, 1)
    assert np.linalg.norm(gradient) <= most * (1 + 1e-12)


def test_what_no_round_gives_is_refused():
    flat = Evidence.start(M, R, K, 0.3).to_array()
    for wrong in (flat[:-1], np.where(np.arange(len(flat)) == 3, np.nan, flat)):
        with pytest.raises(ValueError, match="another size"):
            Evidence.from_array(wrong, M, R, K)
    flat[K * (K + 1) // 2] = 1.0
    with pytest.raises(ValueError, match="a share or a weight"):
        Evidence.from_array(flat, M, R, K)
