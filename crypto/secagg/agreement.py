"""Key agreement: every two silos of a roster share a secret. The coordinator carries the offers but cannot know it.

Guarantees: a secret is derived only from offers and greetings that the named silos signed with their certified keys for
this study. X25519 (RFC 7748) and ML-KEM-768 (FIPS 203) both enter it, so it stays secret while either of the two holds
(HKDF-SHA256, RFC 5869). It depends on the whole roster, so silos that were shown different rosters share nothing. The
silo's policy decides whether a roster is large enough. The silo's store makes sure that the ephemeral key and the
greeting outlive a restart and are forgotten after use.

The order of calls: first `EphemeralKey.create`. Then, for every roster, `greet` (once, because a second greeting makes
other secrets). Then, as soon as the greetings of the others have arrived, `meet`. On a circle (`circle`) a silo greets
and meets its neighbours alone, and who deals the roster's keys reaches the others by a `call`, which they `answer`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from crypto.canonical import canonical
from crypto.errors import RosterRefused, SealError, SignatureRefused
from crypto.hkdf import KEY_BYTES, derive
from crypto.pki.certificates import Credential, Trust
from crypto.pki.identity import Role
from crypto.pki.reading import parse_certificate, subject_of
from crypto.secagg.circle import Circle
from crypto.secagg.dealt.slices import HASH_BYTES, SliceForm, Tree, closed, letter_form, root_by, signature_in
from crypto.secagg.survivors import roster_digest

_PRIVATE_BYTES = 32
_SEED_BYTES = 64
_DIGEST = 32
_MIN_SILOS = 2


@dataclass(frozen=True, repr=False, eq=False)
class _Letter:
    """A kind of signed note with ciphertexts: its first 16 bytes, what it is, and what its secrets are derived for."""

    magic: bytes
    name: str
    purpose: str


_GREETING = _Letter(b"fedward greet 2\0", "greeting", "pair")
_CALL = _Letter(b"fedward call 2\0\0", "call", "call")


@dataclass(frozen=True)
class KeyOffer:
    """A silo's ephemeral public keys and its signature (DER) over the study and both keys."""

    public: bytes
    """X25519, 32 bytes."""
    kem: bytes
    """ML-KEM-768, 1184 bytes."""
    signature: bytes


@dataclass(frozen=True)
class RosterEntry:
    """One silo's offer as the coordinator distributes it."""

    name: str
    certificate_pem: bytes
    public: bytes
    kem: bytes
    signature: bytes

    def verify(self, trust: Trust, message: bytes, signature: bytes, *, now: datetime | None = None) -> None:
        """Check that the authority certified the silo of this name, and that this silo signed the message.

        `now` (aware) defaults to the clock. Raises `CertificateError`, `SignatureRefused`, or `RosterRefused` if the
        entry's name is not the name in its certificate.
        """
        identity = trust.identify(self.certificate_pem, role=Role.SILO, now=now)
        if identity.name != self.name:
            msg = f"the roster gives {identity} the name {self.name!r}; the coordinator must send the roster unchanged"
            raise RosterRefused(msg)
        trust.verify(self.certificate_pem, message, signature, role=Role.SILO, now=now)


