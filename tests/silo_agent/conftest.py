"""A consortium of three silos and a coordinator, enrolled once for all tests of the agent."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog

from support.certificates import load, make_authority

SILOS = ("north", "south", "west")
MEMORY = Path("/dev/shm")  # noqa: S108  # folders below it have names of their own


@pytest.fixture(autouse=True)
def _default_logging():
    """A command configures the log for its process; the next test has a process of its own, so to speak."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def quick_folders():
    """Gives new folders in memory where there is such a place: there, durable writes cost nothing."""
    root = Path(tempfile.mkdtemp(prefix="fedward-", dir=MEMORY if MEMORY.is_dir() else None))
    numbers = itertools.count()

    def give():
        folder = root / str(next(numbers))
        folder.mkdir()
        return folder

    yield give
    shutil.rmtree(root)


@pytest.fixture
def quick_path(quick_folders):
    return quick_folders()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="session")
def foreign_authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="session")
def homes(authority):
    """Folder of every silo's certificate, key and authority."""
    return {name: authority.credential("silo", name) for name in SILOS}


@pytest.fixture(scope="session")
def credentials(homes):
    return {name: load(home) for name, home in homes.items()}


@pytest.fixture(scope="session")
def coordinator(authority):
    return load(authority.credential("coordinator", "hub"))
