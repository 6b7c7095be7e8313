"""Cosigns the checkpoints of silos' ledgers, and has another silo cosign them too.

Guarantees: the coordinator signs a checkpoint only if the ledger's own silo signed it, if it is about the data set of
that silo's certificate, and if it does not go back behind the last checkpoint of that ledger that still binds
(`policies.ledger.cosign.advance`). It signs no charges that no study of that silo can have made, and lets a revoked key
forgive only what is in no sum (`policies.ledger.judging`). It stores the checkpoint before it signs, with its own time
of receipt. A checkpoint is given to one other silo of
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
from datetime import UTC, datetime
from typing import Protocol

import structlog

from coordinator.bells import Bells
from coordinator.storage.checkpoints import Checkpoints, DamagedCheckpointError
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.pki.dated import signer_at
from crypto.pki.identity import Identity, Role
from policies.documents.study import Study
from policies.errors import CosignError
from policies.ledger.cosign import Checkpoint, advance, follows
from policies.ledger.judging import SeenCheckpoint, require_believable, standing
from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint

log = structlog.get_logger()
PATIENCE_SECONDS = 2.0
"""Time that one silo has to answer before another silo is asked too, and before the same silo is asked again."""
LOOK_SECONDS = 0.5
"""Time between two checks for silos that must be asked because another one has not answered."""


class StudyRegister(Protocol):
    """The studies that the coordinator knows."""

    def studies_of(self, silo: str) -> tuple[list[Study], list[Study]]:
        """Return those that invite this silo: those that run, and those that have ended."""


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
    evidence: CosignedCheckpoint | None = None
    """The coordinator's own signature on the checkpoint before, for silos that remember less."""

    def due(self, silo: str, now: float) -> bool:
        """Whether the checkpoint must be given to this silo now."""
        again = silo not in self.handed or now - self.handed[silo] >= PATIENCE_SECONDS
        return self.answer is None and again and silo in self.asked(now)

    def asked(self, now: float) -> tuple[str, ...]:
        """Return the silos that are asked by now."""
        return self.peers[: 1 + int((now - self.since) / PATIENCE_SECONDS)]

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


