import numpy as np

from silo_agent.learning.encoder.draws import public_draws


def test_draws_are_standard_normal_and_the_same_wherever_they_are_drawn():
    drawn = public_draws(7, 400, 25)
    assert drawn.shape == (400, 25)
    assert drawn.dtype == np.float32
    np.testing.assert_allclose([drawn.mean(), drawn.std(), (np.abs(drawn) < 1).mean()], [0, 1, 0.6827], atol=0.02)
    np.testing.assert_array_equal(drawn, public_draws(7, 400, 25))
    np.testing.assert_array_equal(public_draws(7, 1, 3)[0], np.array(FIRST, np.float32))
    assert (drawn * 2.0**20 % 1 == 0).all()


def test_another_seed_gives_other_draws_and_no_sample_none():
    assert (public_draws(7, 2, 3) != public_draws(8, 2, 3)).all()
    assert public_draws(7, 0, 3).shape == (0, 3)


FIRST = (-0.40075206756591797, 1.138031005859375, -0.4157228469848633)
