"""A database of their own for the tests of what reads from one."""

import pytest

from support import postgres


@pytest.fixture(scope="session")
def cluster():
    """The URL of a new cluster with the table `stay`, and the file with its password."""
    with postgres.cluster() as found:
        yield found
