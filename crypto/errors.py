"""All errors of the package, in one tree.

Guarantees: `except CryptoError` catches everything that this package raises on purpose. Each message says what to do
about the error and carries no secret, no private number and no key byte. An `Error` is a fault that can be fixed on
this side. A `Refused` is something that another party sent and that this side does not accept.
"""

from __future__ import annotations

# ruff: noqa: N818  # "Refused" says that another party is at fault


class CryptoError(Exception):
    """Base of the tree."""


class CertificateError(CryptoError):
    """A certificate, its key or the identity in it cannot be used or trusted."""


class UnknownAuthorityError(CertificateError):
    """Nobody of `authority.pem` vouches for the certificate: it is of another consortium, or its root was taken out."""


class EnrolmentError(CryptoError):
    """A key, a request or an authority cannot be made or used as asked. Nothing was overwritten."""


class PeerRefused(CryptoError):
    """Another silo has sent something wrong, if `culprit` names one. This side alone says so, and proves nothing."""

    def __init__(self, message: str, culprit: str = "") -> None:
        """`culprit` is empty if it does not lie at one silo."""
        super().__init__(message)
        self.culprit = culprit


class SignatureRefused(PeerRefused):
    """A signature does not belong to these bytes and this identity."""


class RosterRefused(PeerRefused):
    """A roster is malformed, or is not the roster that this silo made an offer for."""


class SealError(CryptoError):
    """Something cannot be sealed as asked, or a sealed package or note is not authentic."""


class OpeningRefused(CryptoError):
    """A sum does not open to the sum that an honest roster would have made."""


class RecoveryRefused(CryptoError):
    """Shares, deposits or reveals of an attempt do not give what is needed to take off its survivors' masks."""

    def __init__(self, message: str, culprit: str = "", evidence: bytes = b"") -> None:
        """`culprit` is the silo whose own signed note shows the fault; empty if no signed evidence shows one.

        `evidence` is the key of a note that was sealed for this silo, if the note under it shows everybody the fault.
        """
        super().__init__(message)
        self.culprit, self.evidence = culprit, evidence


class NotesWantedError(CryptoError):
    """More must be read of shares notes before a sum can be opened, or it can be said why it cannot."""

    def __init__(self, silos: tuple[str, ...]) -> None:
        """`silos`: whose notes must be read whole. Of the others' notes what they have for these silos is wanted."""
        super().__init__(f"the whole shares notes of {', '.join(silos)} must be read first")
        self.silos = silos


class FrameError(CryptoError):
    """Sealed bytes are malformed: wrong length, header or residue."""
