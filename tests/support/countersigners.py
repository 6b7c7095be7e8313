"""Parties that state and countersign ledgers, without coordinator or network."""

from __future__ import annotations

from crypto.certificates import Credential
from policies.countersign import Countersignature, Statement
from protos.statements import CountersignedStatement, SignedStatement


def signed(statement: Statement, silo: Credential) -> SignedStatement:
    """A statement with its silo's signature, as it goes over the wire."""
    return SignedStatement(statement.message, silo.certificate_pem, silo.sign(statement.message))


def witnessed(stated: SignedStatement, credential: Credential) -> CountersignedStatement:
    """The same with somebody else's signature."""
    return CountersignedStatement(stated, credential.certificate_pem, credential.sign(stated.statement))


def countersigned(statement: Statement, credential: Credential, silo: Credential) -> Countersignature:
    """A statement with its silo's signature and somebody else's, as the gate takes it."""
    message = statement.message
    return Countersignature(
        statement, "", credential.certificate_pem, credential.sign(message), silo.certificate_pem, silo.sign(message)
    )
