"""A silo's secrets in one study: its own key, those with each peer, the roster's keys, an attempt's masks.

Guarantees: the secrets outlive the process, sealed under the certificate's key (`crypto.pki.at_rest`), so a restarted
silo goes on in the same roster and attempt; they are on the disk before anybody hears of them; greeting, dealing and
sharing again in one attempt give the same bytes. A file that is missing or does not open gives a fresh ephemeral key:
the coordinator then begins a new attempt. An attempt's secrets are erased when its round is committed
(`forget_attempt`), the file when the study is over (`forget`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import structlog
from dacite import DaciteError

from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.pki.at_rest import Vault
from crypto.pki.certificates import Credential, Trust
from crypto.rings.ckks_secret import CkksKey
from crypto.secagg.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry
from crypto.secagg.masks import Masks, Unmasking
from crypto.secagg.packages import GroupKeys, deal, take
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import Attempt, SurvivorList
from crypto.secagg.unmasking import (
    AttemptSecrets,
    Bundle,
    make_bundle,
    make_reveal,
    pair_seed,
    read_bundle,
    read_reveals,
)
from crypto.stream import KEY_BYTES
from protos import record
from protos.messages import Member, Place
from silo_agent.storage.state import write_whole

log = structlog.get_logger()
KEY_FILE = "keys.sealed"
_SESSION_BYTES = 16


def session_name(folder: Path, credential: Credential, entropy: Entropy) -> str:
    """Names the key store of a state folder: the same as long as what lies there opens, else a new one.

    The coordinator learns from a new name that keys which were offered before are gone.
    """
    path, vault = folder / "session.sealed", Vault(credential, "session", entropy)
    try:
        return vault.open(path.read_bytes()).hex()
    except (OSError, SealError):
        name = entropy.bytes(_SESSION_BYTES)
        write_whole(path, vault.seal(name))
        return name.hex()


@dataclass(frozen=True, repr=False)
class _Met:
    """What was said to a roster, and the secrets with each member once all have said theirs."""

    roster: str
    greeting: bytes
    secrets: bytes
    pairs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class _Dealt:
    """Keys of one roster, and the package that dealt them where this silo was the dealer."""

    roster: str
    ckks: bytes
    group: bytes
    check: bytes
    place: Place | None = None
    package: bytes = b""

    @property
    def keys(self) -> GroupKeys:
        return GroupKeys(self.ckks, self.group, self.check)


@dataclass(frozen=True, repr=False)
class _Shared:
    """The secrets of one attempt, and the note that shared them."""

    roster: str
    place: Place
    secrets: bytes
    bundle: bytes


@dataclass(frozen=True, repr=False)
class _Stored:
    """All that lies in the file."""

    ephemeral: bytes
    met: _Met | None = None
    dealt: _Dealt | None = None
    shared: _Shared | None = None


class Session:
    """This silo in one study."""

    def __init__(
        self,
        study: str,
        credential: Credential,
        entropy: Entropy,
        keep: Callable[[bytes], object],
        *,
        ephemeral: EphemeralKey | None = None,
        stored: _Stored | None = None,
    ) -> None:
        """`keep` stores bytes durably and sealed; it is called before any key is used."""
        self._study, self._credential, self._entropy, self._keep = study, credential, entropy, keep
        self.me = credential.identity.name
        self._ephemeral = ephemeral or EphemeralKey.create(credential, study)
        offer = self._ephemeral.offer
        self.member = Member(self.me, credential.certificate_pem, offer.public, offer.kem, offer.signature)
        self._roster: tuple[tuple[Member, ...], Roster] | None = None
        self._stored = stored or _Stored(self._ephemeral.to_bytes())
        if stored is None:
            self._store()

    @classmethod
    def open(cls, study: str, credential: Credential, entropy: Entropy, folder: Path) -> Self:
        """The keys that lie sealed in the study's folder, or fresh ones."""
        path, vault = folder / KEY_FILE, Vault(credential, f"keys of {study}", entropy)

        def keep(plain: bytes) -> None:
            write_whole(path, vault.seal(plain))

        if path.exists():
            try:
                stored = record.load(_Stored, vault.open(path.read_bytes()).decode())
                ephemeral = EphemeralKey.restore(credential, study, stored.ephemeral)
                return cls(study, credential, entropy, keep, ephemeral=ephemeral, stored=stored)
            except (SealError, DaciteError, ValueError) as fault:
                log.warning("stored keys are not usable; new ones are made", study=study[:12], why=_kind(fault))
        return cls(study, credential, entropy, keep)

    @staticmethod
    def forget(folder: Path) -> None:
        """Erase the keys of a study that is over."""
        (folder / KEY_FILE).unlink(missing_ok=True)

    # --- a roster -------------------------------------------------------------------------------------------------
    def roster(self, members: tuple[Member, ...]) -> Roster:
        """The roster of these members; every certificate and signature in it is checked. Raises `CryptoError`."""
        if self._roster is None or self._roster[0] != members:
            if self.member not in members:
                msg = "the roster does not hold this silo's own key; the coordinator's roster cannot be trusted"
                raise SealError(msg)
            roster = Roster(
                self._study,
                tuple(RosterEntry(m.silo, m.certificate_pem, m.public_key, m.kem_key, m.signature) for m in members),
            )
            roster.verify(self._trust)
            self._roster = (members, roster)
        return self._roster[1]

    def greet(self, members: tuple[Member, ...]) -> bytes:
        """What this silo says to a new roster; to one roster always the same bytes."""
        roster = self.roster(members)
        met = self._stored.met
        if met is None or met.roster != roster.digest:
            greeting = self._ephemeral.greet(roster, self.me)
            met = _Met(roster.digest, greeting.note, greeting.secrets)
            self._store(met=met, dealt=None, shared=None)
        return met.greeting

    def meet(self, members: tuple[Member, ...], greetings: Mapping[str, bytes]) -> None:
        """Agree on a secret with every member, from what each has said. Raises `CryptoError`."""
        met = self._require_met(members)
        pairs = self._ephemeral.meet(self.roster(members), self.me, met.secrets, greetings)
        if met.pairs != dict(pairs):
            self._store(met=replace(met, pairs=dict(pairs)), dealt=self._stored.dealt, shared=self._stored.shared)

    def deal(self, members: tuple[Member, ...], place: Place) -> bytes:
        """Make the roster's keys and seal them to its members; in one attempt always the same bytes."""
        roster, dealt = self.roster(members), self._stored.dealt
        if dealt is None or dealt.roster != roster.digest or dealt.place != place:
            keys = GroupKeys(
                ckks=CkksKey.create().to_bytes(),
                group=self._entropy.bytes(KEY_BYTES),
                check=self._entropy.bytes(KEY_BYTES),
            )
            package = deal(keys, self._pairs(members), self.me, roster, self._entropy)
            dealt = _Dealt(roster.digest, keys.ckks, keys.group, keys.check, place, package)
            self._store(met=self._stored.met, dealt=dealt, shared=None)
        return dealt.package

    def take(self, members: tuple[Member, ...], dealer: str, package: bytes) -> None:
        """Open the keys that `dealer` sealed to this silo; the dealer has them already."""
        roster = self.roster(members)
        if dealer != self.me:
            keys = take(package, self._pairs(members), self.me, dealer, roster)
            dealt = _Dealt(roster.digest, keys.ckks, keys.group, keys.check)
            self._store(met=self._stored.met, dealt=dealt, shared=None)

    def keys(self, members: tuple[Member, ...]) -> GroupKeys:
        """The keys of this roster. Raises `SealError` where none were dealt."""
        dealt = self._stored.dealt
        if dealt is None or dealt.roster != self.roster(members).digest:
            msg = "no keys were dealt to this roster"
            raise SealError(msg)
        return dealt.keys

    def sealer(self, members: tuple[Member, ...], silos: Sequence[str]) -> Sealer:
        """Seals for, and opens sums of, this roster; `silos` are all of the study."""
        return Sealer(self.me, self.keys(members), sorted(silos))

    # --- an attempt -----------------------------------------------------------------------------------------------
    def attempt(self, members: tuple[Member, ...], place: Place) -> Attempt:
        """What signatures and shares of an attempt are bound to."""
        return Attempt(self._study, self.roster(members).digest, place.round, place.attempt)

    def share(self, members: tuple[Member, ...], place: Place, tensors: Sequence[str], threshold: int) -> bytes:
        """Draw the attempt's secrets and share them among the roster; in one attempt always the same bytes."""
        roster, shared = self.roster(members), self._stored.shared
        if shared is None or (shared.roster, shared.place) != (roster.digest, place):
            secrets = AttemptSecrets.create(tensors, self._entropy)
            bundle = make_bundle(
                secrets,
                self.attempt(members, place),
                self.me,
                roster,
                self._pairs(members),
                threshold,
                self._credential,
                self._entropy,
            )
            shared = _Shared(roster.digest, place, secrets.to_bytes(), bundle)
            self._store(met=self._stored.met, dealt=self._stored.dealt, shared=shared)
        return shared.bundle

    def read_shares(
        self,
        members: tuple[Member, ...],
        place: Place,
        tensors: Sequence[str],
        threshold: int,
        notes: Mapping[str, bytes],
    ) -> dict[str, Bundle]:
        """What each silo has shared. Raises `RecoveryRefused` by name."""
        attempt, roster, pairs = self.attempt(members, place), self.roster(members), self._pairs(members)
        return {
            owner: read_bundle(note, owner, attempt, tensors, self.me, roster, pairs, threshold, self._trust)
            for owner, note in notes.items()
        }

    def masks(self, members: tuple[Member, ...], place: Place, tensor: str, participants: Sequence[str]) -> Masks:
        """What covers this silo's upload. Raises `SealError` where the attempt's secrets are gone."""
        shared, attempt, pairs = self._stored.shared, self.attempt(members, place), self._pairs(members)
        if shared is None or (shared.roster, shared.place) != (attempt.roster, place):
            msg = "the secrets of this attempt are gone; begin a new attempt"
            raise SealError(msg)
        own = AttemptSecrets.from_bytes(shared.secrets).own[tensor]
        seeds = {name: pair_seed(pairs[name], attempt, tensor) for name in participants if name != self.me}
        return Masks(self.me, own, seeds, self.keys(members).group)

    def reveal(
        self,
        members: tuple[Member, ...],
        bundles: Mapping[str, Bundle],
        survivors: SurvivorList,
        participants: Sequence[str],
    ) -> bytes:
        """This silo's shares of what the survivors' sum is opened with, sealed to the roster."""
        keys = self.keys(members)
        return make_reveal(bundles, survivors, participants, self.me, keys, self._credential, self._entropy)

    def unmasking(
        self,
        members: tuple[Member, ...],
        notes: Mapping[str, bytes],
        bundles: Mapping[str, Bundle],
        survivors: SurvivorList,
        *,
        participants: Sequence[str],
        threshold: int,
    ) -> Unmasking:
        """What lies on the survivors' sum, from what they revealed. Raises `RecoveryRefused`."""
        roster, keys = self.roster(members), self.keys(members)
        recovered = read_reveals(notes, bundles, survivors, participants, roster, keys, threshold, self._trust)
        if recovered.ignored:
            log.warning("reveals of no use", silos=recovered.ignored, round=survivors.attempt.round)
        return recovered.unmasking

    def signers(
        self, members: tuple[Member, ...], survivors: SurvivorList, signatures: Mapping[str, bytes]
    ) -> tuple[str, ...]:
        """Members who have signed this very list."""
        certificates = {member.silo: member.certificate_pem for member in members}
        return survivors.signed_by(certificates, signatures, self._trust)

    def forget_attempt(self) -> None:
        """Erase the secrets of an attempt whose round is committed."""
        if self._stored.shared is not None:
            self._store(met=self._stored.met, dealt=self._stored.dealt, shared=None)

    # --- inside ---------------------------------------------------------------------------------------------------
    @property
    def _trust(self) -> Trust:
        return Trust(self._credential.authority_pem)

    def _require_met(self, members: tuple[Member, ...]) -> _Met:
        met = self._stored.met
        if met is None or met.roster != self.roster(members).digest:
            msg = "this roster was not greeted; the coordinator must begin a new attempt"
            raise SealError(msg)
        return met

    def _pairs(self, members: tuple[Member, ...]) -> PairSecrets:
        met = self._require_met(members)
        if not met.pairs:
            msg = "the roster's greetings have not been read"
            raise SealError(msg)
        return PairSecrets(met.pairs)

    def _store(self, met: _Met | None = None, dealt: _Dealt | None = None, shared: _Shared | None = None) -> None:
        stored = _Stored(self._ephemeral.to_bytes(), met, dealt, shared)
        self._keep(record.dump(stored).encode())
        self._stored = stored

    def __repr__(self) -> str:
        return "Session(secret)"


def _kind(fault: Exception) -> str:
    """A sentence that shows nothing of what was decrypted."""
    return str(fault) if isinstance(fault, SealError) else "it was written by another version"
