"""Secrets that must outlive a process lie on this machine's disk sealed, never in the clear.

Guarantees: secrets are sealed with AES-256-GCM (NIST SP 800-38D) under a key derived from the party's certificate key,
one for each purpose, so a copied state folder is useless without the certificate key. A blob that was changed, cut, or
sealed for another purpose or party gives `SealError`. The installation keeps `key.pem` apart from the folder and its
backups, and the caller erases what is no longer needed.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.pki.certificates import Credential

_NONCE = 12


class Vault:
    """Seals secrets for one party and one purpose. `repr` prints only its kind."""

    def __init__(self, credential: Credential, purpose: str, entropy: Entropy) -> None:
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
