"""Who may do what to a study: by the role in the certificate, and by whose study it is. Pure.

Guarantees: an author touches and sees only the studies that this author created. Somebody else's study is touched by an
operator alone, who says why. No other role changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator.errors import CoordinatorError
from crypto.pki.identity import Identity, Role


class Action(StrEnum):
    """What a person can do to a study, or to all of them."""

    CREATE = "create"
    POLL = "poll"
    """Ask the silos of a study that is not created whether they would take part."""
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    DELETE = "delete"
    """Forget a study that was never started."""
    ARCHIVE = "archive"
    """Leave a study that is over out of lists."""
    FORGIVE = "forgive"
    """Forget what waiting for one silo has cost the study."""
    DRAIN = "drain"
    """Begin no further round of any study."""
    FILL = "undo-drain"
    """Begin rounds again."""


MAY_ACT: Final = {
    Role.OPERATOR: frozenset(Action),
    Role.AUTHOR: frozenset(Action) - {Action.FORGIVE, Action.DRAIN, Action.FILL},
}
READERS: Final = frozenset({Role.OPERATOR, Role.AUTHOR, Role.VIEWER})
"""Who reads the state and the results of studies: authors those of their own."""
AUDITORS: Final = frozenset({Role.OPERATOR, Role.VIEWER})
"""Who reads the audit log."""


class RightsError(CoordinatorError):
    """This person may not do this. Nothing changed."""


@dataclass(frozen=True)
class Deed:
    """What a person does or wants to do. Which study it is about stands beside it."""

    who: Identity
    action: Action
    reason: str = ""
    silo: str = ""
    """The silo that is forgiven."""
    certificate: str = ""
    """SHA-256 of the person's certificate (PEM)."""

    def told(self, verb: str) -> str:
        """Return the sentence that silos and others read, such as `paused by operator ada: maintenance`."""
        return f"{verb} by {self.who.role.value} {self.who.name}{f': {self.reason}' if self.reason else ''}"


def may_see(who: Identity, owner: str) -> bool:
    """Whether a person may know of a study. `owner`: the URI of who created it; empty if no version noted it."""
    return who.role is not Role.AUTHOR or who.uri == owner


def require_role(deed: Deed) -> None:
    """Raise `RightsError` unless the person's role may do this at all."""
    if deed.action not in MAY_ACT.get(deed.who.role, frozenset()):
        able = " or ".join(f"an {role.value}" for role, actions in MAY_ACT.items() if deed.action in actions)
        what = "the coordinator" if deed.action in (Action.DRAIN, Action.FILL) else "a study"
        msg = f"{deed.who} may not {deed.action} {what}; {able} may"
        raise RightsError(msg)


def require_right(deed: Deed, owner: str) -> None:
    """Raise `RightsError` unless the person may do this to a study of `owner`'s, with the reason that it takes."""
    require_role(deed)
    if not may_see(deed.who, owner):
        msg = f"{deed.who} may not {deed.action} a study of somebody else; its author or an operator may"
        raise RightsError(msg)
    if deed.reason.strip():
        return
    if deed.action is Action.ABORT:
        msg = "a study is aborted for a reason, which every silo reads; give --reason"
        raise RightsError(msg)
    if deed.who.uri != owner:
        whose = f"of {owner}" if owner else "from an earlier version, which noted no author"
        msg = f"the study is {whose}, not of {deed.who}; say with --reason why you touch it"
        raise RightsError(msg)
