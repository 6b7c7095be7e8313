"""When a study may be created again under its name. Pure.

A name belongs to who created it first. The next revision comes once all earlier ones are over, and has a higher number:
silos refuse a digest that is over, and a policy's limits for a study count all revisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.core.study import OVER, Life
from coordinator.errors import CoordinatorError


class StudyExistsError(CoordinatorError):
    """A study with this name or digest exists already."""


@dataclass(frozen=True)
class Namesake:
    """A study of the same name."""

    study: str
    """Its digest."""
    owner: str
    """Who created it, as a URI; empty if no version noted it."""
    life: Life
    revision: int


def require_next(name: str, study: str, revision: int, who: str, namesakes: Sequence[Namesake]) -> None:
    """Raise `StudyExistsError` unless a study may be created beside those of its name.

    `study`: its digest; `who`: who creates it, as a URI.
    """
    if not namesakes:
        return
    exists = f"a study named {name!r} exists already"
    if any(one.study == study or one.owner != who for one in namesakes):
        msg = f"{exists}; give the new one another name"
        raise StudyExistsError(msg)
    running = [one for one in namesakes if one.life not in OVER]
    if running:
        ends = "delete it" if running[0].life is Life.CREATED else "abort it, or wait until it is over"
        msg = f"{exists} and is {running[0].life}; {ends}, or give the new one another name"
        raise StudyExistsError(msg)
    last = max(one.revision for one in namesakes)
    if revision <= last:
        msg = f"{exists}, in revision {last}; state revision: {last + 1} to create it again, or give it another name"
        raise StudyExistsError(msg)
