import numpy as np
import pytest

from silo_agent.learning.encoder.orthonormal import gram_schmidt, row_sums


@pytest.mark.parametrize(("count", "width"), [(1, 1), (2, 20), (7, 7), (16, 31)])
def test_rows_become_orthonormal_and_the_triangle_gives_them_back(count, width):
    rows = np.random.default_rng(count).normal(size=(count, width))
    basis, triangle = gram_schmidt(rows)
    np.testing.assert_allclose(basis @ basis.T, np.eye(count), atol=1e-12)
    np.testing.assert_allclose(triangle @ basis, rows, atol=1e-12)
    np.testing.assert_array_equal(triangle, np.tril(triangle))
    assert (np.diag(triangle) > 0).all()
    expected = np.linalg.qr(rows.T)[0].T
    np.testing.assert_allclose(np.abs(basis), np.abs(expected), atol=1e-9)


def test_the_same_bits_come_in_whatever_memory_the_rows_lie():
    rows = np.random.default_rng(3).normal(size=(5, 40))
    copies = (np.asfortranarray(rows), np.ascontiguousarray(rows), np.repeat(rows, 2, axis=1)[:, ::2])
    assert len({gram_schmidt(copy)[0].tobytes() for copy in copies}) == 1


def test_a_row_that_depends_on_another_gives_no_basis():
    with np.errstate(all="ignore"):
        basis, _ = gram_schmidt(np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert not np.isfinite(basis).all()


def test_sums_of_rows():
    values = np.arange(15.0).reshape(3, 5)
    np.testing.assert_array_equal(row_sums(values), values.sum(axis=1))
