"""A small study with made-up patients, and the folder of their files."""

import numpy as np
import pytest

from support.local_federation import write_patients
from support.studies import TINY, tiny_study

SLOPES = np.array([[4.0, -2.0], [-3.0, 2.0]])


@pytest.fixture
def public_study():
    """The tiny study without noise."""
    heads = {"pooled_noise": 0.0, "domain_noise": 0.0}
    none = {"mode": "none", "count_noise": 0.0}
    return tiny_study(heads=heads, privacy=none, encoder={"noise": 0.0}, evaluation={"noise": 0.0})


@pytest.fixture
def files(tmp_path):
    """One file for each silo of the tiny study."""
    rng, folder = np.random.default_rng(3), tmp_path / "files"
    folder.mkdir()
    return {name: write_patients(folder / f"{name}.csv", rng, SLOPES, patients=80) for name in TINY["silos"]}
