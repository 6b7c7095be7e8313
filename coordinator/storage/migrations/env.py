"""Runs the steps in the transaction of whoever asked (`coordinator.storage.migrating`). Alembic executes this file."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