@dataclass(frozen=True)
class Roster:
    """The silos whose values are in a study's sums. Raises `RosterRefused` unless two or more, sorted, each once."""

    study: str
    entries: tuple[RosterEntry, ...]
    reach: int = 0
    """Neighbours of a silo on either side, as the study has them; 0 if all are everybody's neighbours (`circle`)."""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        own = {len({getattr(entry, key) for entry in self.entries}) for key in ("public", "kem")}
        if len(names) < _MIN_SILOS or names != sorted(set(names)) or own != {len(names)}:
            msg = (
                "the roster must list two or more silos, sorted by name, each once and with its own keys; the"
                " coordinator must send it so"
            )
            raise RosterRefused(msg)

    @property
    def names(self) -> tuple[str, ...]:
        """The silos' names, sorted."""
        return tuple(entry.name for entry in self.entries)

    @cached_property
    def circle(self) -> Circle:
        """Who shares pair secrets with whom, and who holds whose shares."""
        return Circle(self.names, self.reach)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over study and entries, lowercase hex. Labels and signatures name this roster by it."""
        own = ((one.name, one.certificate_pem, one.public, one.kem, one.signature) for one in self.entries)
        return roster_digest(self.study, own)

    def entry(self, name: str) -> RosterEntry:
        """Return the member of that name. Raises `RosterRefused` if there is none."""
        if (entry := self._by_name.get(name)) is not None:
            return entry
        msg = f"{name!r} is no member of this roster; the coordinator must name only members"
        raise RosterRefused(msg)

    @cached_property
    def _by_name(self) -> dict[str, RosterEntry]:
        return {entry.name: entry for entry in self.entries}

    def verify(self, trust: Trust, *, now: datetime | None = None) -> None:
        """Check that the authority certified each entry as the silo of that name, and that this silo signed its keys.

        `now` (aware) defaults to the clock. Raises what `RosterEntry.verify` raises, and `RosterRefused` if two members
        are of one institution: whoever runs both would count as two in everything that needs several.
        """
        seen: dict[str, str] = {}
        for entry in self.entries:
            run_by = subject_of(parse_certificate(entry.certificate_pem)).institution
            if run_by is not None and seen.setdefault(run_by, entry.name) != entry.name:
                msg = (
                    f"{seen[run_by]!r} and {entry.name!r} are both of the institution {run_by!r}, and two silos of one"
                    " institution never join one study; leave one of them out"
                )
                raise RosterRefused(msg)
        for entry in self.entries:
            try:
                entry.verify(trust, _offer_message(self.study, entry.public, entry.kem), entry.signature, now=now)
            except SignatureRefused:
                msg = (
                    f"{entry.name!r} did not offer the keys in the roster for this study;"
                    " ask that silo to offer its keys again"
                )
                raise SignatureRefused(msg, entry.name) from None


class PairSecrets(Mapping[str, bytes]):
    """Mapping of another silo's name to the 32-byte secret shared with it. `repr` prints only its kind."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        """Copy the secrets. Raises `SealError` if one has another length."""
        if any(len(secret) != KEY_BYTES for secret in secrets.values()):
            msg = f"a pair secret must have {KEY_BYTES} bytes; agree on keys again"
            raise SealError(msg)
        self._secrets = {name: secrets[name] for name in sorted(secrets)}

    def check(self, me: str, roster: Roster) -> None:
        """Raise `SealError` unless these are this silo's secrets with exactly its neighbours in the roster."""
        if me not in roster.names or set(self._secrets) != set(roster.circle.neighbours(me)):
            msg = "the pair secrets belong to another roster; agree on keys again"
            raise SealError(msg)

    def __getitem__(self, name: str) -> bytes:
        return self._secrets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._secrets)

    def __len__(self) -> int:
        return len(self._secrets)

    def __repr__(self) -> str:
        return "PairSecrets(secret)"


@dataclass(frozen=True)
class Greeting:
    """What one silo sends to its neighbours with later names, and what it keeps for itself."""

    note: bytes
    """Magic (16), signature with its length (73), one ML-KEM-768 ciphertext (1088) for each later neighbour in the
    roster's order. The signature is over the root of the ciphertexts (`dealt.slices`)."""
    secrets: bytes = field(repr=False)
    """For `EphemeralKey.meet` alone: the roster's digest (32), the pair secret (32) with each of these. Secret."""


@dataclass(frozen=True)
class Call:
    """What the silo that deals a roster's keys sends to all other members, and the secrets that it shares by it."""

    note: bytes
    """Magic (16), signature (73), one ML-KEM-768 ciphertext (1088) for each other member, as in a greeting."""
    secrets: PairSecrets
    """With each other member, for this call alone."""


