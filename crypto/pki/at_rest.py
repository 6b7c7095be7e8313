"""Secrets that must outlive a process lie on this machine's disk sealed, never in the clear.

Guarantees: secrets are sealed with AES-256-GCM (NIST SP 800-38D) under a key derived from the party's certificate key,
one for each purpose, so a copied state folder is useless without the certificate key. A blob that was changed, cut, or
sealed for another purpose or party gives `SealError`. The installation keeps `key.pem` apart from the folder and its
backups, and the caller erases what is no longer needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.pki.identity import Identity
from crypto.pki.key_files import own_secret

_NONCE = 12


class KeyHolder(Protocol):
    """Whoever has a party's private key: `certificates.Credential`, or a `FormerKey`."""

    @property
    def identity(self) -> Identity:
        """The party."""
        ...

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose that only the key's holder knows."""
        ...


@dataclass(frozen=True)
class FormerKey:
    """A party's key whose certificate need not count any more: it opens what it sealed, and signs nothing."""

    identity: Identity
    key_pem: bytes = field(repr=False)

    def derive(self, purpose: str) -> bytes:
        """As `certificates.Credential.derive`. Raises `CertificateError` if the key cannot be read."""
        return own_secret(self.key_pem, purpose)


class Vault:
    """Seals secrets for one party and one purpose. `repr` prints only its kind."""

    def __init__(self, credential: KeyHolder, purpose: str, entropy: Entropy) -> None:
        self._cipher = AESGCM(credential.derive(f"at rest: {purpose}"))
        self._bound = canonical("at rest", credential.identity.name, purpose)
        self._entropy = entropy

    def seal(self, plain: bytes) -> bytes:
        """Return nonce (12 bytes), ciphertext, tag (16)."""
        nonce = self._entropy.bytes(_NONCE)
        return nonce + self._cipher.encrypt(nonce, plain, self._bound)

    def open(self, blob: bytes) -> bytes:
        """The inverse of `seal`. Raises `SealError`."""
        try:
            return self._cipher.decrypt(blob[:_NONCE], blob[_NONCE:], self._bound)
        except (InvalidTag, ValueError):
            msg = "the stored secret was sealed by another key or for another purpose, or was changed since"
            raise SealError(msg) from None

    def __repr__(self) -> str:
        return "Vault(secret)"
