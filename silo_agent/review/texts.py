"""The texts of studies that a silo keeps, and what people want to know of one before they decide.

Guarantees: nothing here reads records, opens a key or charges. Names and beginnings of digests only choose among these
texts, and an ambiguous one is refused with the candidates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from common.digests import means
from crypto.authorship import SignatureBeside
from crypto.authorship import author_of as signer_of
from crypto.errors import CryptoError
from crypto.pki.certificates import Trust
from policies.documents.study import Study, load_study, parse_study
from silo_agent.config import AgentConfig
from silo_agent.storage import approvals as kept
from silo_agent.storage import offered
from silo_agent.storage.approvals import Approval, Approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.state import State

_SHORT: Final = 12


def chosen(settings: AgentConfig, wanted: str, *, keep: bool = False) -> Study:
    """The one study that is meant, of a file or of the texts that this silo keeps; `keep` also keeps that of a file.

    Raises `StateError` if none or several match, and what `load_study` raises.
    """
    folder = StateFolder(settings.state)
    if Path(wanted).suffix in {".yaml", ".yml", ".json"}:
        study = load_study(Path(wanted))
        if keep:
            known = kept.approvals(folder)
            offered.keep(folder, study, datetime.now(UTC), approved={*known.approved, study.digest})
        return study
    names = {**{one.digest: one.name for one in offers(settings)}, **begun(settings)}
    digest = one_of(names, wanted, "fedward-silo studies")
    found = kept_text(settings, digest)
    if found is None:
        msg = f"the text of {names[digest]} {digest[:_SHORT]} cannot be read; wait until it is offered again"
        raise StateError(msg)
    return found


def kept_text(settings: AgentConfig, digest: str) -> Study | None:
    """The study of a text that this silo keeps, since it was offered or has begun here. Raises what `State` raises."""
    folder = StateFolder(settings.state)
    found = offered.text(folder, digest)
    if found is not None or not folder.database.is_file():
        return found
    state = State(settings.state)
    try:
        canonical = state.canonical(digest)
    finally:
        state.close()
    return None if canonical is None else parse_study(canonical, digest)


def one_of(names: Mapping[str, str], wanted: str, lists: str) -> str:
    """The digest that is meant: a whole one, else a name or twelve digits of a digest that fit one study alone.

    Raises `StateError` if none or several fit; it lists them.
    """
    if wanted in names:
        return wanted
    found = [digest for digest, name in names.items() if means(wanted, name, digest)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{names[digest]} {digest}" for digest in sorted(found))
        msg = f"{len(found)} studies match {wanted!r} ({listed}); give more of the digest, or all of it"
    else:
        msg = (
            f"no study that this silo knows matches {wanted!r}; `{lists}` lists them. A study can be approved once it"
            " was offered to this silo, or by its file"
        )
    raise StateError(msg)


@dataclass(frozen=True)
class Author:
    """Who stands behind a study, as far as this machine can tell."""

    uri: str = ""
    """Empty if nobody does."""
    fault: str = ""

    @property
    def said(self) -> str:
        """Who it is, or why nobody is known."""
        return self.uri or f"nobody: {self.fault}"


def author_of(settings: AgentConfig, study: Study, wanted: str) -> Author:
    """The author whom the agent has verified; of a file, who has signed it in a file beside it."""
    if uri := offered.author_uri(StateFolder(settings.state), study.digest):
        return Author(uri)
    fault, path = "no author's signature came with it; this silo refuses it as unsigned", Path(wanted)
    for file in sorted(path.parent.glob(f"{path.name}.*.sig")) if path.is_file() else ():
        try:
            trust = Trust.load(settings.authority, settings.crls)
            return Author(signer_of(trust, study.digest, study.purpose, SignatureBeside.read(file)).uri)
        except (CryptoError, OSError) as error:
            fault = f"{file.name}: {error}"
    return Author("", fault)


def earlier_of(settings: AgentConfig, study: Study, author: str) -> Study | None:
    """The newest earlier revision of a study that this silo keeps: of the same name and, as far as known, author."""
    folder = StateFolder(settings.state)
    names = {**begun(settings), **{one.digest: one.name for one in offers(settings)}}
    digests = [digest for digest, name in names.items() if name == study.name and digest != study.digest]
    same = [digest for digest in digests if author in ("", offered.author_uri(folder, digest) or author)]
    found = [text for digest in same if (text := kept_text(settings, digest)) is not None]
    before = [text for text in found if text.revision < study.revision] or found
    return max(before, key=lambda one: one.revision, default=None)


def asked(study: Study, author: Author, earlier: Study | None) -> str:
    """Who asks, for what, and what is new."""
    lines = [f"Author: {author.said}", f"Purpose: {study.purpose}"]
    if earlier is not None:
        lines.append(f"It differs from {earlier.name} {earlier.digest[:_SHORT]}, which asked before:")
        lines += [f"  {line}" for line in changes(earlier, study)]
    return "\n".join([*lines, ""])


def changes(before: Study, after: Study) -> Iterator[str]:
    """Give what differs between two studies, one line for each field, by its path."""
    yield from _changes("", json.loads(before.canonical()), json.loads(after.canonical()))


def _changes(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _changes(f"{path}.{name}".lstrip("."), before.get(name), after.get(name))
    elif before != after:
        yield f"{path}: {json.dumps(before)} before, {json.dumps(after)} now"


def offers(settings: AgentConfig) -> Iterable[offered.Offered]:
    """The studies that were offered and have not begun."""
    return offered.offered(StateFolder(settings.state))


def begun(settings: AgentConfig) -> dict[str, str]:
    """The studies that have begun here, by digest with their names."""
    if not StateFolder(settings.state).database.is_file():
        return {}
    state = State(settings.state)
    try:
        return state.names()
    finally:
        state.close()


def upgrade(settings: AgentConfig) -> None:
    """Bind what version 0.6 approved, before anything new is written, so that what runs goes on."""
    named = (*settings.data, *settings.databases)
    kept.upgrade(StateFolder(settings.state), begun(settings), named, datetime.now(UTC))


def said_of(study: Study, decided: Approvals, settings: AgentConfig, by_rule: tuple[str, ...]) -> str:
    """Whether the study may use data here, and what to do about it."""
    one: Approval | None = decided.bound.get(study.digest)
    short = study.digest[:_SHORT]
    if one is not None and one.data is not None:
        back = f"fedward-silo study withdraw-approval {short}"
        return f"Approved on {one.at} for {one.data}. To take that back: {back}"
    give = f"fedward-silo study approve {short} --data NAME (one of: {settings.named})"
    if one is not None and one.declined:
        return f"It was declined on {one.at}. To approve it: {give}"
    if one is not None:
        return f"Its approval was taken back on {one.at}. To approve it: {give}"
    if len(by_rule) == 1:
        return (
            f"Nobody approved it, but the policy's approved_data gives it {by_rule[0]}. To give it other data: {give}"
        )
    return f"Not approved. To approve it: {give}"
