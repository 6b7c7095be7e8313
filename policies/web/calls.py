"""What a console's handlers take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from policies.errors import PolicyError
from policies.web.sessions import Who


@dataclass(frozen=True)
class ConsoleCall(Generic[Who]):
    """One call of somebody who is signed in. `query` and `form` have each name once; `files` has what was uploaded."""

    who: Who
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """A page by the name of its template, with what the template reads."""

    template: str
    values: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True)
class Moved:
    """An action was done: the browser goes on to this path, where `note` stands first."""

    to: str
    note: str = ""


@dataclass(frozen=True)
class Download:
    """A file that the browser saves."""

    name: str
    content: bytes
    kind: str = "application/octet-stream"


Reply = Page | Moved | Download


class NotHereError(PolicyError):
    """There is nothing at this address that the caller may see."""


class BadCallError(PolicyError):
    """The caller's values are none that this page takes. The text says which, and what is allowed."""
