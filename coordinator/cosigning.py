"""Cosigns silos' ledgers, and has another silo cosign them too.

Guarantees: a checkpoint is signed only where its own silo signed it, about the data set of its certificate, and it does
not go back behind the last one of that ledger (`policies.ledger.cosign.advance`); it is stored before it is signed. A
checkpoint is handed to one other silo of the attempt, and to one more each time `PATIENCE_SECONDS` pass without an
answer; what comes back is verified, the stating silo's own signature too, stored and handed on. Who waits for whom is
in memory: a silo asks again, so nothing is lost with it.

Left to others: whether a cosignature is enough, which the stating silo decides; the coordinator can withhold a
silo's word, and then that silo computes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from coordinator.storage.checkpoints import Checkpoints
from crypto.errors import SignatureRefused
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.pki.dated import signer_at
from crypto.pki.identity import Identity, Role
from policies.errors import CosignError
from policies.ledger.cosign import Checkpoint, advance, follows
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint

log = structlog.get_logger()
PATIENCE_SECONDS = 2.0
"""How long one silo may take before another is asked, and before it is asked again."""
_LOOK_SECONDS = 0.25
"""How often a waiting call looks whether somebody's time is over."""


@dataclass
class _Asked:
    """A checkpoint that another silo is to cosign."""

    signed: SignedCheckpoint
    peers: tuple[str, ...]
    """In the order in which they are asked."""
    since: float
    handed: dict[str, float] = field(default_factory=dict)
    """Who has been handed it, and when last."""
    answer: CosignedCheckpoint | None = None

    def due(self, silo: str, now: float) -> bool:
        """Whether it is to be handed to this silo now."""
        asked = self.peers[: 1 + int((now - self.since) / PATIENCE_SECONDS)]
        again = silo not in self.handed or now - self.handed[silo] >= PATIENCE_SECONDS
        return self.answer is None and silo in asked and again

    def answered_by(self, given: Checkpoint) -> bool:
        """Whether this is a word on it: of its own head, or of one that it lacks and so does not let pass.

        A word on an earlier head that it contains was meant for an earlier question and came twice or late: the silo
        that asks has that one, and would wait for ever for a better one.
        """
        stated = Checkpoint.parse(self.signed.checkpoint)
        return given.head == stated.head or given.head not in (*stated.anchors, *stated.covers)


