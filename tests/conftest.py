"""What holds for all tests: who runs where, and how properties are drawn."""

from __future__ import annotations

import os
import shutil
import time
from collections import defaultdict

# One thread for each process: two workers have two cores, and threads that spin until a descheduled one arrives at
# their barrier take minutes for what takes a second. The libraries read this when they are loaded, which is below.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent
FEDERATIONS = ("tests/integration/", "tests/reliability/")
"""Tests that start processes of many parties: one after another, and first, since nothing takes longer."""
INSTALLED = ("tests/integration/test_handbook.py", "tests/integration/test_upgrade.py", "tests/reliability/")
"""Of these the other worker takes care: they run mostly one program at a time."""
MANY, ONE_OF = 4, 3
UNTIL = "FEDWARD_TESTS_UNTIL"
"""The variable that says when no further test begins, in seconds since the epoch (`.ci/run`)."""
MEMORY, ROOM = Path("/dev/shm"), 2 << 30  # noqa: S108  # pytest makes a folder of its own there

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("fixed")


class Scheduling(LoadScopeScheduling):
    """Federations go to two workers, other tests a file at a time: its fixtures are made once."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(INSTALLED):
            return "installed"
        return "federations" if nodeid.startswith(FEDERATIONS) else nodeid.partition("::")[0]


def pytest_configure() -> None:
    """Put the tests' files into memory where there is room.

    Ledgers, states and stores sync at every step, which took half of the time on a disk, and no test asks what a disk
    keeps in a power cut. Programs that tests write must be able to run there.
    """
    usable = MEMORY.is_dir() and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if usable and shutil.disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_runtest_setup() -> None:
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("no time is left on this machine; `make test-slow` runs it")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    config.option.loadscopereorder = False  # the order below is the order of the start
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FEDERATIONS))
    seen: set[str] = set()
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            family = item.nodeid.partition("[")[0]
            if family in seen:
                item.add_marker(pytest.mark.slow)
            seen.add(family)
    _thin_out([item for item in items if item.get_closest_marker("slow") is not None])


def _thin_out(slow: list[pytest.Item]) -> None:
    """Of a slow test with many cases, leave all but every third to `make campaign`."""
    families: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in slow:
        families[item.nodeid.partition("[")[0]].append(item)
    for cases in families.values():
        for number, item in enumerate(cases):
            if len(cases) > MANY and number % ONE_OF:
                item.add_marker(pytest.mark.campaign)
