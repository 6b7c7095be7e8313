"""Brings the tables of a database of version 0.5 or later up to this version: all steps in one transaction, or none."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import text

from coordinator.storage.database import Database, StoreError

_STEPS: Final = Path(__file__).with_name("migrations")


def migrate(database: Database) -> None:
    """Bring the tables up to date. Raises `StoreError` if a newer version was here, `LeaseLostError`."""
    config = Config()
    config.set_main_option("script_location", str(_STEPS))
    with database.writing() as connection:
        if database.kind == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            msg = (
                f"{database.name} was used by a newer version of FedWard ({error}); start that version, or a newer one"
            )
            raise StoreError(msg) from None
