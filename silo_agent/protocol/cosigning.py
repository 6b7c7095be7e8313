"""Has this silo's ledger cosigned: asks the coordinator and, through it, another silo.

Guarantees: what others know of the ledger is handed to the gate, which keeps it first and then refuses a ledger that
lacks it. A checkpoint that was sent is sent again byte for byte until something changes. What is enough, and that
nothing is computed before it, is the gate's rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from crypto.errors import CryptoError
from policies.ledger.cosign import Checkpoint, Cosignature
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import Place
from silo_agent.gate import Gate
from silo_agent.protocol.client import Client, WentBackRefused

log = structlog.get_logger()


class Cosigning:
    """One silo's ledger, before the others."""

    def __init__(self, client: Client, gate: Gate) -> None:
        self._client, self._gate = client, gate
        self._sent: tuple[Checkpoint, SignedCheckpoint] | None = None

    def remember(self) -> None:
        """Ask what others cosigned last; keep it. Raises `LedgerRolledBackError` where the ledger lacks it."""
        for signed in self._client.cosigned():
            try:
                self._gate.keep_cosigned([cosignature(signed)])
            except CryptoError as fault:
                # A certificate that ran out since; what its silo knows it says when it is asked to sign.
                log.warning("a cosignature does not count any more", why=str(fault))

    def ask(self, place: Place) -> Iterable[Cosignature]:
        """Ask once, for an attempt that was charged; returns what came, which may not be enough yet.

        Raises `CallRefused` where the attempt is over, `LedgerRolledBackError`, `CosignError`.
        """
        try:
            found = self._client.cosign(place, self._signed())
        except WentBackRefused:
            # It remembers a head that this silo never heard of: named among the anchors, it will do.
            self.remember()
            found = self._client.cosign(place, self._signed())
        return [cosignature(item) for item in (found.coordinator, found.peer) if item is not None]

    def _signed(self) -> SignedCheckpoint:
        fresh = self._gate.checkpoint()
        if self._sent is None or replace(fresh, at=self._sent[0].at) != self._sent[0]:
            self._sent = (fresh, self._client.signed(fresh.message))
        return self._sent[1]


def cosignature(given: CosignedCheckpoint) -> Cosignature:
    """What came over the wire, to be checked. Raises `CosignError` where it says nothing about a ledger."""
    stated = given.stated
    checkpoint = Checkpoint.parse(stated.checkpoint)
    return Cosignature(checkpoint, "", given.certificate_pem, given.signature, stated.certificate_pem, stated.signature)
