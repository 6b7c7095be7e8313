"""Every error of the package, one tree.

Guarantees: whoever catches `CryptoError` catches everything this package raises on purpose. Each message says what to
do about it and carries no secret, no private number and no key byte. An `Error` is a fault that can be mended on this
side; a `Refused` is something another party sent that this side will not accept.
"""

from __future__ import annotations

# ruff: noqa: N818  # "Refused" says that the fault is another party's


class CryptoError(Exception):
    """Base of the tree."""


class CertificateError(CryptoError):
    """A certificate, its key or the identity in it cannot be used or trusted."""


class EnrolmentError(CryptoError):
    """A key, request or authority cannot be made or used as asked; nothing was overwritten."""


class SignatureRefused(CryptoError):
    """A signature does not belong to these bytes and this identity."""


class RosterRefused(CryptoError):
    """A roster is malformed, or is not the one this silo made an offer for."""


class SealError(CryptoError):
    """Something cannot be sealed as asked, or a sealed package or note is not authentic."""


class OpeningRefused(CryptoError):
    """A sum does not open to what an honest roster would have summed."""


class RecoveryRefused(CryptoError):
    """Shares, deposits or reveals of an attempt do not give what the masks of its survivors need."""

    def __init__(self, message: str, culprit: str = "") -> None:
        """`culprit`: the silo whose own signed note shows the fault; empty where no signed evidence shows one."""
        super().__init__(message)
        self.culprit = culprit


class FrameError(CryptoError):
    """Sealed bytes are malformed: wrong length, header or residue."""