@dataclass(frozen=True)
class EphemeralKey:
    """This silo's key pairs for the rosters of one study. They touch a disk only sealed (`crypto.pki.at_rest`)."""

    study: str
    offer: KeyOffer
    _credential: Credential = field(repr=False)
    _private: X25519PrivateKey = field(repr=False)
    _kem: MLKEM768PrivateKey = field(repr=False)

    @classmethod
    def create(cls, credential: Credential, study: str) -> Self:
        """Make fresh keys and sign them for the study. Raises `SealError` if this machine lacks ML-KEM."""
        private, kem = X25519PrivateKey.generate(), _kem_key(None)
        public, kem_public = private.public_key().public_bytes_raw(), kem.public_key().public_bytes_raw()
        signature = credential.sign(_offer_message(study, public, kem_public))
        return cls(study, KeyOffer(public, kem_public, signature), credential, private, kem)

    @classmethod
    def restore(cls, credential: Credential, study: str, blob: bytes) -> Self:
        """The inverse of `to_bytes`. Raises `SealError` if this silo did not sign the keys for the study."""
        seeds = blob[: _PRIVATE_BYTES + _SEED_BYTES].ljust(_PRIVATE_BYTES + _SEED_BYTES, b"\0")
        private, kem = X25519PrivateKey.from_private_bytes(seeds[:_PRIVATE_BYTES]), _kem_key(seeds[_PRIVATE_BYTES:])
        public, kem_public = private.public_key().public_bytes_raw(), kem.public_key().public_bytes_raw()
        offer = KeyOffer(public, kem_public, blob[len(seeds) :])
        try:
            message = _offer_message(study, public, kem_public)
            credential.trust.verify(credential.certificate_pem, message, offer.signature, role=credential.identity.role)
        except SignatureRefused:
            msg = "this silo did not sign the stored keys for this study; offer new keys"
            raise SealError(msg) from None
        return cls(study, offer, credential, private, kem)

    def to_bytes(self) -> bytes:
        """X25519 key (32 bytes), ML-KEM seed (64), the offer's signature. Secret: seal it before it touches a disk."""
        return self._private.private_bytes_raw() + self._kem.private_bytes_raw() + self.offer.signature

    def greet(self, roster: Roster, me: str, trust: Trust | None = None) -> Greeting:
        """Verify the roster under this silo's own authority and encapsulate a secret to every later neighbour.

        `trust` judges the roster; by default the credential's own, as of now.

        Raises what `Roster.verify` raises, and `RosterRefused` if the roster is for another study, does not hold
        exactly this offer, or holds bytes that are no key.
        """
        trust = trust or self._credential.trust
        self._check(roster, me, trust)
        note, secrets = self._write(_GREETING, roster, me, roster.circle.later(me))
        return Greeting(note, b"".join([bytes.fromhex(roster.digest), *secrets.values()]))

    def meet(
        self, roster: Roster, me: str, own: bytes, greetings: Mapping[str, bytes], trust: Trust | None = None
    ) -> PairSecrets:
        """Derive the secret with each neighbour from this silo's `Greeting.secrets` and the earlier neighbours' notes.

        Notes of other silos are not read. Raises what `greet` raises, and `SealError` if `own` was not kept for this
        roster. Raises `RosterRefused` or `SignatureRefused`, with that silo as culprit, if the note of an earlier
        neighbour is missing, malformed or not signed by that silo for this roster.
        """
        trust = trust or self._credential.trust
        self._check(roster, me, trust)
        later = roster.circle.later(me)
        if len(own) != _DIGEST + KEY_BYTES * len(later) or own[:_DIGEST] != bytes.fromhex(roster.digest):
            msg = "the stored greeting is for another roster; greet this roster first"
            raise SealError(msg)
        cuts = range(_DIGEST, len(own), KEY_BYTES)
        secrets = {name: own[cut : cut + KEY_BYTES] for cut, name in zip(cuts, later, strict=True)}
        for name in roster.circle.earlier(me):
            note, readers = greetings.get(name, b""), roster.circle.later(name)
            secrets[name] = self._read(_GREETING, roster, me, name, note, readers, trust)
        return PairSecrets(secrets)

    def call(self, roster: Roster, me: str, trust: Trust | None = None) -> Call:
        """Encapsulate a secret to every other member, neighbour or not. Raises what `greet` raises."""
        self._check(roster, me, trust or self._credential.trust)
        note, secrets = self._write(_CALL, roster, me, _others(roster, me))
        return Call(note, PairSecrets(secrets))

    def answer(self, roster: Roster, me: str, caller: str, note: bytes, trust: Trust | None = None) -> PairSecrets:
        """Return the one secret that another member shares with this silo by its call.

        Raises what `greet` raises, and `RosterRefused` or `SignatureRefused`, with the caller as culprit, if the note
        is malformed or not signed by the caller for this roster.
        """
        trust = trust or self._credential.trust
        self._check(roster, me, trust)
        return PairSecrets({caller: self._read(_CALL, roster, me, caller, note, _others(roster, caller), trust)})

    def _check(self, roster: Roster, me: str, trust: Trust) -> None:
        if roster.study != self.study or me != self._credential.identity.name:
            msg = "this silo's offer is for another study or another silo than the roster; offer keys for this study"
            raise RosterRefused(msg)
        own = [entry for entry in roster.entries if entry.name == me]
        if not own or (own[0].public, own[0].kem) != (self.offer.public, self.offer.kem):
            msg = "the roster does not hold the keys that this silo offered last; offer keys again"
            raise RosterRefused(msg)
        roster.verify(trust)

    def _write(
        self, letter: _Letter, roster: Roster, me: str, readers: tuple[str, ...]
    ) -> tuple[bytes, dict[str, bytes]]:
        """Return a signed note with one ciphertext for each reader, and the secret with each."""
        ciphertexts, secrets = [], {}
        for other in map(roster.entry, readers):
            try:
                kem_secret, ciphertext = MLKEM768PublicKey.from_public_bytes(other.kem).encapsulate()
            except ValueError:
                msg = f"the second key of {other.name!r} is no ML-KEM-768 key; ask that silo to offer its keys again"
                raise RosterRefused(msg, other.name) from None
            ciphertexts.append(ciphertext)
            secrets[other.name] = self._secret(letter, roster, me, other, kem_secret, ciphertext)
        root = Tree(dict(zip(readers, ciphertexts, strict=True))).root
        signature = self._credential.sign(_message(letter, roster, me, root))
        return b"".join([closed(letter.magic, signature), *ciphertexts]), secrets

    def _read(  # noqa: PLR0917  # a note, and what it is a note of
        self,
        letter: _Letter,
        roster: Roster,
        me: str,
        sender: str,
        note: bytes,
        readers: tuple[str, ...],
        trust: Trust,
    ) -> bytes:
        """Return the secret that the sender of a note shares with this silo, which is one of its readers.

        The note is whole, or cut for this silo.
        """
        entry, form = roster.entry(sender), letter_form(readers)
        if len(note) not in (form.note, form.cut((me,))) or not note.startswith(letter.magic):
            msg = f"the {letter.name} of {sender!r} is missing, cut or of another version; have it sent again"
            raise RosterRefused(msg, sender)
        ciphertext, root = _slice_of(note, form, me)
        try:
            entry.verify(trust, _message(letter, roster, sender, root), signature_in(note, len(letter.magic)))
        except SignatureRefused:
            msg = f"the {letter.name} of {sender!r} was not signed by that silo for this roster; have it sent again"
            raise SignatureRefused(msg, sender) from None
        return self._secret(letter, roster, me, entry, self._kem.decapsulate(ciphertext), ciphertext)

    def _secret(  # noqa: PLR0917  # the two halves of a secret, and whose it is
        self, letter: _Letter, roster: Roster, me: str, other: RosterEntry, kem_secret: bytes, ciphertext: bytes
    ) -> bytes:
        """Derive the secret of a pair.

        Salt: the roster's digest, which covers all public keys. Info: both names, sorted, and the ciphertext.
        """
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other.public))
        except ValueError:
            msg = (
                f"the first key of {other.name!r} is no X25519 key or a weak one; ask that silo to offer its keys again"
            )
            raise RosterRefused(msg, other.name) from None
        first, second = sorted((me, other.name))
        return derive(
            shared + kem_secret,
            canonical(letter.purpose, first, second, ciphertext),
            salt=bytes.fromhex(roster.digest),
        )


