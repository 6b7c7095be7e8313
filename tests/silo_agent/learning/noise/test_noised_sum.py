import math

import numpy as np
import pytest

from crypto.stream import KeyStream
from policies.errors import CostError
from silo_agent.learning.errors import NoiseParametersError
from silo_agent.learning.noise.noised_sum import noised, rounding_sd, share_sd, sum_sd
from support.releases import a_release


def release(statistic, *, noise=5.0, **settings):
    return noised(statistic, a_release(noise=noise, values=statistic.size), **settings)


def stream(seed=0):
    return KeyStream(seed.to_bytes(32, "big"), b"test")


GRID = 2.0**-10
LIMIT = 2**30
SETTINGS = {"mode": "local", "silos": 6, "colluders": 1, "step": GRID, "bound": 1000.0, "limit": LIMIT}


def test_the_noise_covers_the_sensitivity_after_rounding():
    n = 100_000
    integers = release(np.full(n, 3.25), stream=stream(), **SETTINGS)
    expected = 5.0 * (1 + GRID * math.sqrt(n)) / GRID
    assert integers.dtype == np.int64
    assert abs(integers.std() / expected - 1) < 5 / math.sqrt(2 * n)
    assert abs(integers.mean() * GRID - 3.25) < 5 * expected * GRID / math.sqrt(n)


def test_distributed_shares_reach_the_charged_noise_without_the_colluders_and_the_silo_itself():
    charged, values = a_release(values=100), {"silos": 6, "colluders": 2, "step": GRID}
    share = share_sd(charged, mode="distributed", **values)
    assert share * math.sqrt(6 - 1 - 2) == pytest.approx(share_sd(charged, mode="local", **values))
    assert sum_sd(charged, mode="distributed", **values) == pytest.approx(share * math.sqrt(6))
    n = 50_000
    totals = sum(
        release(np.zeros(n), stream=stream(i), **(SETTINGS | {"mode": "distributed", "colluders": 2})) for i in range(3)
    )
    charged = 5.0 * (1 + GRID * math.sqrt(n)) / GRID
    assert abs(totals.std() / charged - 1) < 5 / math.sqrt(2 * n)


def test_values_are_clamped_and_never_refused():
    wild = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 0.0])
    integers = release(wild, stream=stream(), **SETTINGS) * GRID
    np.testing.assert_allclose(integers, [1000, -1000, 1000, -1000, 0, 0], atol=5 * 6)


def test_integers_stay_in_the_ciphertexts_range():
    loud = release(np.full(1000, 1e5), stream=stream(), **(SETTINGS | {"noise": 1e6, "bound": 1e5}))
    assert np.abs(loud).max() == LIMIT


@pytest.mark.parametrize(
    ("changes", "mend"),
    [
        ({"noise": 1e-4}, "raise the noise"),
        ({"noise": math.nan}, "noise is not a finite number"),
        ({"noise": -5.0}, "noise -5.0 must lie between"),
        ({"noise": 0.0}, "raise the noise"),
        ({"noise": -0.0, "mode": "distributed"}, "raise the noise"),
        ({"noise": math.inf}, "noise is not a finite number"),
        ({"noise": 5.0, "mode": "none"}, "draws none"),
        ({"noise": 1e-300, "mode": "none"}, "draws none"),
        ({"noise": math.nan, "mode": "none"}, "noise is not a finite number"),
        ({"mode": "distributed", "silos": 3, "colluders": 2}, "invite more silos"),
        ({"bound": 1e7}, "max_patients"),
        ({"bound": math.nan}, "max_patients"),
        ({"bound": -1.0}, "max_patients"),
    ],
)
def test_public_parameters_that_cannot_give_the_noise_are_refused(changes, mend):
    with pytest.raises((NoiseParametersError, CostError), match=mend):
        release(np.zeros(3), stream=stream(), **(SETTINGS | changes))


def test_without_noise_the_grid_alone_is_between_a_statistic_and_what_leaves():
    settings = SETTINGS | {"mode": "none", "noise": 0.0}
    values = np.random.default_rng(0).normal(size=1000) * 100
    integers = release(values, stream=stream(), **settings)
    np.testing.assert_array_equal(integers, np.rint(values / GRID))
    np.testing.assert_array_equal(integers, release(values, stream=stream(1), **settings))
    wild = release(np.array([1e9, -np.inf, np.nan]), stream=stream(), **settings) * GRID
    np.testing.assert_array_equal(wild, [1000, -1000, 0])
    for sd in (share_sd, sum_sd):
        assert sd(a_release(noise=0.0, values=10), mode="none", silos=6, colluders=1, step=GRID) == 0.0


def test_rounding_is_as_large_as_it_says():
    settings = SETTINGS | {"mode": "none", "noise": 0.0}
    values = np.random.default_rng(0).normal(size=(5, 20_000))
    errors = sum(release(own, stream=stream(), **settings) * GRID - own for own in values)
    assert errors.std() == pytest.approx(rounding_sd(silos=5, step=GRID), rel=0.03)


@pytest.mark.parametrize("sd", [share_sd, sum_sd])
@pytest.mark.parametrize(("mode", "noise"), [("local", 0.0), ("distributed", 0.0), ("none", 1.0)])
def test_no_size_of_noise_is_told_for_a_mode_that_it_does_not_fit(sd, mode, noise):
    with pytest.raises(NoiseParametersError, match="noise"):
        sd(a_release(noise=noise, values=10), mode=mode, silos=6, colluders=1, step=GRID)


def test_an_empty_silo_releases_noise():
    assert release(np.zeros(50), stream=stream(), **SETTINGS).std() > 0


def test_a_statistic_of_another_length_than_the_plans_is_not_released():
    with pytest.raises(NoiseParametersError, match="heads has 3 values; the study's plan says 4"):
        noised(np.zeros(3), a_release(values=4), stream=stream(), **SETTINGS)
