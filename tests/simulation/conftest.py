"""Credentials for ten silos, enrolled once, and names of folders."""

import itertools

import pytest
import structlog

from support.certificates import load, make_authority
from support.simulated_federation import enrolled


@pytest.fixture(autouse=True)
def _default_logging():
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def quick_folders(tmp_path_factory):
    """Gives names of new folders."""
    root, numbers = tmp_path_factory.mktemp("quick"), itertools.count()
    return lambda: root / str(next(numbers))


@pytest.fixture
def quick_folder(quick_folders):
    return quick_folders()


@pytest.fixture(scope="session")
def consortium(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="session")
def credentials(consortium):
    return enrolled(consortium)


@pytest.fixture(scope="session")
def hub(consortium):
    return load(consortium.credential("coordinator", "hub"))
