"""The tables of the coordinator's database, as this version has them. `migrations` says how they came to be.

Every column is filled, and as wide as its longest word: PostgreSQL refuses a longer one.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

METADATA = MetaData()
lease = Table(
    "lease",
    METADATA,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Integer, nullable=False, unique=True),
    Column("holder", String(32), nullable=False),
    Column("at", String(255), nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("spool", String(32), nullable=False),
)
"""One row, with `id` 1: which coordinator may write. The epoch is the key, so that PostgreSQL lets a renewal, which
changes `beat` alone, pass beside transactions that have checked the epoch, and makes a takeover wait for them."""
NAME: Final = 63
"""The column `name` keeps studies apart that run at once. A revision whose name went to the next one has the beginning
of its digest there; its name stands in its state."""
studies = Table(
    "studies",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("name", String(NAME), nullable=False, unique=True),
    Column("canonical", LargeBinary, nullable=False),
    Column("progress", String, nullable=False),
)
changes = Table(
    "changes",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("change", String, nullable=False),
)
"""What has changed since the whole state in `studies`, in order from 1. The process that stored the whole state has
written all of it, so no change is read by another version's rules."""
created = Table(
    "created",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False, unique=True),
)
"""The order of the studies. Studies of version 0.1 have no row here."""
owners = Table(
    "owners",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
)
"""Who created each study, by the URI in the certificate. Studies of versions up to 0.6 have no row here."""
authors = Table(
    "authors",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""The signature of each study's author, as it was handed in. Studies of versions up to 0.6 have no row here."""
archived = Table("archived", METADATA, Column("study", String(64), primary_key=True))
"""Studies that are left out of lists."""
seen = Table(
    "seen",
    METADATA,
    Column("silo", String(63), primary_key=True),
    Column("heard", Float, nullable=False),
)
"""When each silo last called, stored every half a minute, so that a restart forgets no silence."""
contents = Table(
    "contents",
    METADATA,
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
)
phases = Table(
    "phases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("study", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("tensor", String(16), nullable=False),
    Column("seconds", Float, nullable=False),
)
publications = Table(
    "publications",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("silo", String(63), primary_key=True),
    Column("blob", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
)
room = Table(
    "room",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("blob", LargeBinary, nullable=False),
)
"""Always empty, except while `Store.probe` writes."""
told = Table(
    "told",
    METADATA,
    Column("study", String(64), primary_key=True),
    Column("silo", String(63), primary_key=True),
)
audit = Table(
    "audit",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("content", String, nullable=False),
    Column("head", String(64), nullable=False),
    Column("at", String(40), nullable=False),
    Column("who", String(128), nullable=False, index=True),
    Column("action", String(64), nullable=False),
    Column("outcome", String(64), nullable=False),
)
audit_cosignatures = Table(
    "audit_cosignatures",
    METADATA,
    Column("silo", String(63), primary_key=True),
    Column("entries", Integer, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("broke_entries", Integer, nullable=False),
    Column("broke_head", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
statements = Table(
    "statements",
    METADATA,
    Column("silo", String(63), primary_key=True),
    Column("signer", String(63), primary_key=True),
    Column("statement", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""Keyed by the silo whose ledger it is. That silo is also the signer."""
countersigned = Table(
    "countersigned_statements",
    METADATA,
    Column("silo", String(63), primary_key=True),
    Column("signer", String(63), primary_key=True),
    Column("statement", LargeBinary, nullable=False),
    Column("stated_certificate_pem", LargeBinary, nullable=False),
    Column("stated_signature", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
"""Keyed by the ledger's silo and by another silo, the signer. The signature of the ledger's silo lies beside it."""
received = Table(
    "received_statements",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("silo", String(63), nullable=False, index=True),
    Column("at", String(40), nullable=False),
    Column("statement", LargeBinary, nullable=False),
    Column("certificate_pem", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)
summed = Table(
    "summed_releases",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("silo", String(63), nullable=False, index=True),
    Column("study", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("tensor", String(16), nullable=False),
    UniqueConstraint("silo", "study", "round", "attempt", "tensor"),
)
