import numpy as np
import pytest
import torch

from silo_agent.learning.outcomes import products


def drawn(*shape, seed=0):
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def test_a_weighted_gram_is_its_definition_and_symmetric_to_the_last_bit():
    z, weight = drawn(50, 7), drawn(50, seed=1).abs()
    gram = products.weighted_gram(z, weight)
    torch.testing.assert_close(gram, z.T @ torch.diag(weight) @ z)
    assert torch.equal(gram, gram.T)


@pytest.mark.parametrize("records", [0, 1])
def test_few_records_are_no_exception(records):
    assert products.weighted_gram(drawn(records, 3), torch.ones(records, dtype=torch.float64)).shape == (3, 3)
    assert products.pair_products(drawn(2, records)).shape == (3, records)


def test_pairs_come_in_the_order_of_the_upper_triangle():
    values = drawn(4, 9)
    i, j = torch.triu_indices(4, 4)
    assert products.pairs(4) == len(i)
    assert torch.equal(products.pair_products(values), values[i] * values[j])


def test_sums_of_pairs_become_the_sum_of_kronecker_products():
    left, right = drawn(6, 3), drawn(6, 4, seed=1)
    whole = sum(torch.kron(torch.outer(a, a), torch.outer(b, b)) for a, b in zip(left, right, strict=True))
    sums = products.pair_products(left.T.contiguous()) @ products.pair_products(right.T.contiguous()).T
    matrix = products.kronecker_matrix(sums, 3, 4)
    torch.testing.assert_close(matrix, whole)
    assert torch.equal(matrix, matrix.T)


def test_chunks_have_a_floor():
    assert products.rows_at_once(1 << 10) == 512
    assert products.rows_at_once(1 << 30) == 128
