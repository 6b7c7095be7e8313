"""The laws and the tests of `bench.papers.two_sample`."""

import numpy as np
import pytest
import torch

from bench.papers import two_sample
from silo_agent.learning.terms.losses import mk_mmd


def drawn(seed=1):
    return np.random.default_rng(seed)


def test_both_laws_have_the_papers_moments():
    covariances = {}
    for other in (False, True):
        records = two_sample.blobs(90_000, drawn(), other=other).numpy()
        blob = np.clip(records.round(), 0, 2)
        for at in range(9):
            centre = np.array([at // 3, at % 3])
            covariances[other, at] = np.cov(records[(blob == centre).all(axis=1)].T)
    for at in range(9):
        size = 0.0 if at == 4 else 0.02 + 0.002 * (at if at < 4 else at - 5)
        # Records that fall nearer to another blob are counted there, which takes off a little.
        for other, wanted in ((False, 0.0), (True, size if at > 4 else -size)):
            assert covariances[other, at][0, 1] == pytest.approx(wanted, abs=0.003)
            assert covariances[other, at][0, 0] == pytest.approx(0.03, abs=0.003)


def test_the_median_kernel_is_the_widest_of_the_nineteen():
    x, y = (two_sample.blobs(60, drawn(seed), other=bool(seed)) for seed in (0, 1))
    gamma = two_sample.median(x, y)
    signs = torch.tensor(drawn().choice([-1.0, 1.0], size=(60, 5)))
    scale = np.sqrt(mk_mmd.GAMMAS[-1] / gamma)
    whole = two_sample.of_pairs(lambda a, b: mk_mmd.compare_as_given(scale * a, scale * b).statistics()[-1])
    factored = two_sample.by_median(x, y, drawn())
    torch.testing.assert_close(factored(x, y, signs), whole(x, y, signs), rtol=1e-3, atol=1e-2)


def test_exchanging_pairs_is_what_signs_do():
    x, y = (two_sample.blobs(20, drawn(seed), other=bool(seed)) for seed in (0, 1))
    signs = torch.ones(20, 2, dtype=torch.float64)
    signs[:7, 1] = -1.0
    test = two_sample.by_mk_mmd(x, y, drawn())
    mixed = torch.cat([y[:7], x[7:]]), torch.cat([x[:7], y[7:]])
    torch.testing.assert_close(test(x, y, signs)[1], test(*mixed, signs)[0])


def test_a_test_rejects_what_lies_apart():
    x = two_sample.blobs(80, drawn(), other=False)
    test = two_sample.by_median(x, x + 1.0, drawn())
    assert two_sample.rejects(test, x, x + 1.0, drawn())
    assert not two_sample.rejects(test, x, x[torch.randperm(80, generator=torch.Generator().manual_seed(1))], drawn())
