"""The checkpoints that silos signed of their ledgers, and the latest that each other silo cosigned of each.

A silo has one ledger. Beside its latest checkpoint lie those before, each with the coordinator's own time of receipt
(`policies.ledger.judging` says how many), and which of its releases are in sums that may have been opened. Every method
is one transaction, durable when it returns. `cosigning` checks signatures and rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from coordinator.errors import CoordinatorError
from coordinator.storage import tables
from coordinator.storage.database import Database
from policies.ledger.judging import Summed, kept
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import MessageError, Place, Tensor


class DamagedCheckpointError(CoordinatorError):
    """A stored checkpoint is not what was stored."""

    def __init__(self, silo: str, signer: str, why: str) -> None:
        super().__init__(
            f"the checkpoint of the ledger of {silo} that {signer} signed is damaged in the coordinator's database"
            f" ({why}); it is left out, and the next one takes its place; check the disk"
        )


class Checkpoints:
    """The latest checkpoint of each ledger, and of each silo that cosigned it, in the coordinator's database."""

    def __init__(self, database: Database) -> None:
        """Take a database whose tables are up to date."""
        self._database = database

    def keep(self, silo: str, signed: SignedCheckpoint, received: datetime) -> None:
        """Store this silo's checkpoint as its last one, and when it came."""
        row = {
            "statement": signed.checkpoint,
            "certificate_pem": signed.certificate_pem,
            "signature": signed.signature,
        }
        mine = (tables.statements.c.silo == silo, tables.statements.c.signer == silo)
        with self._database.writing() as connection:
            _take_over(connection, silo)
            connection.execute(insert(tables.received).values(silo=silo, at=received.isoformat(), **row))
            if connection.execute(update(tables.statements).where(*mine).values(row)).rowcount == 0:
                connection.execute(insert(tables.statements).values(silo=silo, signer=silo, **row))
            query = (
                select(tables.received.c.id, tables.received.c.at)
                .where(tables.received.c.silo == silo)
                .order_by(tables.received.c.id)
            )
            rows = connection.execute(query).all()
            stay = kept([_time(one.at) for one in rows])
            gone = {one.id for one in rows} - {rows[place].id for place in stay}
            if gone:
                connection.execute(delete(tables.received).where(tables.received.c.id.in_(gone)))

    def history(self, silo: str) -> list[tuple[SignedCheckpoint | DamagedCheckpointError, datetime | None]]:
        """Return this silo's checkpoints that are remembered, oldest first, each with when it came.

        None for one that an earlier version stored. In the place of one that is damaged stands what is wrong with it.
        """
        query = select(tables.received).where(tables.received.c.silo == silo).order_by(tables.received.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
            last = connection.execute(
                select(tables.statements).where(tables.statements.c.silo == silo, tables.statements.c.signer == silo)
            ).first()
        signed = [(_signed_in(row), _time(row.at)) for row in rows]
        if last is not None and all(row.statement != last.statement for row in rows):
            signed.append((_signed_in(last), None))  # an earlier version stored it
        return signed

    def keep_summed(self, place: Place, tensor: Tensor, silos: Iterable[str]) -> None:
        """Store that releases of these silos are in a sum whose list enough silos have signed. Idempotent."""
        key = {"study": place.study, "round": place.round, "attempt": place.attempt, "tensor": str(tensor)}
        mine = [getattr(tables.summed.c, name) == value for name, value in key.items()]
        with self._database.writing() as connection:
            known = {row.silo for row in connection.execute(select(tables.summed.c.silo).where(*mine))}
            fresh = [{"silo": silo, **key} for silo in silos if silo not in known]
            if fresh:
                connection.execute(insert(tables.summed), fresh)

    def summed(self, silo: str) -> list[Summed]:
        """Return which of this silo's releases are in such sums."""
        with self._database.reading() as connection:
            rows = connection.execute(select(tables.summed).where(tables.summed.c.silo == silo)).all()
        return [Summed(row.study, row.round, row.attempt, row.tensor) for row in rows]

    def keep_cosigned(self, silo: str, signer: str, word: CosignedCheckpoint) -> None:
        """Store what this signer cosigned of this ledger in place of the last."""
        row = {
            "statement": word.stated.checkpoint,
            "stated_certificate_pem": word.stated.certificate_pem,
            "stated_signature": word.stated.signature,
            "certificate_pem": word.certificate_pem,
            "signature": word.signature,
        }
        self._put(tables.countersigned, silo, signer, row)

    def latest(self, silo: str) -> SignedCheckpoint | None:
        """Return this silo's last checkpoint, or None if there is none. Raises `DamagedCheckpointError`."""
        query = select(tables.statements).where(tables.statements.c.silo == silo, tables.statements.c.signer == silo)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        try:
            return SignedCheckpoint(bytes(row.statement), bytes(row.certificate_pem), bytes(row.signature))
        except MessageError as fault:
            raise DamagedCheckpointError(silo, silo, str(fault)) from None

    def cosigned(self, silo: str) -> dict[str, CosignedCheckpoint | DamagedCheckpointError]:
        """Return the last cosigned checkpoint of a ledger for each signer, or what is wrong with it."""
        query = (
            select(tables.countersigned)
            .where(tables.countersigned.c.silo == silo)
            .order_by(tables.countersigned.c.signer)
        )
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {row.signer: _cosigned_in(row) for row in rows}

    def _put(self, table: Table, silo: str, signer: str, row: Mapping[str, Any]) -> None:
        with self._database.writing() as connection:
            mine = (table.c.silo == silo, table.c.signer == signer)
            if connection.execute(update(table).where(*mine).values(row)).rowcount == 0:
                connection.execute(insert(table).values(silo=silo, signer=signer, **row))


def _take_over(connection: Connection, silo: str) -> None:
    """Remember what an earlier version stored last of a ledger, before it is replaced."""
    row = connection.execute(
        select(tables.statements).where(tables.statements.c.silo == silo, tables.statements.c.signer == silo)
    ).one_or_none()
    if row is None:
        return
    content = {"statement": row.statement, "certificate_pem": row.certificate_pem, "signature": row.signature}
    mine = (tables.received.c.silo == silo, tables.received.c.statement == row.statement)
    if connection.execute(select(tables.received.c.id).where(*mine)).first() is None:
        connection.execute(insert(tables.received).values(silo=silo, at="", **content))


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _cosigned_in(row: Row[Any]) -> CosignedCheckpoint | DamagedCheckpointError:
    try:
        stated = SignedCheckpoint(bytes(row.statement), bytes(row.stated_certificate_pem), bytes(row.stated_signature))
        return CosignedCheckpoint(stated, bytes(row.certificate_pem), bytes(row.signature))
    except MessageError as fault:
        return DamagedCheckpointError(row.silo, row.signer, str(fault))


def _signed_in(row: Row[Any]) -> SignedCheckpoint | DamagedCheckpointError:
    try:
        return SignedCheckpoint(bytes(row.statement), bytes(row.certificate_pem), bytes(row.signature))
    except MessageError as fault:
        return DamagedCheckpointError(row.silo, row.silo, str(fault))
