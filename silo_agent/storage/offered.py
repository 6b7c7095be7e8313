"""The texts of studies that this hospital was offered, so that people can read one before they approve it.

Guarantees: a text is kept before the policy has decided anything about it, under its own digest, and only the study of
that digest is ever read from it. Beside it stand who has signed it and what this silo has against it: for people of the
hospital alone, since a reason may say what is spent. The coordinator chooses how many studies it offers and how long
they are: at most `MOST` texts of `MOST_BYTES` together are kept that nobody has approved, the latest. A text may go
once the study has begun here, because the agent's state holds it from then on (`state`); its author and the verdict
then stand in the study's folder. What cannot be read counts as no text: the agent keeps it anew at the next offer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from common.durable import write_whole
from crypto.authorship import SignatureBeside
from policies.documents.study import Study, parse_study
from policies.refusals import Refused
from silo_agent.storage.folders import StateFolder

MOST: Final = 100
MOST_BYTES: Final = 16 << 20
MOST_SAID: Final = 1 << 14
"""Most characters of each reason that is kept."""
WAITS: Final = "no_data"
"""The label of what a person can settle: nobody lets the study use data, or the data are not there."""
Said = tuple[tuple[str, str], ...]
"""What a silo has against a study: labels of reasons with their sentences. Empty if it has nothing against it."""


@dataclass(frozen=True)
class Signed:
    """An author's signature that this silo has verified."""

    author: str
    """Whose, as a URI."""
    signature: SignatureBeside


@dataclass(frozen=True)
class Offered:
    """A study whose text is kept, and that has not begun here."""

    name: str
    digest: str
    asked: str
    """When it was offered last, in ISO 8601, UTC."""
    author: str = ""
    """Who has signed it, as a URI; empty if nobody has."""
    said: Said | None = None
    """What this silo has against it; None if it has not decided yet."""


def keep(
    folder: StateFolder,
    study: Study,
    now: datetime,
    *,
    signed: Signed | None = None,
    approved: Collection[str] = (),
    begun: Collection[str] = (),
) -> bool:
    """Keep the text of a study that was offered now, and drop the oldest ones above the bounds. Raises OSError.

    Of other studies, by their digests, the texts of the `approved` stay, and those of the `begun` go. Returns whether
    the study is a new one.
    """
    asked = now.astimezone(UTC).isoformat(timespec="seconds")
    content: dict[str, object] = {"name": study.name, "asked": asked, "study": study.canonical().decode()}
    if signed is not None:
        content["author"] = _plain(signed)
    before = _content(folder.offer(study.digest))
    if "said" in before:
        content["said"] = before["said"]
    write_whole(folder.offer(study.digest), json.dumps(content, sort_keys=True).encode())
    left, size = MOST, MOST_BYTES
    for path, one in _newest_first(folder, study.digest):
        if one is None or one.digest in begun:
            path.unlink(missing_ok=True)
        elif one.digest not in approved:
            left, size = left - 1, size - path.stat().st_size
            if min(left, size) < 0 and one.digest != study.digest:
                path.unlink(missing_ok=True)
    return not before


def judged(folder: StateFolder, digest: str, said: Said) -> None:
    """Note what this silo has against a study that was offered; empty if it has nothing against it. Raises OSError."""
    told = [[label, text[:MOST_SAID]] for label, text in said]
    begun = folder.study(digest)
    if begun.path.is_dir():
        if _content(begun.verdict).get("said") != told:
            write_whole(begun.verdict, json.dumps({"said": told}).encode())
        return
    content = _content(folder.offer(digest))
    if content and content.get("said") != told:
        write_whole(folder.offer(digest), json.dumps(content | {"said": told}, sort_keys=True).encode())


def given_data(folder: StateFolder, digest: str) -> None:
    """Forget that an offered study waits for data, because a person lets it use some. Raises OSError.

    Whether these are there is said at the next offer. What else this silo has against the study stays.
    """
    content = _content(folder.offer(digest))
    before = _said(content)
    if before and WAITS in dict(before):
        left = [list(one) for one in before if one[0] != WAITS]
        kept = {name: value for name, value in content.items() if name != "said"} | ({"said": left} if left else {})
        write_whole(folder.offer(digest), json.dumps(kept, sort_keys=True).encode())


