"""Has this silo's ledger cosigned: asks the coordinator and, through it, another silo.

Guarantees: the gate is given every cosignature that others hold of this ledger. It keeps the cosignature first, and
then refuses to work if the ledger lacks the cosigned entry. A checkpoint is sent again byte for byte until the ledger
changes. The gate decides how many cosignatures are enough, and computes nothing before it has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from crypto.errors import CryptoError
from policies.errors import CosignError
from policies.ledger.cosign import Checkpoint, Cosignature
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import Place
from silo_agent.gate import Gate
from silo_agent.protocol.calls.client import Client, WentBackRefused

log = structlog.get_logger()


class Cosigning:
    """Shows this silo's ledger to the others and collects their cosignatures."""

    def __init__(self, client: Client, gate: Gate) -> None:
        self._client, self._gate = client, gate
        self._sent: tuple[Checkpoint, SignedCheckpoint] | None = None

    def remember(self) -> None:
        """Ask for the others' latest cosignatures and keep them.

        Raises `LedgerRolledBackError` if the ledger lacks an entry that others have cosigned.
        """
        for signed in self._client.cosigned():
            try:
                self._gate.keep_cosigned([cosignature(signed)])
            except (CryptoError, CosignError) as fault:
                # The signer's certificate has expired since, or the coordinator's database is damaged. That silo
                # repeats what it knows when it is asked to sign.
                log.warning("a cosignature does not count", why=str(fault))

    def ask(self, place: Place) -> Iterable[Cosignature]:
        """Ask once, for an attempt that was charged. Returns the cosignatures that came; they may not be enough yet.

        Raises `CallRefused` if the attempt is over, `LedgerRolledBackError`, `CosignError`.
        """
        try:
            found = self._client.cosign(place, self._signed(), self._evidence())
        except WentBackRefused:
            # The coordinator remembers an entry that this silo did not know to be cosigned. `remember` fetches the
            # cosignature, so the next checkpoint names that entry among its anchors and the coordinator accepts it.
            self.remember()
            found = self._client.cosign(place, self._signed(), self._evidence())
        if found.peer is None:
            # A peer that knows another history of this ledger does not sign; what it holds says so.
            self.remember()
        return [item for item in map(_usable, (found.coordinator, found.peer)) if item is not None]

    def _evidence(self) -> CosignedCheckpoint | None:
        item = self._gate.evidence
        if item is None:
            return None
        stated = SignedCheckpoint(item.checkpoint.message, item.stated_certificate, item.stated_signature)
        return CosignedCheckpoint(stated, item.certificate, item.signature)

    def _signed(self) -> SignedCheckpoint:
        fresh = self._gate.checkpoint()
        if self._sent is None or replace(fresh, at=self._sent[0].at) != self._sent[0]:
            self._sent = (fresh, self._client.signed(fresh.message))
        return self._sent[1]


def _usable(given: CosignedCheckpoint | None) -> Cosignature | None:
    """The cosignature, or None if there is none or it holds no checkpoint. The gate checks its signature."""
    try:
        return None if given is None else cosignature(given)
    except CosignError as fault:
        log.warning("a cosignature does not count", why=str(fault))
        return None


def cosignature(given: CosignedCheckpoint) -> Cosignature:
    """The cosignature that came over the wire, not yet checked. Raises `CosignError` if it holds no checkpoint."""
    stated = given.stated
    checkpoint = Checkpoint.parse(stated.checkpoint)
    return Cosignature(checkpoint, "", given.certificate_pem, given.signature, stated.certificate_pem, stated.signature)
