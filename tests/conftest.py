"""How the tests are shared out where several processes run them (`pytest -n 2 --no-loadscope-reorder`)."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

FEDERATIONS = ("tests/integration/", "tests/reliability/")


class ByModule(LoadScopeScheduling):
    """A module's tests stay together, for its fixtures' sake, and so do all federations of processes.

    So no two federations run at once: their deadlines are for a machine that is theirs but for one other test.
    """

    def _split_scope(self, nodeid: str) -> str:
        return "federations" if nodeid.startswith(FEDERATIONS) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)  # unknown where the plugin is switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    return ByModule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Federations first: they take as long as all the others."""
    items.sort(key=lambda item: not item.nodeid.startswith(FEDERATIONS))
