"""Folders in memory, where durable writes cost nothing, and a silent log."""

import tempfile
from pathlib import Path

import pytest
import structlog

MEMORY = Path("/dev/shm")  # noqa: S108  # folders below it have names of their own


@pytest.fixture
def quick_path():
    with tempfile.TemporaryDirectory(prefix="fedward-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _silent_log():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    yield
    structlog.reset_defaults()
