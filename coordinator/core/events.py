"""What happens to an attempt (events) and what the shell must do about it (effects). Values only, no rules."""

from __future__ import annotations

from dataclasses import dataclass

from protos.messages import Answer, Confirm, Part, Place, Tensor, UploadHeader


# --- events ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Answered:
    """A silo answered the offer."""

    silo: str
    answer: Answer


@dataclass(frozen=True)
class Uploaded:
    """A silo's content is complete, checked and durable."""

    header: UploadHeader
    signature: bytes = b""
    """The silo's, over the header."""


@dataclass(frozen=True)
class Added:
    """The coordinator has added the survivors' contributions to the current tensor."""

    total: Part


@dataclass(frozen=True)
class Confirmed:
    """A silo has done its task (take, catch up, sign, open or adopt), or disputes it."""

    silo: str
    confirm: Confirm
    certificate_pem: bytes = b""
    """The certificate by which the caller was identified, and with which what it signs was verified."""


@dataclass(frozen=True)
class Complained:
    """A silo disputes what another has sealed for it."""

    silo: str
    confirm: Confirm
    liar: str
    """Who lied of the two, as the evidence shows; empty if there is none."""


@dataclass(frozen=True)
class Restarted:
    """A silo of the roster has a new key store. The keys that it brought are gone."""

    silo: str
    session: str


@dataclass(frozen=True)
class Returned:
    """A silo that was away calls again."""

    silo: str


@dataclass(frozen=True)
class Revoked:
    """The certificates of these silos were revoked, so nothing that they do counts any more."""

    silos: tuple[str, ...]


@dataclass(frozen=True)
class Passed:
    """Time has passed."""


@dataclass(frozen=True)
class RoundStopped:
    """The operator or a fault of the coordinator stops the round."""

    reason: str


Event = Answered | Uploaded | Added | Confirmed | Complained | Restarted | Returned | Revoked | Passed | RoundStopped


# --- effects --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Persist:
    """Store the new state before anything else happens."""


@dataclass(frozen=True)
class Add:
    """Add these silos' contributions to this tensor, then report `Added`."""

    place: Place
    tensor: Tensor
    silos: tuple[str, ...]


@dataclass(frozen=True)
class Clear:
    """Delete the sealed bytes of this attempt, because nobody needs them any more."""

    place: Place


@dataclass(frozen=True)
class Lost:
    """Tell the operator that silos were set aside for the rest of the attempt."""

    place: Place
    phase: str
    silos: tuple[str, ...]
    why: str


Effect = Persist | Add | Clear | Lost
