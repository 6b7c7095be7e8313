import numpy as np

from silo_agent.learning.encoder.orthonormal_step import orthonormalised

M, K, D = 3, 4, 9


def test_the_matrix_becomes_orthonormal_and_predictions_stay():
    rng = np.random.default_rng(1)
    matrix, heads, x = rng.normal(size=(K, D)), rng.normal(size=(M, K + 1)), rng.normal(size=(D, 50))
    basis, turned = orthonormalised(matrix, heads)
    np.testing.assert_allclose(basis @ basis.T, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(turned[:, :K] @ basis @ x, heads[:, :K] @ matrix @ x, atol=1e-10)
    np.testing.assert_array_equal(turned[:, K], heads[:, K])


def test_an_orthonormal_matrix_stays_where_it_is():
    basis, heads = np.eye(D)[:K], np.ones((M, K))
    np.testing.assert_array_equal(orthonormalised(basis, heads)[0], basis)
    np.testing.assert_array_equal(orthonormalised(basis, heads)[1], heads)


def test_a_representation_that_has_lost_a_direction_stays_as_it_is():
    heads = np.ones((M, 2))
    for lost in (np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1e-8]]), np.zeros((2, 2))):
        matrix, turned = orthonormalised(lost, heads)
        assert matrix is lost
        assert turned is heads
