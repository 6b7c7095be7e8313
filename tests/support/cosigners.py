"""Parties that state and cosign ledgers, without coordinator or network."""

from __future__ import annotations

from crypto.pki.certificates import Credential
from policies.ledger.cosign import Checkpoint, Cosignature
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint


def signed(checkpoint: Checkpoint, silo: Credential) -> SignedCheckpoint:
    """A statement with its silo's signature, as it goes over the wire."""
    return SignedCheckpoint(checkpoint.message, silo.certificate_pem, silo.sign(checkpoint.message))


def witnessed(stated: SignedCheckpoint, credential: Credential) -> CosignedCheckpoint:
    """The same with somebody else's signature."""
    return CosignedCheckpoint(stated, credential.certificate_pem, credential.sign(stated.checkpoint))


def cosigned(checkpoint: Checkpoint, credential: Credential, silo: Credential) -> Cosignature:
    """A statement with its silo's signature and somebody else's, as the gate takes it."""
    message = checkpoint.message
    return Cosignature(
        checkpoint, "", credential.certificate_pem, credential.sign(message), silo.certificate_pem, silo.sign(message)
    )
