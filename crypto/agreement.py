"""Key agreement: every two silos of a roster share a secret that the coordinator, who carries the offers, cannot know.

Guarantees: a secret is derived only from offers that the named silos signed with their certified keys for this study
(X25519, RFC 7748; HKDF-SHA256, RFC 5869), and depends on the whole roster, so silos that were shown different rosters
share nothing. Leaves it to the silo's policy whether a roster is large enough, and to its store that the ephemeral key
is forgotten after use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from crypto.canonical import canonical
from crypto.certificates import Credential, Trust
from crypto.errors import RosterRefused, SealError, SignatureRefused
from crypto.identity import Role
from crypto.stream import KEY_BYTES, derive

_PRIVATE_BYTES = 32
_MIN_SILOS = 2


@dataclass(frozen=True)
class KeyOffer:
    """A silo's ephemeral public key (32 bytes) and its signature (DER) over study and key."""

    public: bytes
    signature: bytes


@dataclass(frozen=True)
class RosterEntry:
    """One silo's offer as the coordinator hands it round."""

    name: str
    certificate_pem: bytes
    public: bytes
    signature: bytes


@dataclass(frozen=True)
class Roster:
    """Who is in the sums of a study. Raises `RosterRefused` unless sorted by name, without repeats, of two or more."""

    study: str
    entries: tuple[RosterEntry, ...]

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        publics = {entry.public for entry in self.entries}
        if len(names) < _MIN_SILOS or names != sorted(set(names)) or len(publics) != len(names):
            msg = "a roster lists two or more silos, sorted by name, each once and with a key of its own"
            raise RosterRefused(msg)

    @property
    def names(self) -> tuple[str, ...]:
        """The silos' names, sorted."""
        return tuple(entry.name for entry in self.entries)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over study and entries, lowercase hex: names this roster in labels and signatures."""
        parts: list[bytes | str] = [self.study]
        for entry in self.entries:
            parts += [entry.name, entry.certificate_pem, entry.public, entry.signature]
        return hashlib.sha256(canonical("roster", *parts)).hexdigest()

    def verify(self, trust: Trust, *, now: datetime | None = None) -> None:
        """Check that the authority certified each entry as the silo of that name, and that this silo signed its key.

        `now` (aware) defaults to the clock. Raises `CertificateError`, `SignatureRefused`, or `RosterRefused` where an
        entry's name is not its certificate's.
        """
        for entry in self.entries:
            message = _offer_message(self.study, entry.public)
            identity = trust.identify(entry.certificate_pem, role=Role.SILO, now=now)
            if identity.name != entry.name:
                msg = f"the roster calls {identity} {entry.name!r}; the coordinator must send the roster as it is"
                raise RosterRefused(msg)
            try:
                trust.verify(entry.certificate_pem, message, entry.signature, role=Role.SILO)
            except SignatureRefused:
                msg = (
                    f"the key in the roster was not offered by {identity} for this study; ask that silo to offer again"
                )
                raise SignatureRefused(msg) from None


class PairSecrets(Mapping[str, bytes]):
    """Other silo's name -> the 32-byte secret shared with it. Prints only its kind."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        """Copy the secrets. Raises `SealError` where one has another length."""
        if any(len(secret) != KEY_BYTES for secret in secrets.values()):
            msg = f"a pair secret has {KEY_BYTES} bytes; agree on keys again"
            raise SealError(msg)
        self._secrets = {name: secrets[name] for name in sorted(secrets)}

    def __getitem__(self, name: str) -> bytes:
        return self._secrets[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._secrets)

    def __len__(self) -> int:
        return len(self._secrets)

    def __repr__(self) -> str:
        return "PairSecrets(secret)"


@dataclass(frozen=True)
class EphemeralKey:
    """This silo's key pair for the rosters of one study. On a disk it lies sealed only (`crypto.at_rest`)."""

    study: str
    offer: KeyOffer
    _credential: Credential = field(repr=False)
    _private: X25519PrivateKey = field(repr=False)

    @classmethod
    def create(cls, credential: Credential, study: str) -> Self:
        """Make a fresh X25519 key and sign it for the study."""
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw()
        return cls(study, KeyOffer(public, credential.sign(_offer_message(study, public))), credential, private)

    @classmethod
    def restore(cls, credential: Credential, study: str, blob: bytes) -> Self:
        """The inverse of `to_bytes`. Raises `SealError` where this silo did not sign the key for the study."""
        private = X25519PrivateKey.from_private_bytes(blob[:_PRIVATE_BYTES].ljust(_PRIVATE_BYTES, b"\0"))
        offer = KeyOffer(private.public_key().public_bytes_raw(), blob[_PRIVATE_BYTES:])
        try:
            message = _offer_message(study, offer.public)
            Trust(credential.authority_pem).verify(
                credential.certificate_pem, message, offer.signature, role=credential.identity.role
            )
        except SignatureRefused:
            msg = "the stored key was not signed by this silo for this study; a new one must be offered"
            raise SealError(msg) from None
        return cls(study, offer, credential, private)

    def to_bytes(self) -> bytes:
        """Private key (32 bytes) and the offer's signature. Secret: seal it before it touches a disk."""
        return self._private.private_bytes_raw() + self.offer.signature

    def meet(self, roster: Roster, me: str) -> PairSecrets:
        """Verify the roster under this silo's own authority and derive the secret with each other member.

        Salt: the roster's digest; info: both silos' names in order. Raises what `Roster.verify` raises, and
        `RosterRefused` where the roster is for another study or does not hold this very offer.
        """
        own = [entry for entry in roster.entries if entry.name == me]
        if roster.study != self.study or me != self._credential.identity.name:
            msg = "the roster is for another study or another silo than the offer; offer a key for this one"
            raise RosterRefused(msg)
        if not own or own[0].public != self.offer.public:
            msg = "the roster does not hold the key that this silo offered last; offer again"
            raise RosterRefused(msg)
        roster.verify(Trust(self._credential.authority_pem))
        return PairSecrets({e.name: self._secret(e, me, roster) for e in roster.entries if e.name != me})

    def _secret(self, other: RosterEntry, me: str, roster: Roster) -> bytes:
        try:
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(other.public))
        except ValueError:
            msg = f"the key of {other.name!r} is no X25519 key, or a weak one; ask that silo to offer again"
            raise RosterRefused(msg) from None
        first, second = sorted((me, other.name))
        return derive(shared, canonical("pair", first, second), salt=bytes.fromhex(roster.digest))


def _offer_message(study: str, public: bytes) -> bytes:
    return canonical("key offer", study, public)
