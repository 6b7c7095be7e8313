"""A release of the tracked files as they lie there, made once for all tests of a worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.release import signing
from deploy.release.making import make


@pytest.fixture(scope="session")
def release_key(tmp_path_factory):
    """A release key and its fingerprint."""
    path = tmp_path_factory.mktemp("key") / "release.key"
    fingerprint = signing.make_key(path, None)
    return signing.load_key(path, None), fingerprint


@pytest.fixture(scope="session")
def release(release_key, tmp_path_factory):
    """The folder of a signed release."""
    folder = tmp_path_factory.mktemp("made") / "dist"
    make(folder, release_key[0], committed=False)
    return folder


@pytest.fixture(scope="session")
def registries(tmp_path_factory):
    """Skips by name where nothing can be installed from the package registries."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", tmp_path_factory.mktemp("asked")]
    if subprocess.run([*command, "hatchling"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the package registries cannot be reached: nothing is installed from them")
