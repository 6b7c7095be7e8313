from __future__ import annotations

import pytest

from support.online import Online, serving


@pytest.fixture(scope="session")
def online(tmp_path_factory):
    return Online(tmp_path_factory.mktemp("online"))


@pytest.fixture(scope="session")
def url(online):
    """Where the issuing authority answers."""
    with serving(online) as url:
        yield url
