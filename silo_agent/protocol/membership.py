"""This silo in one roster: its greeting to the members, the secrets with each of them, the keys, an attempt's masks.

Guarantees: the roster is verified before it is used, and holds this silo's own key. Secrets are on the disk before
anything that depends on them leaves. If this silo greets, deals or shares again in one attempt, the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

import structlog

from crypto.entropy import Entropy
from crypto.errors import RecoveryRefused, SealError
from crypto.hkdf import KEY_BYTES
from crypto.pki.certificates import Credential
from crypto.rings.ckks_secret import CkksKey
from crypto.secagg.agreement import PairSecrets, Roster, RosterEntry, is_greeting
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.holding import Holding
from crypto.secagg.masks import Masks, Unmasking
from crypto.secagg.packages import GroupKeys, deal, take, with_call, without_call
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import AttemptRef, SurvivorList, signed
from crypto.secagg.unmasking import (
    examine,
    make_bundle,
    make_reveal,
    pair_seed,
    read_bundle,
    read_reveals,
    require_same_keys,
    words_in_reveals,
)
from crypto.secagg.voids import VoidPromise
from crypto.secagg.words import Word
from protos.messages import Complaint, Member, Place, Void, Vouch
from silo_agent.protocol.key_store import KeyStore, Met, RosterKeys, Shared

log = structlog.get_logger()


class Membership:
    """This silo's part in one roster of one study. Every method may raise what `roster` raises.

    Its repr shows no secret.
    """

    def __init__(
        self,
        study: str,
        own: Member,
        members: tuple[Member, ...],
        *,
        credential: Credential,
        entropy: Entropy,
        store: KeyStore,
        reach: int = 0,
    ) -> None:
        """`own` is this silo as it offered itself; `members` are the roster's members as the coordinator gives them.

        `reach` is the study's (`crypto.secagg.circle`).
        """
        self.own, self.members, self.me, self.reach = own, members, own.silo, reach
        self._study, self._credential, self._entropy, self._store = study, credential, entropy, store
        self._sealer: tuple[list[str], Sealer] | None = None
        self.begin()

    def begin(self) -> None:
        """Begin an attempt in this roster. Its certificates are judged as of now until the attempt is over."""
        self._trust = self._credential.trust.begun(datetime.now(UTC))
        self.__dict__.pop("roster", None)

    @cached_property
    def roster(self) -> Roster:
        """The roster. Every certificate and signature in it is checked once in an attempt. Raises `CryptoError`.

        This silo's certificate may be older in it than now, if it was renewed since.
        """
        if self.own not in (replace(one, certificate_pem=self.own.certificate_pem) for one in self.members):
            msg = "the roster does not hold this silo's own key, nor its name; begin a new attempt"
            if self.own.silo in {one.silo for one in self.members}:
                msg = (
                    "the roster holds another key than this silo has now: its stored keys were lost since it took its"
                    " seat (its log then names the file), or the coordinator has changed them; begin a new attempt"
                )
            raise SealError(msg)
        roster = Roster(
            self._study,
            tuple(RosterEntry(m.silo, m.certificate_pem, m.public_key, m.kem_key, m.signature) for m in self.members),
            self.reach,
        )
        roster.verify(self._trust)
        return roster

    # --- keys -----------------------------------------------------------------------------------------------------
    def greet(self) -> bytes:
        """This silo's greeting to a new roster. For one roster always the same bytes.

        What an older version has kept is no greeting any more: nobody could read it.
        """
        met = self._store.stored.met
        if met is None or met.roster != self.roster.digest or not is_greeting(met.greeting):
            greeting = self._store.ephemeral.greet(self.roster, self.me, self._trust)
            met = Met(self.roster.digest, greeting.note, greeting.secrets)
            self._store.greeted(met)
        return met.greeting

    @property
    def earlier(self) -> tuple[str, ...]:
        """The neighbours whose greetings have a secret for this silo. The others read one in its own."""
        return self.roster.circle.earlier(self.me)

    def meet(self, greetings: Mapping[str, bytes]) -> None:
        """Agree on a secret with every neighbour, from their greetings. Raises `CryptoError`."""
        self._sealer = None
        met = self._require_met()
        pairs = self._store.ephemeral.meet(self.roster, self.me, met.secrets, greetings, self._trust)
        if met.pairs != dict(pairs):
            self._store.met(replace(met, pairs=dict(pairs)))

    def deal(self, place: Place) -> bytes:
        """Make the roster's keys and seal them to its members. In one attempt always the same bytes."""
        dealt = self._store.stored.dealt
        if dealt is None or dealt.roster != self.roster.digest or dealt.place != place:
            keys = GroupKeys(
                ckks=CkksKey.create().to_bytes(),
                group=self._entropy.bytes(KEY_BYTES),
                check=self._entropy.bytes(KEY_BYTES),
            )
            package = self._package(keys)
            dealt = RosterKeys(self.roster.digest, keys.ckks, keys.group, keys.check, place, package, self.me)
            self._store.dealt(dealt)
        return dealt.package

    def take(self, dealer: str, package: bytes) -> None:
        """Open the keys that `dealer` sealed to this silo. If this silo is the dealer, it has them already.

        Raises `RecoveryRefused`, with the dealer as culprit, if they do not open.
        """
        if dealer != self.me:
            pairs = self._pairs()
            if self.roster.circle.sparse:
                note, package = without_call(package)
                pairs = self._store.ephemeral.answer(self.roster, self.me, dealer, note, self._trust)
            try:
                keys = take(package, pairs, self.me, dealer, self.roster)
            except SealError as fault:
                raise RecoveryRefused(str(fault), dealer) from None
            self._store.dealt(RosterKeys(self.roster.digest, keys.ckks, keys.group, keys.check, dealer=dealer))

    @property
    def keys(self) -> GroupKeys:
        """The keys of this roster. Raises `SealError` if none were dealt."""
        dealt = self._store.stored.dealt
        if dealt is None or dealt.roster != self.roster.digest:
            msg = "no keys were dealt to this roster"
            raise SealError(msg)
        return dealt.keys

    def sealer(self, silos: Sequence[str]) -> Sealer:
        """Seals tensors for this roster and opens its sums. `silos` are all silos of the study.

        There is one sealer for the keys that were dealt, because it remembers which labels it has used.
        """
        names = sorted(silos)
        if self._sealer is None or self._sealer[0] != names:
            self._sealer = (names, Sealer(self.me, self.keys, names))
        return self._sealer[1]

    # --- an attempt -----------------------------------------------------------------------------------------------
    def attempt(self, place: Place) -> AttemptRef:
        """The reference that signatures and shares of an attempt are bound to."""
        return AttemptRef(self._study, self.roster.digest, place.round, place.attempt)

    def share(
        self, place: Place, tensors: Sequence[str], threshold: int, words: Callable[[], Mapping[str, Word]]
    ) -> bytes:
        """Draw the attempt's secrets and share them among the roster. In one attempt always the same bytes.

        `words` is called once in an attempt: it gives this silo's own word and those that it has heard.
        """
        shared = self._store.stored.shared
        if shared is None or (shared.roster, shared.place) != (self.roster.digest, place):
            secrets = AttemptSecrets.create(tensors, self._entropy)
            bundle = make_bundle(
                secrets,
                self.attempt(place),
                self.me,
                self.roster,
                self._pairs(),
                self.keys,
                threshold,
                self._credential,
                self._entropy,
                words(),
            )
            shared = Shared(self.roster.digest, place, secrets.to_bytes(), bundle)
            self._store.shared(shared)
        return shared.bundle

    def read_shares(
        self,
        place: Place,
        tensors: Sequence[str],
        threshold: int,
        notes: Mapping[str, bytes],
        about: Sequence[str] | None = None,
    ) -> dict[str, ShareBundle]:
        """The shares of each silo, by name, from notes that are whole or cut for the silos of `about`.

        Raises `RecoveryRefused`, which names the silo whose note is wrong.
        """
        bundles, dealt = self.read_more(place, tensors, threshold, notes, about), self._store.stored.dealt
        if self.me in bundles and dealt is not None:
            require_same_keys(bundles, self.me, dealt.dealer)
        return bundles

    def read_more(
        self,
        place: Place,
        tensors: Sequence[str],
        threshold: int,
        notes: Mapping[str, bytes],
        about: Sequence[str] | None,
    ) -> dict[str, ShareBundle]:
        """What else stands in the notes of some participants, once all were read. Raises `RecoveryRefused`."""
        given = self.attempt(place), tensors, self.me, self.roster, self._pairs(), threshold, self._trust, about
        return {owner: read_bundle(note, owner, *given) for owner, note in notes.items()}

    def examine(self, place: Place, tensors: Sequence[str], threshold: int, handed: Complaint, note: bytes) -> str:
        """Who lied, a silo that complains about its shares or their owner, whose note this is.

        Raises `RecoveryRefused` if either did not sign what is shown here as theirs, or if one has another roster.
        """
        attempt = (place.round, place.attempt)
        complaint = ShareComplaint.read(self._study, attempt, handed.owner, handed.silo, handed.evidence)
        if not self.signed(handed.silo, complaint.to_sign(), handed.signature):
            msg = f"{handed.silo} has not signed the complaint about {handed.owner} that the coordinator shows"
            raise RecoveryRefused(msg)
        return examine(complaint, note, tensors, self.roster, threshold, self._trust)

    def masks(self, place: Place, tensor: str, participants: Sequence[str]) -> Masks:
        """The masks that cover this silo's upload. Raises `SealError` if the attempt's secrets are gone."""
        shared, attempt, pairs = self._store.stored.shared, self.attempt(place), self._pairs()
        if shared is None or (shared.roster, shared.place) != (attempt.roster, place):
            msg = "the secrets of this attempt are gone; begin a new attempt"
            raise SealError(msg)
        own = AttemptSecrets.from_bytes(shared.secrets).own[tensor]
        seeds = {name: pair_seed(pairs[name], attempt, tensor) for name in participants if name in pairs}
        return Masks(self.me, own, seeds, self.keys.group)

    def reveal(
        self, bundles: Mapping[str, ShareBundle], survivors: SurvivorList, participants: Sequence[str], word: Word
    ) -> bytes:
        """This silo's shares of the secrets that open the survivors' sum, and its word, sealed to the roster."""
        return make_reveal(bundles, survivors, participants, self.me, self.keys, self._credential, self._entropy, word)

    def unmasking(
        self,
        notes: Mapping[str, bytes],
        bundles: Mapping[str, ShareBundle],
        survivors: SurvivorList,
        *,
        participants: Sequence[str],
        threshold: int,
        answerable: Collection[str] = (),
    ) -> Unmasking:
        """What still masks the survivors' sum, computed from the revealed shares.

        Raises `RecoveryRefused`. If too few notes are of use, it names one of the silos that are answerable for theirs.
        """
        recovered = read_reveals(
            notes, bundles, survivors, participants, self.roster, self.keys, threshold, self._trust, answerable
        )
        if recovered.ignored:
            log.warning("reveals of no use", silos=recovered.ignored, round=survivors.attempt.round)
        return recovered.unmasking

    def words(
        self,
        notes: Mapping[str, bytes],
        bundles: Mapping[str, ShareBundle],
        survivors: SurvivorList,
        participants: Sequence[str],
    ) -> dict[str, Word]:
        """The words in the reveals that can be used, by silo. `said_by` tells whether that silo has signed one."""
        return words_in_reveals(notes, bundles, survivors, participants, self.roster, self.keys, self._trust)

    def said_by(self, silo: str, word: Word) -> bool:
        """Whether a member, or this silo itself with its present key, has signed exactly this word."""
        message = word.to_sign(self._study, silo)
        if silo == self.me:
            return signed(self._trust, self.me, self.own.certificate_pem, message, word.signature)
        return self.signed(silo, message, word.signature)

    def signers(self, survivors: SurvivorList, signatures: Mapping[str, bytes]) -> tuple[str, ...]:
        """The members who have signed exactly this list."""
        certificates = {member.silo: member.certificate_pem for member in self.members}
        return survivors.signed_by(certificates, signatures, self._trust)

    def signed(self, silo: str, message: bytes, signature: bytes) -> bool:
        """Whether a member has signed exactly this message."""
        certificate = next((member.certificate_pem for member in self.members if member.silo == silo), None)
        return certificate is not None and signed(self._trust, silo, certificate, message, signature)

    def voiders(self, void: VoidPromise, silos: Sequence[str], handed: Void) -> tuple[str, ...]:
        """The silos of the study that have signed exactly this promise."""
        signatures = {one.silo: one.signature for one in handed.promises}
        return void.signed_by(silos, dict(zip(signatures, handed.certificates, strict=True)), signatures, self._trust)

    def holders(self, holding: Holding, silos: Sequence[str], vouches: Sequence[Vouch]) -> tuple[str, ...]:
        """The other silos of the study that have signed exactly that they hold this."""
        others = [name for name in silos if name != self.me]
        certificates = {one.silo: one.certificate_pem for one in vouches}
        return holding.signed_by(others, certificates, {one.silo: one.signature for one in vouches}, self._trust)

    # --- inside ---------------------------------------------------------------------------------------------------
    def _package(self, keys: GroupKeys) -> bytes:
        """Seal the roster's keys to its members. Who is not everybody's neighbour calls the others first."""
        pairs = self._pairs()
        if not self.roster.circle.sparse:
            return deal(keys, pairs, self.me, self.roster, self._entropy)
        call = self._store.ephemeral.call(self.roster, self.me, self._trust)
        return with_call(call.note, deal(keys, call.secrets, self.me, self.roster, self._entropy))

    def _require_met(self) -> Met:
        met = self._store.stored.met
        if met is None or met.roster != self.roster.digest:
            msg = "this roster was not greeted; the coordinator must begin a new attempt"
            raise SealError(msg)
        return met

    def _pairs(self) -> PairSecrets:
        met = self._require_met()
        if not met.pairs:
            msg = "the roster's greetings have not been read"
            raise SealError(msg)
        return PairSecrets(met.pairs)

    def __repr__(self) -> str:
        return "Membership(secret)"
