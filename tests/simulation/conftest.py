"""Credentials for ten silos, enrolled once, names of folders, and circles of as few silos as can be sparse."""

import itertools

import pytest
import structlog

from crypto.secagg import circle
from support.certificates import load, make_authority
from support.simulated_federation import enrolled


@pytest.fixture(autouse=True)
def _default_logging():
    structlog.reset_defaults()


@pytest.fixture(scope="module", autouse=True)
def _small_circles():
    """Elsewhere a circle is sparse above 64 silos; here it is wherever few may be missing of five or more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circle, "ALL_UP_TO", 4)
        yield


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
