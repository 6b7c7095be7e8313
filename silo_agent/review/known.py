"""The studies that have begun at this silo, and which of them a person means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from common.digests import means
from silo_agent.storage.errors import StateError

if TYPE_CHECKING:
    from silo_agent.storage.state import State

_SHORT: Final = 12
"""Digits of a digest in a message, as in logs and metrics."""


@dataclass(frozen=True)
class OfferedStudy:
    """A study that this silo has been offered and has begun."""

    name: str
    digest: str
    committed: int
    """The last finished round, -1 before the first."""
    why: str
    """Why it is over; empty while it runs."""


def known_studies(state: State) -> list[OfferedStudy]:
    """All studies in the agent's state, in the order in which they began."""
    found = []
    for digest, committed, why in state.studies():
        text = state.canonical(digest)
        found.append(OfferedStudy("" if text is None else str(json.loads(text)["name"]), digest, committed, why))
    return found


def find_study(state: State, wanted: str) -> tuple[str, int]:
    """Return digest and last committed round of the one study with this name, or with these digits of its digest.

    Twelve digits or more, so that nobody means another study by chance. A name that looks like the digest of another
    study stands for neither. Raises `StateError` if there is none, or more than one; it names them.
    """
    known = known_studies(state)
    found = [one for one in known if means(wanted, one.name, one.digest)]
    if len(found) != 1:
        listed = ", ".join(f"{one.name} {one.digest[:_SHORT]}" for one in found)
        listing = f"give a name, or {_SHORT} digits of a digest, that `fedward-silo studies` lists"
        fix = "give more of the digest" if found else listing
        msg = f"{len(found)} studies match {wanted!r}{f' ({listed})' if found else ''}; {fix}"
        raise StateError(msg)
    return found[0].digest, found[0].committed


def find_trained(state: State, wanted: str) -> tuple[str, int]:
    """Return digest and last committed round of a study that has a model. Raises `StateError` as `find_study` does.

    Round 0 sums numbers of patients alone. Its heads are those of the earlier study, if the study continues one, and
    else are zero.
    """
    digest, committed = find_study(state, wanted)
    text = state.canonical(digest)
    if committed == 0 and text is not None and json.loads(text).get("continues") is None:
        msg = (
            f"{wanted} has no model yet: the last round that it finished is 0, which sums numbers of patients alone. If"
            " it was stopped there, no model will come"
        )
        raise StateError(msg)
    return digest, committed
