"""Which studies a list shows, and in which pages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from protos.status import StudyStatus


@dataclass(frozen=True)
class StudyFilter:
    """What a list is asked for. The default is every study that is not archived."""

    states: frozenset[str] = frozenset()
    """Of the studies; all if empty."""
    name: str = ""
    """A pattern, with `*` for any text; all if empty."""
    owner: str = ""
    """Who created them, as a URI; everybody if empty."""
    archived: bool = False
    """Whether archived ones are shown, too."""
    most: int = 0
    """Studies on a page; 0 for all."""
    after: str = ""
    """The digest of the last study on the page before; empty for the first page."""

    def shows(self, one: StudyStatus) -> bool:
        """Whether a study fits."""
        fits = not self.states or one.state in self.states
        named = not self.name or fnmatchcase(one.name, self.name)
        owned = not self.owner or one.owner == self.owner
        return fits and named and owned and (self.archived or not one.archived)


def page(found: Iterable[StudyStatus], wanted: StudyFilter) -> tuple[list[StudyStatus], int]:
    """Return a page of the studies that fit, in their order, and how many come after it.

    A page after a study that does not fit any more, or is gone, begins anew.
    """
    fitting = [one for one in found if wanted.shows(one)]
    begin = next((place + 1 for place, one in enumerate(fitting) if one.study == wanted.after), 0)
    rest = fitting[begin:]
    shown = rest[: wanted.most] if wanted.most else rest
    return shown, len(rest) - len(shown)


EVERYTHING: Final = StudyFilter()
"""All that is not archived, on one page."""
