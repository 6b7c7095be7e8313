"""What version 0.6 added: ledgers' earlier checkpoints, releases that are in sums, the probe's room.

Revision ID: 0.6
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Integer, LargeBinary, String, UniqueConstraint

revision = "0.6"
down_revision = "0.5"


def upgrade() -> None:
    """Make what is missing: databases of version 0.6 have no mark of their version."""
    op.create_table(
        "received_statements",
        Column("id", Integer, primary_key=True),
        Column("silo", String(63), nullable=False),
        Column("at", String(40), nullable=False),
        Column("statement", LargeBinary, nullable=False),
        Column("certificate_pem", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_received_statements_silo", "received_statements", ["silo"], if_not_exists=True)
    op.create_table(
        "summed_releases",
        Column("id", Integer, primary_key=True),
        Column("silo", String(63), nullable=False),
        Column("study", String(64), nullable=False),
        Column("round", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("tensor", String(16), nullable=False),
        UniqueConstraint("silo", "study", "round", "attempt", "tensor"),
        if_not_exists=True,
    )
    op.create_index("ix_summed_releases_silo", "summed_releases", ["silo"], if_not_exists=True)
    op.create_table(
        "room",
        Column("id", Integer, primary_key=True),
        Column("blob", LargeBinary, nullable=False),
        if_not_exists=True,
    )
