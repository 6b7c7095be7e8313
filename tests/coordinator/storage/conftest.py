"""The two databases over which everything that is stored is tested."""

from __future__ import annotations

import pytest

from coordinator.storage.database import Database
from support.databases import opened
from support.postgres import database_url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'tests.sqlite3'}"
    else:
        with database_url() as found:
            yield found


@pytest.fixture
def database(url):
    """An open database, whose lease the test has."""
    made = opened(Database(url))
    yield made
    made.engine.dispose()
