"""The tables of version 0.5. Databases of it, and of earlier versions, have some of them and no mark of their version.

Revision ID: 0.5
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Float, Integer, LargeBinary, String, UniqueConstraint

revision = "0.5"
down_revision = None


def upgrade() -> None:
    """Make what is missing."""
    op.create_table(
        "studies",
        Column("study", String(64), primary_key=True),
        Column("name", String(63), nullable=False, unique=True),
        Column("canonical", LargeBinary, nullable=False),
        Column("progress", String, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "created",
        Column("id", Integer, primary_key=True),
        Column("study", String(64), nullable=False, unique=True),
        if_not_exists=True,
    )
    op.create_table(
        "contents",
        Column("id", Integer, primary_key=True),
        Column("study", String(64), nullable=False),
        Column("round", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("slot", String(32), nullable=False),
        Column("silo", String(63), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("sha256", String(64), nullable=False),
        Column("signature", LargeBinary, nullable=False),
        UniqueConstraint("study", "round", "attempt", "slot", "silo"),
        if_not_exists=True,
    )
    op.create_table(
        "phases",
        Column("id", Integer, primary_key=True),
        Column("study", String(64), nullable=False),
        Column("round", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("phase", String(16), nullable=False),
        Column("tensor", String(16), nullable=False),
        Column("seconds", Float, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "publications",
        Column("study", String(64), primary_key=True),
        Column("round", Integer, primary_key=True),
        Column("attempt", Integer, primary_key=True),
        Column("silo", String(63), primary_key=True),
        Column("blob", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        Column("certificate_pem", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "told",
        Column("study", String(64), primary_key=True),
        Column("silo", String(63), primary_key=True),
        if_not_exists=True,
    )
    op.create_table(
        "statements",
        Column("silo", String(63), primary_key=True),
        Column("signer", String(63), primary_key=True),
        Column("statement", LargeBinary, nullable=False),
        Column("certificate_pem", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "countersigned_statements",
        Column("silo", String(63), primary_key=True),
        Column("signer", String(63), primary_key=True),
        Column("statement", LargeBinary, nullable=False),
        Column("stated_certificate_pem", LargeBinary, nullable=False),
        Column("stated_signature", LargeBinary, nullable=False),
        Column("certificate_pem", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        if_not_exists=True,
    )
