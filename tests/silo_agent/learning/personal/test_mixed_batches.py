import numpy as np

from silo_agent.learning.personal.mixed_batches import order


def test_every_record_comes_once_and_every_stretch_has_each_environments_share():
    environments = np.repeat([0, 2, 5], [100, 40, 10])
    found = order(environments, np.random.default_rng(0))
    assert sorted(found) == list(range(150))
    for start in range(0, 150, 15):
        counts = np.bincount(environments[found[start : start + 15]], minlength=6)[[0, 2, 5]]
        assert np.abs(counts - np.array([10, 4, 1])).max() <= 2


def test_the_order_is_drawn_and_nobody_is_normal():
    environments = np.arange(40) % 2
    drawn = [order(environments, np.random.default_rng(seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(order(np.zeros(0, np.int64), np.random.default_rng(0))) == 0
