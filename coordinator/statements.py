"""What silos have stated about their ledgers, and what others countersigned of it: the latest of each, durably.

A silo has one ledger. Every method is one transaction, durable when it returns. Signatures and rules are
`countersigning`'s.
"""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Column, Engine, LargeBinary, MetaData, String, Table, insert, select, update

from protos.statements import SignedStatement

_metadata = MetaData()
_statements = Table(
    "statements",
    _metadata,
    Column("silo", String(63), primary_key=True),
    Column("signer", String(63), primary_key=True),
    Column("statement", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""Whose ledger, and which silo signed: the ledger's own, which states it, or another, which countersigned."""


class Statements:
    """The latest statement of each ledger, by signer, in the coordinator's database."""

    def __init__(self, engine: Engine) -> None:
        """Take the connections of an open store; make the table where there is none."""
        self._engine = engine
        _metadata.create_all(engine)

    def keep(self, silo: str, signer: str, signed: SignedStatement) -> None:
        """Replace what this signer signed last of this ledger."""
        table = _statements.c
        row = asdict(signed)
        with self._engine.begin() as connection:
            mine = (table.silo == silo, table.signer == signer)
            if connection.execute(update(_statements).where(*mine).values(row)).rowcount == 0:
                connection.execute(insert(_statements).values(silo=silo, signer=signer, **row))

    def latest(self, silo: str) -> dict[str, SignedStatement]:
        """What was signed last of a ledger, by signer; its own silo among them."""
        table = _statements.c
        query = select(_statements).where(table.silo == silo).order_by(table.signer)
        with self._engine.begin() as connection:
            rows = connection.execute(query).all()
        return {
            row.signer: SignedStatement(bytes(row.statement), bytes(row.certificate_pem), bytes(row.signature))
            for row in rows
        }