def is_greeting(note: bytes) -> bool:
    """Whether a note that was kept is a greeting of this version, and not of an older one."""
    return note.startswith(_GREETING.magic)


def _kem_key(seed: bytes | None) -> MLKEM768PrivateKey:
    try:
        return MLKEM768PrivateKey.generate() if seed is None else MLKEM768PrivateKey.from_seed_bytes(seed)
    except UnsupportedAlgorithm:
        msg = "this machine's `cryptography` package lacks ML-KEM-768; install the version that constraints.txt names"
        raise SealError(msg) from None


def _offer_message(study: str, public: bytes, kem: bytes) -> bytes:
    return canonical("key offer", study, public, kem)


def _message(letter: _Letter, roster: Roster, sender: str, root: bytes) -> bytes:
    return canonical(letter.name, roster.study, bytes.fromhex(roster.digest), sender, root)


def _slice_of(note: bytes, form: SliceForm, me: str) -> tuple[bytes, bytes]:
    """Return the ciphertext for this silo, and the root to which it and what came with it lead."""
    place, size = form.readers.index(me), form.slice
    pieces = note[form.head :]
    if len(note) == form.note:
        every = {name: pieces[size * at : size * (at + 1)] for at, name in enumerate(form.readers)}
        return every[me], Tree(every).root
    path = [pieces[at : at + HASH_BYTES] for at in range(size, len(pieces), HASH_BYTES)]
    return pieces[:size], root_by(path, place, me, pieces[:size])


def _others(roster: Roster, silo: str) -> tuple[str, ...]:
    return tuple(name for name in roster.names if name != silo)
