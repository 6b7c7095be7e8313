"""The coordinator's folders and database are its owner's alone, whoever made them."""

from __future__ import annotations

import pytest
import structlog

from coordinator.storage.closing import close_to_others
from coordinator.storage.spool import Spool
from support.databases import EPOCH, store_in


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("wide", [0o700, 0o755, 0o777])
def test_the_database_and_the_spool_are_closed_to_others(tmp_path, wide):
    data = tmp_path / "data"
    for folder in (data, data / "spool"):
        folder.mkdir()
        folder.chmod(wide)
    (data / "coordinator.sqlite3").touch(mode=0o644)
    store = store_in(data)
    Spool(data / "spool", EPOCH)
    store.engine.dispose()
    assert [mode(path) for path in (data, data / "spool", data / "coordinator.sqlite3")] == [0o700, 0o700, 0o600]


def test_what_was_open_is_named_in_the_log(tmp_path):
    tmp_path.chmod(0o750)
    with structlog.testing.capture_logs() as logs:
        close_to_others(tmp_path, tmp_path / "new")
    assert [(entry["path"], entry["log_level"]) for entry in logs] == [(str(tmp_path), "warning")]
    with structlog.testing.capture_logs() as logs:
        close_to_others(tmp_path, tmp_path / "new")
    assert not logs
