"""The list of silos whose uploads are in a sum. Silos sign it before any of them reveals shares. It is public.

Guarantees: the threshold T is above half of the study's silos and colluders together, under whatever roster a silo was
shown. Three facts follow (docs/design/sums.md, "Thresholds"):

1. Of two different lists for one tensor of a round, at most one gets T signatures of silos that sign one list.
2. A silo that contributes among T participants or more keeps the pair mask with an honest silo.
3. Of the secret on the other side of that list, at most t < T shares come out.

The silo's durable store makes sure that it signs one list per study, round and tensor, until `voids` close that list.

Whoever signs a list also signs which shares notes it holds. So all that reveal for a list hold the same notes, and a
reveal that is of no use lies at who made it (docs/design/sums.md, "Spoilt sums").
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from crypto.canonical import canonical
from crypto.errors import CertificateError, RosterRefused, SignatureRefused
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role

_MIN_SILOS = 2
Entry = tuple[str, bytes, bytes, bytes, bytes]
"""A member of a roster: name, certificate, its two public keys, and its signature over them."""


def roster_digest(study: str, entries: Iterable[Entry]) -> str:
    """Return SHA-256 over a study and its roster, lowercase hex. Labels and signatures name the roster by it."""
    parts = [part for entry in entries for part in entry]
    return hashlib.sha256(canonical("roster", study, *parts)).hexdigest()


def threshold(silos: int, colluders: int, min_silos: int) -> int:
    """Return how many silos must take part, sign and reveal: T = max(t + 1, (N + t) // 2 + 1, min_silos).

    N is the number of the study's `silos`, whatever a roster lists, and t the number of `colluders` that may work with
    the coordinator. T > t: colluders cannot reveal alone. 2T > N + t: two signed lists would share more than t signers,
    so an honest silo would have signed twice. Raises `RosterRefused` if T is above N, or if a number makes no sense.
    """
    needed = max(colluders + 1, (silos + colluders) // 2 + 1, min_silos)
    if silos < _MIN_SILOS or colluders < 0 or needed > silos:
        msg = (
            f"a study of {silos} silos is too small for {colluders} colluders and at least {min_silos} silos in a sum:"
            f" {needed} silos would have to sign; invite more silos"
        )
        raise RosterRefused(msg)
    return needed


@dataclass(frozen=True)
class AttemptRef:
    """Names one attempt at one round under one roster: what its signatures and shares are bound to."""

    study: str
    """Digest of the study."""
    roster: str
    """`agreement.Roster.digest`."""
    round: int
    attempt: int

    def canonical(self) -> bytes:
        """Return the unambiguous bytes. Raises `SealError` for a round or attempt outside [0, 2^64)."""
        return canonical("attempt", self.study, self.roster, self.round, self.attempt)


@dataclass(frozen=True)
class SurvivorList:
    """Silos whose uploads of one tensor were added. Raises `RosterRefused` unless two or more, sorted, each once."""

    attempt: AttemptRef
    tensor: str
    names: tuple[str, ...]
    notes: str
    """Digest of the participants' shares notes as the signer holds them (`unmasking.notes_digest`)."""

    def __post_init__(self) -> None:
        if len(self.names) < _MIN_SILOS or list(self.names) != sorted(set(self.names)):
            msg = "survivors must be two or more silos, sorted by name, each once; the coordinator must send them so"
            raise RosterRefused(msg)

    @cached_property
    def among(self) -> frozenset[str]:
        """The names, to look one up."""
        return frozenset(self.names)

    def to_sign(self) -> bytes:
        """Return the bytes that a silo signs: attempt, tensor, shares notes and names."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        return canonical("survivors", self.attempt.canonical(), self.tensor, self.notes, *self.names)

    def signed_by(
        self, certificates: Mapping[str, bytes], signatures: Mapping[str, bytes], trust: Trust
    ) -> tuple[str, ...]:
        """Return the survivors that signed exactly this list, sorted.

        `certificates` maps the roster's names to PEM, `signatures` names to DER. A signature is ignored if its silo is
        no survivor, if there is no certificate for that silo, or if it is over other bytes.
        """
        return signers(self.names, self.to_sign(), certificates, signatures, trust)


def signers(
    names: Collection[str],
    message: bytes,
    certificates: Mapping[str, bytes],
    signatures: Mapping[str, bytes],
    trust: Trust,
) -> tuple[str, ...]:
    """Return those of `names` that signed this very message, sorted.

    `certificates` maps names to PEM, `signatures` names to DER. What is missing, of others, or over other bytes is
    ignored.
    """
    return tuple(
        name
        for name in sorted(set(names))
        if name in certificates
        and name in signatures
        and signed(trust, name, certificates[name], message, signatures[name])
    )


def signed(trust: Trust, name: str, certificate_pem: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the authority certified the silo of this name, and this silo signed the message."""
    try:
        signer = trust.verify(certificate_pem, message, signature, role=Role.SILO)
    except (CertificateError, SignatureRefused):
        return False
    return signer == Identity(Role.SILO, name)