class Cosigning:
    """All ledgers of one coordinator's silos."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        credential: Credential,
        trust: Trust,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checkpoints, self._credential, self._trust, self._clock = checkpoints, credential, trust, clock
        self._changed = threading.Condition()
        self._asked: dict[str, _Asked] = {}
        self._stopped = False

    def latest(self, silo: str) -> tuple[CosignedCheckpoint, ...]:
        """What the coordinator and others cosigned last of a silo's ledger; nothing where it is unknown."""
        stated = self._checkpoints.latest(silo)
        return (*([self._sign(stated)] if stated else []), *self._checkpoints.cosigned(silo).values())

    def state(self, silo: str, signed: SignedCheckpoint, peers: Sequence[str], hold: float) -> Cosigned:
        """Cosign a silo's checkpoint; wait up to `hold` seconds for one of `peers` to do so.

        Raises `LedgerRolledBackError` where the ledger went back, `CosignError`, `CertificateError`,
        `SignatureRefused`; then nothing is stored.
        """
        self._require_signer(silo, signed.certificate_pem, signed.checkpoint, signed.signature)
        checkpoint = Checkpoint.parse(signed.checkpoint)
        if checkpoint.silo != silo:
            msg = f"{silo} may not state how far the ledger of {checkpoint.silo} has come"
            raise SignatureRefused(msg)
        require_data_set(signed.certificate_pem, checkpoint.data_set)
        until = self._clock() + hold
        with self._changed:
            self._keep(checkpoint, signed)
            asked = self._ask(checkpoint, signed, peers)
            while asked.answer is None and not self._stopped and (left := until - self._clock()) > 0:
                self._changed.wait(left)
            return Cosigned(self._sign(signed), asked.answer)

    def witness(self, silo: str, given: CosignedCheckpoint | None, hold: float) -> SignedCheckpoint | None:
        """Take what a silo has cosigned; wait up to `hold` seconds for a checkpoint that it is asked to.

        Raises `CosignError`, `CertificateError`, `SignatureRefused`.
        """
        if given is not None:
            self._take(silo, given)
        until = self._clock() + hold
        with self._changed:
            while True:
                now = self._clock()
                for asked in self._asked.values():
                    if asked.due(silo, now):
                        asked.handed[silo] = now
                        return asked.signed
                if self._stopped or now >= until:
                    return None
                self._changed.wait(min(until - now, _LOOK_SECONDS))

    def close(self) -> None:
        """Let all waiting calls go."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # --- inside -------------------------------------------------------------------------------------------------
    def _keep(self, checkpoint: Checkpoint, signed: SignedCheckpoint) -> None:
        """Store it as the latest, unless it is. Raises `LedgerRolledBackError`, `CosignError`."""
        last = self._checkpoints.latest(checkpoint.silo)
        advance(None if last is None else Checkpoint.parse(last.checkpoint), checkpoint)
        if last is None or last.checkpoint != signed.checkpoint:
            self._checkpoints.keep(checkpoint.silo, signed)

    def _ask(self, checkpoint: Checkpoint, signed: SignedCheckpoint, peers: Sequence[str]) -> _Asked:
        """Have it handed to the others, first to the next of them in a circle: so that each is asked by one."""
        own = checkpoint.silo
        circle = tuple(sorted(set(peers) - {own}, key=lambda name: (name < own, name)))
        asked = self._asked.get(own)
        same = asked is not None and asked.signed.checkpoint == signed.checkpoint
        if asked is None or not same or (asked.answer is None and asked.peers != circle):
            asked = self._asked[own] = _Asked(signed, circle, self._clock())
            self._changed.notify_all()
        return asked

    def _take(self, silo: str, given: CosignedCheckpoint) -> None:
        checkpoint = self._read(silo, given)
        own = checkpoint.silo
        with self._changed:
            if own == silo or self._checkpoints.latest(own) is None:
                msg = f"nobody asked {silo} to cosign the ledger of {own}"
                raise CosignError(msg)
            last = self._checkpoints.cosigned(own).get(silo)
            if last is None or follows(Checkpoint.parse(last.stated.checkpoint), checkpoint):
                self._checkpoints.keep_cosigned(own, silo, given)
            asked = self._asked.get(own)
            if asked is not None and asked.answer is None and asked.answered_by(checkpoint):
                asked.answer = given
                self._changed.notify_all()
        log.info("ledger cosigned", of=own, by=silo, entry=checkpoint.head.sequence)

    def _read(self, silo: str, given: CosignedCheckpoint) -> Checkpoint:
        """The checkpoint, where this silo cosigned what the ledger's own silo had signed."""
        stated = given.stated
        self._require_signer(silo, given.certificate_pem, stated.checkpoint, given.signature)
        checkpoint = Checkpoint.parse(stated.checkpoint)
        own = signer_at(self._trust, stated.certificate_pem, stated.checkpoint, stated.signature, checkpoint.at)
        if own.identity != Identity(Role.SILO, checkpoint.silo):
            msg = f"{own.identity} may not state how far the ledger of {checkpoint.silo} has come"
            raise SignatureRefused(msg)
        return checkpoint

    def _require_signer(self, silo: str, certificate_pem: bytes, checkpoint: bytes, signature: bytes) -> None:
        signer = self._trust.verify(certificate_pem, checkpoint, signature, role=Role.SILO)
        if signer.name != silo:
            msg = f"{silo} may not hand in what {signer.name} has signed"
            raise SignatureRefused(msg)

    def _sign(self, stated: SignedCheckpoint) -> CosignedCheckpoint:
        credential = self._credential
        return CosignedCheckpoint(stated, credential.certificate_pem, credential.sign(stated.checkpoint))
