"""Who is signed in at a console: one-time links, sessions, and what a form must show.

Guarantees: a link works once and for five minutes. A session ends after half an hour without a call, after eight hours,
and with `Sessions.leave`. Nobody can take more than a few of either, so nobody drives others out. What is kept here
cannot be turned back into a link or a cookie. All of it is memory: a restart ends all sessions.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

LINK_SECONDS: Final = 300.0
IDLE_SECONDS: Final = 1800.0
LIFE_SECONDS: Final = 8 * 3600.0
LINKS: Final = 4
"""Links of one person that are not used yet. A further one takes the place of the oldest."""
SESSIONS: Final = 8
"""Sessions of one person. A further one ends the oldest."""
_BYTES: Final = 32

Who = TypeVar("Who", bound=Hashable)


@dataclass(eq=False, repr=False)
class ConsoleSession(Generic[Who]):
    """Somebody who is signed in. `form_token` stands in every form of the pages that this session is shown."""

    who: Who
    form_token: str
    begun: float
    heard: float
    note: str = ""
    """What the next page says first, such as what the last action did."""
    streams: int = 0
    """Pages that follow changes now."""

    def take_note(self) -> str:
        """Return the note, once."""
        note, self.note = self.note, ""
        return note


@dataclass(frozen=True)
class _Link(Generic[Who]):
    who: Who
    until: float


@dataclass
class Sessions(Generic[Who]):
    """The links and sessions of one console. `clock` gives seconds that never go back."""

    clock: Callable[[], float] = time.monotonic
    _links: dict[str, _Link[Who]] = field(default_factory=dict)
    _sessions: dict[str, ConsoleSession[Who]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def link(self, who: Who) -> str:
        """Return the secret of a new one-time link."""
        secret = secrets.token_urlsafe(_BYTES)
        with self._turn:
            self._expire()
            mine = [key for key, one in self._links.items() if one.who == who]
            for key in mine[: max(0, len(mine) - LINKS + 1)]:
                del self._links[key]
            self._links[_kept(secret)] = _Link(who, self.clock() + LINK_SECONDS)
        return secret

    def enter(self, secret: str) -> str | None:
        """Begin a session by a link's secret, and return the cookie; None if the link was used, is old or made up."""
        with self._turn:
            self._expire()
            found = self._links.pop(_kept(secret), None)
        return None if found is None else self.begin(found.who)

    def begin(self, who: Who) -> str:
        """Begin a session of somebody who is known, and return the cookie."""
        cookie, now = secrets.token_urlsafe(_BYTES), self.clock()
        with self._turn:
            self._expire()
            mine = [key for key, one in self._sessions.items() if one.who == who]
            for key in mine[: max(0, len(mine) - SESSIONS + 1)]:
                del self._sessions[key]
            self._sessions[_kept(cookie)] = ConsoleSession(who, secrets.token_urlsafe(_BYTES), now, now)
        return cookie

    def find(self, cookie: str, *, heard: bool = True) -> ConsoleSession[Who] | None:
        """Return the session of a cookie, if it has not ended. `heard`: a person called, and no page by itself."""
        with self._turn:
            self._expire()
            found = self._sessions.get(_kept(cookie))
            if found is not None and heard:
                found.heard = self.clock()
            return found

    def leave(self, cookie: str) -> None:
        """End a session."""
        with self._turn:
            self._sessions.pop(_kept(cookie), None)

    def _expire(self) -> None:
        now = self.clock()
        self._links = {key: one for key, one in self._links.items() if one.until > now}
        self._sessions = {
            key: one
            for key, one in self._sessions.items()
            if now - one.heard < IDLE_SECONDS and now - one.begun < LIFE_SECONDS
        }


def _kept(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
