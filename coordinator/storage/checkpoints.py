"""The latest checkpoint that each silo signed of its ledger, and the latest that each other silo cosigned of it.

A silo has one ledger. Every method is one transaction, durable when it returns. `cosigning` checks signatures and
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Engine, LargeBinary, MetaData, Row, String, Table, insert, select, update

from coordinator.errors import CoordinatorError
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import MessageError

_metadata = MetaData()
_stated = Table(
    "statements",
    _metadata,
    Column("silo", String(63), primary_key=True),
    Column("signer", String(63), primary_key=True),
    Column("statement", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""Keyed by the silo whose ledger it is. That silo is also the signer."""
_cosigned = Table(
    "countersigned_statements",
    _metadata,
    Column("silo", String(63), primary_key=True),
    Column("signer", String(63), primary_key=True),
    Column("statement", LargeBinary, nullable=False),
    Column("stated_certificate_pem", LargeBinary, nullable=False),
    Column("stated_signature", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""Keyed by the ledger's silo and by another silo, the signer. The signature of the ledger's silo lies beside it."""


class DamagedCheckpointError(CoordinatorError):
    """A stored checkpoint is not what was stored."""

    def __init__(self, silo: str, signer: str, why: str) -> None:
        super().__init__(
            f"the checkpoint of the ledger of {silo} that {signer} signed is damaged in the coordinator's database"
            f" ({why}); it is left out, and the next one takes its place; check the disk"
        )


class Checkpoints:
    """The latest checkpoint of each ledger, and of each silo that cosigned it, in the coordinator's database."""

    def __init__(self, engine: Engine) -> None:
        """Take the connections of an open store. Make the tables if there are none."""
        self._engine = engine
        _metadata.create_all(engine)

    def keep(self, silo: str, signed: SignedCheckpoint) -> None:
        """Store this silo's checkpoint in place of its last one."""
        row = {
            "statement": signed.checkpoint,
            "certificate_pem": signed.certificate_pem,
            "signature": signed.signature,
        }
        self._put(_stated, silo, silo, row)

    def keep_cosigned(self, silo: str, signer: str, word: CosignedCheckpoint) -> None:
        """Store what this signer cosigned of this ledger in place of the last."""
        row = {
            "statement": word.stated.checkpoint,
            "stated_certificate_pem": word.stated.certificate_pem,
            "stated_signature": word.stated.signature,
            "certificate_pem": word.certificate_pem,
            "signature": word.signature,
        }
        self._put(_cosigned, silo, signer, row)

    def latest(self, silo: str) -> SignedCheckpoint | None:
        """Return this silo's last checkpoint, or None if there is none. Raises `DamagedCheckpointError`."""
        query = select(_stated).where(_stated.c.silo == silo, _stated.c.signer == silo)
        with self._engine.begin() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        try:
            return SignedCheckpoint(bytes(row.statement), bytes(row.certificate_pem), bytes(row.signature))
        except MessageError as fault:
            raise DamagedCheckpointError(silo, silo, str(fault)) from None

    def cosigned(self, silo: str) -> dict[str, CosignedCheckpoint | DamagedCheckpointError]:
        """Return the last cosigned checkpoint of a ledger for each signer, or what is wrong with it."""
        query = select(_cosigned).where(_cosigned.c.silo == silo).order_by(_cosigned.c.signer)
        with self._engine.begin() as connection:
            rows = connection.execute(query).all()
        return {row.signer: _cosigned_in(row) for row in rows}

    def _put(self, table: Table, silo: str, signer: str, row: Mapping[str, Any]) -> None:
        with self._engine.begin() as connection:
            mine = (table.c.silo == silo, table.c.signer == signer)
            if connection.execute(update(table).where(*mine).values(row)).rowcount == 0:
                connection.execute(insert(table).values(silo=silo, signer=signer, **row))


def _cosigned_in(row: Row[Any]) -> CosignedCheckpoint | DamagedCheckpointError:
    try:
        stated = SignedCheckpoint(bytes(row.statement), bytes(row.stated_certificate_pem), bytes(row.stated_signature))
        return CosignedCheckpoint(stated, bytes(row.certificate_pem), bytes(row.signature))
    except MessageError as fault:
        return DamagedCheckpointError(row.silo, row.signer, str(fault))
