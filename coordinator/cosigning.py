"""Cosigns the checkpoints of silos' ledgers, and has another silo cosign them too.

Guarantees: the coordinator signs a checkpoint only if the ledger's own silo signed it, if it is about the data set of
that silo's certificate, and if it does not go back behind the last checkpoint of that ledger
(`policies.ledger.cosign.advance`). It stores the checkpoint before it signs. A checkpoint is given to one other silo of
the attempt, and to one more each time `PATIENCE_SECONDS` pass without an answer. An answer is verified (the signature
of the ledger's silo too), stored and passed on. Only memory holds who waits for whom. If it is lost, silos ask again.

Left to others: the silo whose ledger it is decides whether a cosignature is enough. The coordinator can withhold a
cosignature; that silo then computes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from coordinator.storage.checkpoints import Checkpoints, DamagedCheckpointError
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.pki.dated import signer_at
from crypto.pki.identity import Identity, Role
from policies.errors import CosignError
from policies.ledger.cosign import Checkpoint, advance, follows
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint

log = structlog.get_logger()
PATIENCE_SECONDS = 2.0
"""Time that one silo has to answer before another silo is asked too, and before the same silo is asked again."""
_LOOK_SECONDS = 0.25
"""Longest time between two looks of a waiting call whether a silo's time is over."""


