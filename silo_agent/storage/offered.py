"""The texts of studies that this hospital was offered, so that people can read one before they approve it.

Guarantees: a text is kept before the policy has decided anything about it, under its own digest, and only the study of
that digest is ever read from it. The coordinator chooses how many studies it offers and how long they are: at most
`MOST` texts of `MOST_BYTES` together are kept that nobody has approved, the latest. Public facts alone stand in them.
A text may go once the study has begun here, because the agent's state holds it from then on (`state`). What cannot be
read counts as no text: the agent keeps it anew when it is offered the study again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from common.durable import write_whole
from policies.documents.study import Study, parse_study
from policies.refusals import Refused
from silo_agent.storage.folders import StateFolder

MOST: Final = 100
MOST_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Offered:
    """A study whose text is kept, and that has not begun here."""

    name: str
    digest: str
    asked: str
    """When it was offered last, in ISO 8601, UTC."""


def keep(
    folder: StateFolder, study: Study, now: datetime, *, approved: Collection[str] = (), begun: Collection[str] = ()
) -> None:
    """Keep the text of a study that was offered now, and drop the oldest ones above the bounds. Raises OSError.

    Of other studies, by their digests, the texts of the `approved` stay, and those of the `begun` go.
    """
    asked = now.astimezone(UTC).isoformat(timespec="seconds")
    content = {"name": study.name, "asked": asked, "study": study.canonical().decode()}
    write_whole(folder.offer(study.digest), json.dumps(content, sort_keys=True).encode())
    left, size = MOST, MOST_BYTES
    for path, one in _newest_first(folder, study.digest):
        if one is None or one.digest in begun:
            path.unlink(missing_ok=True)
        elif one.digest not in approved:
            left, size = left - 1, size - path.stat().st_size
            if min(left, size) < 0 and one.digest != study.digest:
                path.unlink(missing_ok=True)


def offered(folder: StateFolder) -> list[Offered]:
    """The studies whose texts are kept, by when they were offered last."""
    return [one for _, one in reversed(_newest_first(folder)) if one is not None]


def text(folder: StateFolder, digest: str) -> Study | None:
    """The study of a kept text; None if none is kept, or if it cannot be read. Nothing bounds its constants yet."""
    try:
        content = json.loads(folder.offer(digest).read_bytes())
        return parse_study(content["study"].encode(), digest)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, Refused):
        return None


def _newest_first(folder: StateFolder, first: str = "") -> list[tuple[Path, Offered | None]]:
    """Every kept file with what it says of itself, the study `first` before all others; None if it cannot be read."""
    found = list(_read(folder))
    return sorted(found, key=lambda one: ("", "") if one[1] is None else _age(one[1], first), reverse=True)


def _age(one: Offered, first: str) -> tuple[str, str]:
    return ("~" if one.digest == first else one.asked, one.digest)


def _read(folder: StateFolder) -> Iterator[tuple[Path, Offered | None]]:
    for path in folder.offers():
        try:
            content = json.loads(path.read_bytes())
            one = Offered(content["name"], path.stem, content["asked"])
            sound = all(isinstance(said, str) for said in (one.name, one.asked, content["study"]))
        except FileNotFoundError:
            continue
        except (ValueError, TypeError, KeyError, RecursionError):
            sound = False
        yield path, one if sound else None


def begun_names(folder: StateFolder) -> dict[str, str]:
    """The names of the studies that have begun here, by digest, for a command that needs nothing else of the state.

    Empty if the state cannot be read: a name is a convenience, and its absence is told by whatever needs the state.
    """
    try:
        place = f"file:{quote(str(folder.database.absolute()))}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=30)) as connection:
            rows = connection.execute("SELECT study, canonical FROM studies").fetchall()
        return {str(digest): str(json.loads(text)["name"]) for digest, text in rows}
    except (sqlite3.Error, ValueError, KeyError, TypeError):
        return {}
