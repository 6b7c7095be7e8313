"""Parties that countersign a ledger, without coordinator or network."""

from __future__ import annotations

from crypto.certificates import Credential
from policies.countersign import Countersignature, Statement
from protos.statements import SignedStatement


def signed(statement: Statement, credential: Credential) -> SignedStatement:
    """A statement with somebody's signature, as it goes over the wire."""
    return SignedStatement(statement.message, credential.certificate_pem, credential.sign(statement.message))


def countersigned(statement: Statement, credential: Credential) -> Countersignature:
    """A statement with somebody's signature, as the gate takes it."""
    return Countersignature(statement, "", credential.certificate_pem, credential.sign(statement.message))
