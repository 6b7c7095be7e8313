"""Credentials for ten silos, enrolled once, and folders in memory, where durable writes cost nothing."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog

from support.certificates import load, make_authority
from support.simulated_federation import enrolled

MEMORY = Path("/dev/shm")  # noqa: S108  # folders below it have names of their own


@pytest.fixture(autouse=True)
def _default_logging():
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def quick_folders():
    """Gives new folders."""
    root = Path(tempfile.mkdtemp(prefix="fedward-", dir=MEMORY if MEMORY.is_dir() else None))
    numbers = itertools.count()
    yield lambda: root / str(next(numbers))
    shutil.rmtree(root)


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
