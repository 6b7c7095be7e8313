"""Open databases of coordinators, for tests of what stands on them."""

from __future__ import annotations

from pathlib import Path

from coordinator.config import CoordinatorConfig
from coordinator.lease.holding import Lease
from coordinator.lease.turns import lease_of
from coordinator.server import Server
from coordinator.storage.database import Database
from coordinator.storage.migrating import migrate
from coordinator.storage.store import Store

EPOCH = 7
"""Of the spools of tests."""


def opened(database: Database) -> Database:
    """A database under the lease that stands in it, as a further thread of its process has it, or under a new one."""
    lease = Lease(database, "a" * 32, "a test", "b" * 32, seconds=15.0)
    row = lease.row()
    if row is None:
        assert lease.attempt()
    else:
        database.epoch = row.epoch
    migrate(database)
    return database


def database_in(folder: Path) -> Database:
    """A SQLite database in a folder."""
    return opened(Database.in_folder(folder))


def store_in(folder: Path) -> Store:
    """The store in a folder."""
    return Store(database_in(folder))


def again(store: Store) -> Store:
    """The same database, opened once more."""
    return Store(opened(Database(store.engine.url.render_as_string(hide_password=False))))


def server_of(config: CoordinatorConfig) -> Server:
    """A coordinator of this process, which is the active one."""
    lease = lease_of(config)
    assert lease.attempt()
    return Server(config, lease)
