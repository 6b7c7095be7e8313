"""Whoever runs the coordinator's machine makes a backup and puts it back."""

from __future__ import annotations

import pytest
import yaml
from typer.testing import CliRunner

from coordinator.cli.main import app
from coordinator.config import CoordinatorConfig
from coordinator.lease.turns import lease_of
from coordinator.storage.alone import FolderBusyError, alone_in
from coordinator.storage.copying import CopyError
from coordinator.storage.migrating import migrate
from coordinator.storage.store import Store
from support.people import audit_entry


def configured(folder, **config):
    folder.mkdir()
    path = folder / "coordinator.yaml"
    files = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
    path.write_text(yaml.safe_dump({"port": 7443, "metrics_port": 0, "data": "data", **files, **config}))
    return path


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).stdout


def store_of(path):
    lease = lease_of(CoordinatorConfig.load(path))
    assert lease.attempt()
    migrate(lease.database)
    return lease, Store(lease.database)


def test_a_backup_is_put_back_into_an_empty_folder_under_a_higher_epoch(tmp_path):
    first, second = configured(tmp_path / "first"), configured(tmp_path / "second")
    lease, store = store_of(first)
    store.audit.note(audit_entry())
    epoch, followed = lease.epoch, store.audit.followed()
    assert run("backup", tmp_path / "kept", "-c", first).startswith(f"{tmp_path / 'kept'}: 0 studies, ")
    lease.give_back()
    assert run("restore", tmp_path / "kept", "-c", second) == "0 studies put back; start the coordinator now\n"
    again, restored = store_of(second)
    assert again.epoch > epoch
    assert restored.audit.followed() == followed
    again.give_back()


def test_nothing_is_put_back_under_a_coordinator_that_serves(tmp_path):
    first = configured(tmp_path / "first")
    lease, _ = store_of(first)
    run("backup", tmp_path / "kept", "-c", first)
    url = f"sqlite:///{tmp_path / 'first' / 'data' / 'coordinator.sqlite3'}"
    spool = str(tmp_path / "first" / "data" / "spool")
    beside = configured(tmp_path / "beside", database=url, spool=spool)
    with pytest.raises(CopyError, match=r"a coordinator serves this database \(.*, port 7443\); stop it first"):
        run("restore", tmp_path / "kept", "-c", beside)
    with alone_in(tmp_path / "first" / "data"), pytest.raises(FolderBusyError):
        run("restore", tmp_path / "kept", "-c", first)
    lease.database.require()
    lease.give_back()
