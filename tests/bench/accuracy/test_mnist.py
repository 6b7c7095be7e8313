"""The sites' digits as files, and what is judged of them."""

import numpy as np
import pytest

from bench.accuracy import mnist
from deploy.demo.sources import load_source


def digits(count):
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, 28, 28)).astype(np.uint8), np.arange(count, dtype=np.uint8) % 10


def test_every_digit_is_dealt_once_and_three_in_five_at_the_sites_angle(tmp_path):
    source = load_source(mnist.HERE)
    sites = mnist.write_sites(tmp_path / "sites", digits(250), source.study.silos)
    cohorts = mnist.read_cohorts(source, sites, mnist.write_tests(tmp_path / "tests", digits(4)))
    assert tuple(cohorts.silos) == source.study.silos
    for number, silo in enumerate(cohorts.silos.values()):
        angles = np.concatenate([silo.training.domains, silo.held_out.domains])
        assert np.bincount(angles).tolist() == [30 if angle == number else 5 for angle in range(5)]
    labels = np.concatenate([part.labels for silo in cohorts.silos.values() for part in (silo.training, silo.held_out)])
    assert np.bincount(labels).tolist() == [25] * 10
    assert cohorts.test.domains.tolist() == np.repeat(range(5), 4).tolist()
    assert cohorts.test.images.shape == (1, 16, 16)


@pytest.mark.parametrize(("least", "met"), [(90.1, True), (90.0, False)])
def test_every_run_must_be_right_at_every_angle(least, met):
    right = np.full((2, 5), 95.0)
    right[1, 3] = least
    assert [figure.met for figure in mnist.figures(right)] == [True, True, True, met, True]
