"""The tables of a state folder's database, except those of promises and counts (`promises`, `anchored`).

0.6 wrote the same tables, with plain digests and without `folder`.
"""

from __future__ import annotations

from sqlalchemy import Column, Integer, LargeBinary, MetaData, String, Table, UniqueConstraint

metadata = MetaData()
studies = Table(
    "studies",
    metadata,
    Column("study", String(64), primary_key=True),
    Column("canonical", LargeBinary, nullable=False),
    Column("committed", Integer, nullable=False),
    Column("why", String, nullable=False),
)
releases = Table(
    "releases",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("tensor", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("label", String(64), nullable=False),
    UniqueConstraint("study", "round", "tensor", "attempt"),
)
sealed = Table(
    "sealed",
    metadata,
    Column("label", String(64), primary_key=True),
    Column("sha256", String(64), nullable=False),
)
attempts = Table(
    "attempts",
    metadata,
    Column("study", String(64), primary_key=True),
    Column("body", String, nullable=False),
)
endings = Table(
    "endings",
    metadata,
    Column("study", String(64), primary_key=True),
    Column("ended", String(10), nullable=False),
    Column("noticed", String(10), nullable=False),
    Column("removed", String(10), nullable=False),
)
"""Days are written as YYYY-MM-DD, and empty for none."""
folder = Table(
    "folder",
    metadata,
    Column("name", String(16), primary_key=True),
    Column("value", String(64), nullable=False),
)
"""What belongs to the folder as a whole: which secret it rests on, and how many people had withdrawn."""
