"""Blocks of the metric sum: sensitivity 1, unbiased, and as precise as their variances say."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from silo_agent.learning.figures.blocks import MetricBlocks
from support.studies import tiny_study

A_FIFTH = {"together": True, "together_share": 0.2}
SHARES = st.sampled_from([0.0, 0.2, 0.5, 0.9])


@given(SHARES, arrays(np.float64, (3, 4), elements=st.floats(0, 1)))
def test_a_patient_adds_no_more_than_one(share, spread):
    cells = spread / max(spread.sum(), 1.0)  # records in several domains and cells, 1 in all
    laid_out = MetricBlocks(3, share).laid_out(cells.ravel())
    assert np.linalg.norm(laid_out) <= 1.0 + 1e-12
    one = np.eye(12)[5]
    assert np.linalg.norm(MetricBlocks(3, share).laid_out(one)) == pytest.approx(1.0)


@given(SHARES, arrays(np.int64, 12, elements=st.integers(0, 2**26)), st.integers(0, 11))
def test_rounding_makes_no_patient_count_more(share, others, cell):
    blocks, own = MetricBlocks(3, share), np.eye(12)[cell]
    before, after = (blocks.laid_out(cells) for cells in (others.astype(np.float64), others + own))
    moved = [Fraction(b) - Fraction(a) for a, b in zip(before, after, strict=True)]
    assert sum(change * change for change in moved) <= 1


@given(SHARES, arrays(np.float64, (3, 4), elements=st.floats(-9, 9)))
def test_without_noise_the_cells_come_back(share, cells):
    blocks = MetricBlocks(3, share)
    opened = blocks.combined(blocks.laid_out(cells.ravel()), 0.0)
    assert opened.domain_sd == opened.whole_sd == 0.0
    np.testing.assert_allclose(opened.domains, cells, atol=1e-9)
    np.testing.assert_allclose(opened.whole, cells.sum(axis=0), atol=1e-9)


@given(SHARES, arrays(np.float64, 16, elements=st.floats(-9, 9)))
def test_the_domains_add_up_to_all_patients(share, values):
    blocks = MetricBlocks(3, share)
    opened = blocks.combined(values[: 4 * len(blocks.scales)], 2.0)
    np.testing.assert_allclose(opened.domains.sum(axis=0), opened.whole, atol=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_noise_has_the_deviations_that_are_told(share):
    blocks = MetricBlocks(5, share)
    noise = np.random.default_rng(1).normal(0.0, 3.0, len(blocks.scales) * 40_000)
    opened = blocks.combined(noise, 3.0)
    assert opened.domains.std() == pytest.approx(opened.domain_sd, rel=0.02)
    assert opened.whole.std() == pytest.approx(opened.whole_sd, rel=0.02)


def test_a_fifth_helps_all_more_than_it_costs_a_domain():
    without, with_a_fifth = (
        MetricBlocks(5, share).combined(np.zeros(5 * 8 if not share else 6 * 8), 1.0) for share in (0.0, 0.2)
    )
    assert (without.domain_sd, without.whole_sd) == pytest.approx((1.0, 5**0.5))
    assert with_a_fifth.domain_sd == pytest.approx(1.054, abs=1e-3)
    assert with_a_fifth.whole_sd == pytest.approx(1.667, abs=1e-3)


def test_a_study_says_which_blocks_there_are():
    plain = tiny_study(evaluation={"together": True})
    shared = tiny_study(evaluation=A_FIFTH)
    assert len(MetricBlocks.of(plain).scales) == len(plain.data.domains) == 2
    assert len(MetricBlocks.of(shared).scales) == 3
    assert MetricBlocks.of(shared) == MetricBlocks(2, 0.2)
    alone = tiny_study(evaluation=A_FIFTH, data={"domain": [{"column": "g", "values": ["a"], "names": ["everybody"]}]})
    assert MetricBlocks.of(alone) == MetricBlocks(1, 0.0)
