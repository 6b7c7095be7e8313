"""What version 0.7 added: changes of a study's state, owners, authors, the archive, the audit log, silences.

Revision ID: 0.7
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Float, Integer, LargeBinary, String

revision = "0.7"
down_revision = "0.6"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "changes",
        Column("study", String(64), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("change", String, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "owners",
        Column("study", String(64), primary_key=True),
        Column("owner", String(128), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "authors",
        Column("study", String(64), primary_key=True),
        Column("certificate_pem", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        if_not_exists=True,
    )
    op.create_table("archived", Column("study", String(64), primary_key=True), if_not_exists=True)
    op.create_table(
        "seen",
        Column("silo", String(63), primary_key=True),
        Column("heard", Float, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "audit",
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("content", String, nullable=False),
        Column("head", String(64), nullable=False),
        Column("at", String(40), nullable=False),
        Column("who", String(128), nullable=False),
        Column("action", String(64), nullable=False),
        Column("outcome", String(64), nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_audit_who", "audit", ["who"], if_not_exists=True)
    op.create_table(
        "audit_cosignatures",
        Column("silo", String(63), primary_key=True),
        Column("entries", Integer, nullable=False),
        Column("head", LargeBinary, nullable=False),
        Column("broke_entries", Integer, nullable=False),
        Column("broke_head", LargeBinary, nullable=False),
        Column("certificate_pem", LargeBinary, nullable=False),
        Column("signature", LargeBinary, nullable=False),
        if_not_exists=True,
    )
