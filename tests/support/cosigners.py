"""Parties that state and cosign ledgers: alone, and as calls to a coordinator."""

from __future__ import annotations

from crypto.pki.certificates import Credential
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, Cosignature, checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.plan.cost import Cost
from protos import codec
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.messages import Place
from protos.v1 import silo_pb2
from support.certificates import data_set_of
from support.silos import Silo

AT = "2026-01-31T08:00:00+00:00"
SECONDS = 300.0


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


def stated(silo: Silo, entries: int, branch: str = "s") -> Checkpoint:
    """How far a ledger of so many equal charges has come."""
    genesis, chain = Genesis(data_set_of(silo.name), 0.2, 1e-5), []
    for number in range(entries):
        head = chain[-1].head if chain else EntryRef(0, genesis_row(genesis)[2])
        debit = Debit(branch, "p", number, 1, {"heads": Cost("training", 1.0, 40.0, 1)})
        chain.append(next_entry(head, debit, AT, 0.1 * (number + 1)))
    return checkpoint(silo.name, genesis, chain, AT)


def cosign(silo: Silo, place: Place, made: SignedCheckpoint, hold: float = 0.0) -> Cosigned:
    """Ask the coordinator, and whom it asks, to sign."""
    request = silo_pb2.CountersignRequest(place=codec.to_wire(place), statement=codec.to_wire(made), hold_seconds=hold)
    return codec.from_wire(Cosigned, silo.silo.Countersign(request, timeout=SECONDS))


def witness(silo: Silo, given: CosignedCheckpoint | None = None, hold: float = 0.0) -> SignedCheckpoint | None:
    """Hand in a word about another's ledger, and take the next that is asked for."""
    request = silo_pb2.WitnessRequest(given=given and codec.to_wire(given), hold_seconds=hold)
    reply = silo.silo.Witness(request, timeout=SECONDS)
    return codec.from_wire(SignedCheckpoint, reply.statement) if reply.HasField("statement") else None


def latest(silo: Silo) -> list[CosignedCheckpoint]:
    """What was cosigned last of its ledger."""
    request = silo_pb2.LatestCountersignaturesRequest()
    stream = silo.silo.LatestCountersignatures(request, timeout=SECONDS)
    return [codec.from_wire(CosignedCheckpoint, one) for one in stream]