def begin(folder: StateFolder, digest: str, signed: Signed | None) -> None:
    """Keep a study's author in the folder of the study, which begins now. Raises OSError."""
    if signed is not None:
        write_whole(folder.study(digest).author, json.dumps(_plain(signed)).encode())


def author_of(folder: StateFolder, digest: str) -> Signed | None:
    """Who has signed a study that was offered or has begun here; None if nobody has, or nothing says so any more."""
    plain = _content(folder.study(digest).author) or _content(folder.offer(digest)).get("author")
    try:
        return None if plain is None else _signed(plain)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def author_uri(folder: StateFolder, digest: str) -> str:
    """The author's URI; empty if nothing says who it is."""
    signed = author_of(folder, digest)
    return "" if signed is None else signed.author


def verdict_of(folder: StateFolder, digest: str) -> Said | None:
    """What this silo has against a study that has begun here; None if nothing was noted."""
    return _said(_content(folder.study(digest).verdict))


def offered(folder: StateFolder) -> list[Offered]:
    """The studies whose texts are kept, by when they were offered last."""
    return [one for _, one in reversed(_newest_first(folder)) if one is not None]


def text(folder: StateFolder, digest: str) -> Study | None:
    """The study of a kept text; None if none is kept, or if it cannot be read. Nothing bounds its constants yet."""
    try:
        return parse_study(_content(folder.offer(digest))["study"].encode(), digest)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Refused):
        return None


def _newest_first(folder: StateFolder, first: str = "") -> list[tuple[Path, Offered | None]]:
    """Every kept file with what it says of itself, the study `first` before all others; None if it cannot be read."""
    found = list(_read(folder))
    return sorted(found, key=lambda one: ("", "") if one[1] is None else _age(one[1], first), reverse=True)


def _age(one: Offered, first: str) -> tuple[str, str]:
    return ("~" if one.digest == first else one.asked, one.digest)


def _read(folder: StateFolder) -> Iterator[tuple[Path, Offered | None]]:
    for path in folder.offers():
        if not path.exists():
            continue
        content = _content(path)
        try:
            signed = content.get("author")
            author = "" if signed is None else _signed(signed).author
            one = Offered(content["name"], path.stem, content["asked"], author, _said(content))
            sound = all(isinstance(said, str) for said in (one.name, one.asked, content["study"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            sound = False
        yield path, one if sound else None


def _content(path: Path) -> dict[str, Any]:
    """What a file holds; nothing if it is not there or cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _said(content: dict[str, Any]) -> Said | None:
    if "said" not in content:
        return None
    try:
        return tuple((str(label), str(sentence)) for label, sentence in content["said"])
    except (TypeError, ValueError):
        return None


def _plain(signed: Signed) -> dict[str, str]:
    certificate = signed.signature.certificate.decode("ascii")
    return {"author": signed.author, "certificate": certificate, "signature": signed.signature.signature.hex()}


def _signed(plain: dict[str, str]) -> Signed:
    signature = SignatureBeside(plain["certificate"].encode(), bytes.fromhex(plain["signature"]))
    return Signed(str(plain["author"]), signature)


def revisions_of(folder: StateFolder, study: Study, names: Mapping[str, str]) -> frozenset[str]:
    """The digests of all studies here of this name and author, this one too, for a policy's limits for a study.

    `names`: of the studies that have begun here, by digest. Where nothing says whose one is, it counts.
    """
    author = author_uri(folder, study.digest)
    same = {digest for digest, name in names.items() if name == study.name}
    return frozenset({study.digest} | {one for one in same if not author or author_uri(folder, one) in ("", author)})


def waiting(found: Sequence[Offered], decided: Collection[str]) -> list[Offered]:
    """Those of the offered studies that wait for a person: nobody has decided, and nothing else is against them."""
    return [
        one for one in found if one.digest not in decided and one.said and {label for label, _ in one.said} == {WAITS}
    ]


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