@dataclass
class _Asked:
    """A checkpoint that another silo is to cosign."""

    signed: SignedCheckpoint
    peers: tuple[str, ...]
    """The other silos, in the order in which they are asked."""
    since: float
    handed: dict[str, float] = field(default_factory=dict)
    """The silos that were given the checkpoint, each with the last time."""
    answer: CosignedCheckpoint | None = None

    def due(self, silo: str, now: float) -> bool:
        """Whether the checkpoint must be given to this silo now."""
        asked = self.peers[: 1 + int((now - self.since) / PATIENCE_SECONDS)]
        again = silo not in self.handed or now - self.handed[silo] >= PATIENCE_SECONDS
        return self.answer is None and silo in asked and again

    def answered_by(self, given: Checkpoint) -> bool:
        """Whether a cosigned checkpoint (`given`) answers this one: it has the same head, or a newer one.

        With a newer head the witness knows an entry that this ledger lacks, and therefore does not cosign it. A head
        that a recovery charged for (`covers`) is no newer one. Every other checkpoint is no answer, whoever sends it:
        it may come late, twice, or from a silo that replays old ones, and the asking silo would wait for ever. It is
        kept all the same, and the asking silo hears of it (`latest`).
        """
        stated = Checkpoint.parse(self.signed.checkpoint)
        newer = given.head.sequence > stated.head.sequence and given.head not in stated.covers
        return given.head == stated.head or newer


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
        self._older: dict[str, dict[str, CosignedCheckpoint]] = {}
        """By ledger and signer: what a signer showed last, if it is older than what it has cosigned since."""
        self._told: set[str] = set()
        """What was said of damaged checkpoints; each is said once."""
        self._stopped = False

    def latest(self, silo: str) -> tuple[CosignedCheckpoint, ...]:
        """Return what the coordinator and others cosigned last of a silo's ledger; empty if the ledger is unknown.

        A signer that was put back to an older state shows what it knows now. That comes too: it signs again as soon as
        the silo's checkpoint names this head.
        """
        stated = self._stated(silo)
        with self._changed:
            older = tuple(self._older.get(silo, {}).values())
        return (*([self._sign(stated)] if stated else []), *self._cosigned(silo).values(), *older)

    def state(
        self,
        silo: str,
        signed: SignedCheckpoint,
        peers: Sequence[str],
        hold: float,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Cosigned:
        """Cosign a silo's checkpoint; wait up to `hold` seconds, while it is `wanted`, for one of `peers` to do so.

        Raises `LedgerRolledBackError` if the ledger went back, `CosignError`, `CertificateError` or `SignatureRefused`.
        Nothing is stored then.
        """
        self._require_signer(silo, signed.certificate_pem, signed.checkpoint, signed.signature)
        checkpoint = Checkpoint.parse(signed.checkpoint)
        if checkpoint.silo != silo:
            msg = f"{silo} may not sign a checkpoint of the ledger of {checkpoint.silo}"
            raise SignatureRefused(msg)
        require_data_set(signed.certificate_pem, checkpoint.data_set)
        until = self._clock() + hold
        with self._changed:
            self._keep(checkpoint, signed)
            asked = self._ask(checkpoint, signed, peers)
            while asked.answer is None and not self._stopped and (left := until - self._clock()) > 0:
                if not wanted():
                    break
                self._changed.wait(min(left, _LOOK_SECONDS))
            return Cosigned(self._sign(signed), asked.answer)

    def witness(
        self, silo: str, given: CosignedCheckpoint | None, hold: float, wanted: Callable[[], bool] = lambda: True
    ) -> SignedCheckpoint | None:
        """Take a checkpoint that a silo has cosigned. Wait up to `hold` seconds for the next one that it must cosign.

        The wait ends as soon as the answer is not `wanted` any more: what nobody reads is not handed out. Raises
        `CosignError`, `CertificateError`, `SignatureRefused`.
        """
        if given is not None:
            self._take(silo, given)
        until = self._clock() + hold
        with self._changed:
            while wanted():
                now = self._clock()
                for asked in self._asked.values():
                    if asked.due(silo, now):
                        asked.handed[silo] = now
                        return asked.signed
                if self._stopped or now >= until:
                    return None
                self._changed.wait(min(until - now, _LOOK_SECONDS))
        return None

    def close(self) -> None:
        """End all waiting calls."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # --- inside -------------------------------------------------------------------------------------------------
    def _stated(self, silo: str) -> SignedCheckpoint | None:
        """Return a ledger's latest checkpoint. One that is damaged is told and left out: the peers know theirs."""
        try:
            stated = self._checkpoints.latest(silo)
            if stated is not None:
                self._require_whole(silo, silo, stated, stated.certificate_pem, stated.signature)
        except DamagedCheckpointError as fault:
            self._tell(fault)
            return None
        return stated

    def _cosigned(self, silo: str) -> dict[str, CosignedCheckpoint]:
        """Return what others cosigned of a ledger, by signer, without what is damaged."""
        found = {}
        for signer, given in self._checkpoints.cosigned(silo).items():
            try:
                if isinstance(given, DamagedCheckpointError):
                    raise given
                self._require_whole(silo, signer, given.stated, given.certificate_pem, given.signature)
            except DamagedCheckpointError as fault:
                self._tell(fault)
            else:
                found[signer] = given
        return found

    def _require_whole(
        self, silo: str, signer: str, stated: SignedCheckpoint, certificate_pem: bytes, signature: bytes
    ) -> None:
        """Raise `DamagedCheckpointError` unless the stored bytes are the signed ones.

        A certificate that counts no more says nothing of damage.
        """
        try:
            checkpoint = Checkpoint.parse(stated.checkpoint)
            signer_at(self._trust, certificate_pem, stated.checkpoint, signature, checkpoint.at)
        except CertificateError:
            return
        except (CosignError, SignatureRefused) as fault:
            raise DamagedCheckpointError(silo, signer, str(fault)) from None

    def _tell(self, fault: DamagedCheckpointError) -> None:
        if str(fault) not in self._told:
            self._told.add(str(fault))
            log.error("a stored checkpoint is damaged", why=str(fault))

    def _keep(self, checkpoint: Checkpoint, signed: SignedCheckpoint) -> None:
        """Store the checkpoint as the latest, unless it is already. Raises `LedgerRolledBackError`, `CosignError`."""
        last = self._stated(checkpoint.silo)
        advance(None if last is None else Checkpoint.parse(last.checkpoint), checkpoint)
        if last is None or last.checkpoint != signed.checkpoint:
            self._checkpoints.keep(checkpoint.silo, signed)

    def _ask(self, checkpoint: Checkpoint, signed: SignedCheckpoint, peers: Sequence[str]) -> _Asked:
        """Have the checkpoint given to the other silos, in a circle that begins with the next name.

        So every silo is asked first by a different one.
        """
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
            if own == silo or self._stated(own) is None:
                msg = f"nobody asked {silo} to cosign the ledger of {own}; send only answers to checkpoints handed out"
                raise CosignError(msg)
            last = self._cosigned(own).get(silo)
            if last is None or follows(Checkpoint.parse(last.stated.checkpoint), checkpoint):
                self._checkpoints.keep_cosigned(own, silo, given)
                self._older.get(own, {}).pop(silo, None)
            else:
                self._older.setdefault(own, {})[silo] = given
            asked = self._asked.get(own)
            if asked is not None and asked.answer is None and asked.answered_by(checkpoint):
                asked.answer = given
                self._changed.notify_all()
        log.info("ledger cosigned", of=own, by=silo, entry=checkpoint.head.sequence)

    def _read(self, silo: str, given: CosignedCheckpoint) -> Checkpoint:
        """Return the checkpoint, if this silo cosigned it after the ledger's own silo had signed it."""
        stated = given.stated
        self._require_signer(silo, given.certificate_pem, stated.checkpoint, given.signature)
        checkpoint = Checkpoint.parse(stated.checkpoint)
        own = signer_at(self._trust, stated.certificate_pem, stated.checkpoint, stated.signature, checkpoint.at)
        if own.identity != Identity(Role.SILO, checkpoint.silo):
            msg = f"{own.identity} may not sign a checkpoint of the ledger of {checkpoint.silo}"
            raise SignatureRefused(msg)
        return checkpoint

    def _require_signer(self, silo: str, certificate_pem: bytes, checkpoint: bytes, signature: bytes) -> None:
        signer = self._trust.verify(certificate_pem, checkpoint, signature, role=Role.SILO)
        if signer.name != silo:
            msg = f"{silo} may not hand in a checkpoint that {signer.name} has signed; let {signer.name} hand it in"
            raise SignatureRefused(msg)

    def _sign(self, stated: SignedCheckpoint) -> CosignedCheckpoint:
        credential = self._credential
        return CosignedCheckpoint(stated, credential.certificate_pem, credential.sign(stated.checkpoint))
