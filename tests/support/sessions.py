"""Sessions of one study's silos, taken through the steps of an attempt without a coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from crypto.entropy import Entropy, SystemEntropy
from crypto.pki.certificates import Credential
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.share_bundle import ShareBundle
from protos.messages import Member, Place
from silo_agent.protocol.session import Session

STUDY = "5" * 64
PLACE = Place(STUDY, 1, 1)
NEXT = replace(PLACE, attempt=2)
NAMES = ("north", "south", "west")
TENSORS = ("heads", "encoder")
NEEDED = 2
Sessions = Mapping[str, Session]
Members = tuple[Member, ...]


def fresh(credential: Credential, entropy: Entropy | None = None) -> Session:
    return Session(STUDY, credential, entropy or SystemEntropy(), lambda _: None)


def roster_of(sessions: Sessions) -> Members:
    return tuple(sessions[name].member for name in sorted(sessions))


def greeted(sessions: Sessions) -> tuple[Members, dict[str, bytes]]:
    """The roster, and what each has said to it."""
    roster = roster_of(sessions)
    return roster, {name: session.within(roster).greet() for name, session in sessions.items()}


def met(sessions: Sessions) -> Members:
    """A roster in which every two have a secret."""
    roster, greetings = greeted(sessions)
    for session in sessions.values():
        session.within(roster).meet(greetings)
    return roster


def dealt(sessions: Sessions, dealer: str = "south") -> tuple[Members, bytes]:
    """A roster with its keys, and the package that brought them."""
    roster = met(sessions)
    package = sessions[dealer].within(roster).deal(PLACE)
    for session in sessions.values():
        session.within(roster).take(dealer, package)
    return roster, package


def shared(sessions: Sessions, place: Place = PLACE) -> tuple[Members, dict[str, bytes]]:
    """A roster with its keys, and what each has shared for an attempt."""
    roster, _ = dealt(sessions)
    return roster, {
        name: session.within(roster).share(place, TENSORS, NEEDED, dict) for name, session in sessions.items()
    }


def bundles_of(
    sessions: Sessions, roster: Members, notes: Mapping[str, bytes], place: Place = PLACE
) -> dict[str, dict[str, ShareBundle]]:
    """What each reads in what all have shared."""
    return {
        name: session.within(roster).read_shares(place, TENSORS, NEEDED, notes) for name, session in sessions.items()
    }


def secrets_of(session: Session, roster: Members) -> list[bytes]:
    """All that must be seen by this silo alone, or by it and one peer."""
    drawn = AttemptSecrets.from_bytes(session._store.stored.shared.secrets)
    masks = [session.within(roster).masks(PLACE, tensor, NAMES) for tensor in TENSORS]
    return [
        *drawn.own.values(),
        *drawn.keys.values(),
        *session._store.stored.met.pairs.values(),
        *(seed for mask in masks for seed in mask.pairs.values()),
    ]


def flipped(note: bytes, at: int) -> bytes:
    """One bit is another."""
    at %= len(note)
    return note[:at] + bytes([note[at] ^ 1]) + note[at + 1 :]