class KnownLedgers:
    """All ledgers of one coordinator's silos."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        credential: Credential,
        trust: Trust,
        clock: Callable[[], float] = time.monotonic,
        *,
        studies: StudyRegister,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """A charge that none of `studies` explains is not cosigned."""
        self._studies, self._today = studies, today
        self._checkpoints, self._credential, self._trust, self._clock = checkpoints, credential, trust, clock
        self._lock = threading.RLock()
        self.requests, self.answers = Bells(), Bells()
        """Rung for a silo that must cosign, and for one whose checkpoint was cosigned."""
        self._asked: dict[str, _Asked] = {}
        self._older: dict[str, dict[str, CosignedCheckpoint]] = {}
        """By ledger and signer: what a signer showed last, if it is older than what it has cosigned since."""
        self._told: set[str] = set()
        """What was said of damaged checkpoints; each is said once."""
        self._looked = 0.0

    def latest(self, silo: str) -> tuple[CosignedCheckpoint, ...]:
        """Return what the coordinator and others cosigned last of a silo's ledger; empty if the ledger is unknown.

        A signer that was put back to an older state shows what it knows now. That comes too: it signs again as soon as
        the silo's checkpoint names this head.
        """
        stated = self._standing(silo)
        with self._lock:
            older = tuple(self._older.get(silo, {}).values())
        others = [*self._cosigned(silo).values(), *older]
        return (*([self._sign(stated)] if stated else []), *(one for one in others if self._binds(silo, one.stated)))

    def state(
        self,
        silo: str,
        signed: SignedCheckpoint,
        peers: Sequence[str],
        *,
        evidence: CosignedCheckpoint | None = None,
    ) -> Cosigned:
        """Cosign a silo's checkpoint, and have one of `peers` do so too. Its answer is there if it has come before.

        `evidence` is what the silo shows of this coordinator's earlier signatures. Raises `LedgerRolledBackError` if
        the ledger went back, `CosignError` (also for charges that nothing explains), `CertificateError` or
        `SignatureRefused`. Nothing is stored then.
        """
        self._require_signer(silo, signed.certificate_pem, signed.checkpoint, signed.signature)
        checkpoint = Checkpoint.parse(signed.checkpoint)
        if checkpoint.silo != silo:
            msg = f"{silo} may not sign a checkpoint of the ledger of {checkpoint.silo}"
            raise SignatureRefused(msg)
        require_data_set(signed.certificate_pem, checkpoint.data_set)
        with self._lock:
            before = self._standing(silo)
            self._keep(checkpoint, signed, evidence)
            asked = self._ask(checkpoint, signed, peers, before)
            return Cosigned(self._sign(signed), asked.answer)

    def answered(self, silo: str, signed: SignedCheckpoint) -> Cosigned | None:
        """Return what `state` does, if another silo has answered this checkpoint. The bell of `answers` rings then."""
        with self._lock:
            asked = self._asked.get(silo)
            if asked is None or asked.answer is None or asked.signed.checkpoint != signed.checkpoint:
                return None
            return Cosigned(self._sign(signed), asked.answer)

    def take(self, silo: str, given: CosignedCheckpoint) -> None:
        """Take a checkpoint that a silo has cosigned.

        Raises `CosignError`, `CertificateError`, `SignatureRefused`.
        """
        checkpoint = self._read(silo, given)
        own = checkpoint.silo
        with self._lock:
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
                self.answers.ring([own])
        log.info("ledger cosigned", of=own, by=silo, entry=checkpoint.head.sequence)

    def hand_out(self, silo: str) -> Handed | None:
        """Return the next checkpoint that a silo must cosign, if there is one. It counts as handed out.

        The bell of `requests` rings for whoever is asked.
        """
        with self._lock:
            now = self._clock()
            for asked in self._asked.values():
                if asked.due(silo, now):
                    asked.handed[silo] = now
                    return Handed(asked.signed, asked.evidence)
        return None

    def pass_time(self) -> None:
        """Ring for those who are asked because others have not answered. Call it often; it looks twice a second."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return
        with self._lock:
            self._looked = now
            waiting = [asked for asked in self._asked.values() if asked.answer is None]
            due = {name for asked in waiting for name in asked.asked(now) if asked.due(name, now)}
        self.requests.ring(due)

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

    def _keep(
        self, checkpoint: Checkpoint, signed: SignedCheckpoint, evidence: CosignedCheckpoint | None = None
    ) -> None:
        """Store the checkpoint as the latest, unless it is already. Raises `LedgerRolledBackError`, `CosignError`."""
        silo = checkpoint.silo
        last = self._standing(silo)
        stood = None if last is None else Checkpoint.parse(last.checkpoint)
        advance(stood, checkpoint)
        self._judge(checkpoint, stood, evidence, forgiven=last != self._stated(silo))  # or it is damaged
        if last is None or last.checkpoint != signed.checkpoint:
            self._checkpoints.keep(silo, signed, self._today())

    def _judge(
        self, offered: Checkpoint, last: Checkpoint | None, evidence: CosignedCheckpoint | None, *, forgiven: bool
    ) -> None:
        """Raise `CosignError` if nothing explains what the ledger was charged, or if it lacks what is in sums."""
        require_believable(
            offered,
            last,
            self._studies.studies_of(offered.silo),
            lambda: self._checkpoints.summed(offered.silo),
            forgiven=forgiven,
            evidence=lambda: [] if evidence is None else self._own(offered, evidence),
            known=[Checkpoint.parse(one.checkpoint) for one in self._known(offered.silo)],
        )

    def _standing(self, silo: str) -> SignedCheckpoint | None:
        """The silo's latest checkpoint that binds: what came under a key after it was stolen does not."""
        latest = self._stated(silo)
        if latest is not None and self._stolen(latest) is None:
            return latest
        history = self._history(silo)
        seen = [SeenCheckpoint(Checkpoint.parse(one.checkpoint), at, self._stolen(one)) for one, at in history]
        last = standing(seen)
        return None if last is None else history[seen.index(last)][0]

    def _history(self, silo: str) -> list[tuple[SignedCheckpoint, datetime | None]]:
        """Return what is remembered of a ledger, oldest first, without what is damaged."""
        found = []
        for stated, at in self._checkpoints.history(silo):
            try:
                if isinstance(stated, DamagedCheckpointError):
                    raise stated
                self._require_whole(silo, silo, stated, stated.certificate_pem, stated.signature)
            except DamagedCheckpointError as fault:
                self._tell(fault)
            else:
                found.append((stated, at))
        return found

    def _binds(self, silo: str, stated: SignedCheckpoint) -> bool:
        """Whether a checkpoint that another silo cosigned binds. When it came, the coordinator's own memory says."""
        stolen = self._stolen(stated)
        if stolen is None:
            return True
        came = [at for one, at in self._history(silo) if one.checkpoint == stated.checkpoint]
        return any(at is None or at < stolen for at in came)

    def _stolen(self, stated: SignedCheckpoint) -> datetime | None:
        try:
            return self._trust.stolen(stated.certificate_pem)
        except CertificateError:  # of a root that authority.pem holds no more: nobody can say that it was stolen
            return None

    def _known(self, silo: str) -> list[SignedCheckpoint]:
        """All checkpoints of a ledger that are remembered here, also what others cosigned."""
        stated = [one for one, _ in self._history(silo)]
        return [*stated, *(one.stated for one in self._cosigned(silo).values())]

    def _own(self, offered: Checkpoint, evidence: CosignedCheckpoint) -> list[Checkpoint]:
        """An earlier checkpoint of the same ledger, if this coordinator has signed it.

        What it signed under a root that authority.pem holds no more proves nothing, and is no fault of the silo's.
        Raises `CosignError` or `SignatureRefused`.
        """
        stated = evidence.stated
        try:
            signer = self._trust.verify_ever(evidence.certificate_pem, stated.checkpoint, evidence.signature)
        except CertificateError:
            return []
        found = Checkpoint.parse(stated.checkpoint)
        mine = (self._credential.identity, offered.silo, offered.data_set)
        return [found] if (signer, found.silo, found.data_set) == mine else []

    def _ask(
        self,
        checkpoint: Checkpoint,
        signed: SignedCheckpoint,
        peers: Sequence[str],
        before: SignedCheckpoint | None = None,
    ) -> _Asked:
        """Have the checkpoint given to the other silos, in a circle that begins with the next name.

        So every silo is asked first by a different one.
        """
        own = checkpoint.silo
        circle = tuple(sorted(set(peers) - {own}, key=lambda name: (name < own, name)))
        asked = self._asked.get(own)
        same = asked is not None and asked.signed.checkpoint == signed.checkpoint
        if asked is None or not same or (asked.answer is None and asked.peers != circle):
            evidence = None if before is None else self._sign(before)
            asked = self._asked[own] = _Asked(signed, circle, self._clock(), evidence=evidence)
            self.requests.ring(circle[:1])
        return asked

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
