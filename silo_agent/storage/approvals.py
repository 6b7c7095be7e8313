"""What people of the hospital decided about studies while the agent runs: which data a study may use, or none.

Guarantees: an approval names one study by its whole digest, and only a study whose text is kept here can be approved
(`offered`, `state`), so nobody approves what does not exist yet. `agent.yaml` names data and no study: a study whose
name is that of data gets nothing by it. A decision is on the disk before the command returns; the agent reads it at
each offer and before each charge, and writes it into the ledger first (`oversight.decisions`), which says what counts.
Whoever takes an approval back or declines a study stops one that the policy's rule (`approved_data`) would give data,
too. A list that is gone is never taken for an empty one. Reasons stay in this file; the ledger has a keyed hash of
each.

Version 0.6 approved by names and beginnings of digests, and by entries of `agent.yaml`. `upgrade` binds them to the
studies that have begun under them. The others are kept as `unbound`, for people to read, and give nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.digests import is_sha256
from common.durable import write_whole
from common.file_lock import one_at_a_time
from crypto.authorship import SignatureBeside
from crypto.canonical import canonical
from crypto.pki.certificates import Credential
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.events import Verdict
from policies.refusals import Reason, Refused
from silo_agent.config import AgentConfig, SqlSource
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import author_uri, given_data

if TYPE_CHECKING:
    from silo_agent.storage.state import State

_VERSION: Final = 3
_SHORTEST: Final = 12
"""Digits of a digest in a message; in version 0.6 so many named a study."""
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{_SHORTEST},}}")
_MOST_SIGNED: Final = 1 << 17
NOT_APPROVED: Final = "this silo's hospital has not approved the study, or has taken its approval back"
"""All that anybody outside hears of it."""


@dataclass(frozen=True)
class Approval:
    """What a person has decided about one study."""

    study: str
    """The study's name, for people."""
    data: str | None
    """The name of the data that it may use; None if the study was declined, or its approval taken back."""
    at: str
    """When, in ISO 8601, UTC."""
    reason: str = ""
    """Why, in the person's words."""
    declined: bool = False
    """Whether the study was declined, and no approval taken back."""
    signed: SignatureBeside | None = None
    """The signature of who approved it, over `message`; None if nobody signed."""
    old: bool = False
    """Whether an earlier version, which wrote no decision into the ledger, has taken it."""

    @property
    def verdict(self) -> Verdict:
        """The decision's name in the ledger."""
        if self.data is not None:
            return "approved"
        return "refused" if self.declined else "withdrawn"

    def message(self, digest: str) -> bytes:
        """Return the bytes that an approver signs. `digest`: of the study."""
        return canonical("study approval", digest, self.verdict, self.data or "", self.at, self.reason)


@dataclass(frozen=True)
class Approvals:
    """The whole list."""

    bound: Mapping[str, Approval] = field(default_factory=dict)
    """By the study's digest."""
    unbound: Mapping[str, str] = field(default_factory=dict)
    """What version 0.6 approved by a name or the beginning of a digest: data by that word. It gives nothing."""
    old: bool = False
    """Whether the list was written by version 0.6, or there is none yet."""

    @property
    def approved(self) -> frozenset[str]:
        """Digests of the studies that may use data."""
        return frozenset(digest for digest, one in self.bound.items() if one.data is not None)


def approvals(folder: StateFolder) -> Approvals:
    """Read the list. Raises `StateError` if it cannot be read, or if it is gone."""
    path = folder.approvals
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        if folder.offers():
            msg = (
                f"{path} is gone, so nobody knows which studies the hospital has approved; put it back from the newest"
                " backup, or begin a new list, in which nothing is approved: fedward-silo study withdraw-approval --all"
            )
            raise StateError(msg) from None
        return Approvals(old=True)
    except (ValueError, RecursionError):
        found = None
    try:
        return _parsed(found)
    except (ValueError, TypeError, KeyError, AttributeError):
        msg = (
            f"{path} cannot be read, so nobody knows which studies the hospital has approved; put it back from the"
            " newest backup, or begin a new list, in which nothing is approved: fedward-silo study withdraw-approval"
            " --all"
        )
        raise StateError(msg) from None


def made(study: Study, data: str, now: datetime, reason: str = "") -> Approval:
    """Return an approval that nobody has signed yet."""
    return replace(_now(study.name, data, now), reason=reason)


def signed_text(study: Study, given: Approval, credential: Credential) -> str:
    """Return what a file holds with which an approver hands in a decision."""
    signed = replace(given, signed=SignatureBeside.made(credential, given.message(study.digest)))
    return json.dumps({"digest": study.digest, **_document(signed)}, indent=1) + "\n"


def read_signed(path: Path, study: Study) -> Approval:
    """Read such a file. Raises `StateError` if it holds no signed approval of this study, OSError."""
    with path.open("rb") as opened:
        return signed_in(opened.read(_MOST_SIGNED), study, path)


def signed_in(content: bytes, study: Study, origin: Path | str) -> Approval:
    """Read what such a file holds; `origin` is its name in messages. Raises `StateError`."""
    try:
        found = json.loads(content[:_MOST_SIGNED])
        digest, given = found["digest"], _approval(found, _VERSION)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        digest, given = "", None
    if given is None or given.data is None or given.signed is None:
        msg = f"{origin}: this is no signed approval; write one with: fedward-silo study sign"
        raise StateError(msg)
    if digest != study.digest:
        msg = f"{origin}: it approves {given.study} {digest[:_SHORTEST]}, not {study.name} {study.digest[:_SHORTEST]}"
        raise StateError(msg)
    return given


def approve(folder: StateFolder, study: Study, given: Approval) -> None:
    """Let one study use data, from its next offer on. Raises `StateError`, OSError.

    The caller has taken the study from a text that this silo keeps.
    """
    with one_at_a_time(folder.approving):
        found = approvals(folder)
        unbound = {word: data for word, data in found.unbound.items() if not _meant(word, study.name, study.digest)}
        given_data(folder, study.digest)
        _write(folder, replace(found, bound={**found.bound, study.digest: given}, unbound=unbound))


def withdraw(
    folder: StateFolder,
    studies: Mapping[str, str],
    now: datetime,
    unbound: Iterable[str] = (),
    *,
    reason: str = "",
    declined: bool = False,
) -> None:
    """Decline studies, or take their approvals back, by digest with their names; also `unbound` words of version 0.6.

    The studies are charged nothing more, whatever the policy's rule says. Raises `StateError`, OSError.
    """
    with one_at_a_time(folder.approving):
        found = approvals(folder)
        back = {
            digest: replace(_now(name, None, now), reason=reason, declined=declined) for digest, name in studies.items()
        }
        left = {word: data for word, data in found.unbound.items() if word not in set(unbound)}
        _write(folder, replace(found, bound={**found.bound, **back}, unbound=left))


def begin_anew(folder: StateFolder, studies: Mapping[str, str], now: datetime) -> None:
    """Replace the list, also one that cannot be read, by one in which nothing is approved. Raises OSError.

    `studies`: those that may be running, by digest with their names.
    """
    with one_at_a_time(folder.approving):
        _write(folder, Approvals({digest: _now(name, None, now) for digest, name in studies.items()}))


def upgrade(folder: StateFolder, studies: Mapping[str, str], named: Iterable[str], now: datetime) -> Approvals:
    """Bind what version 0.6 approved to the studies that have begun under it, and return the list. Idempotent.

    Args:
        folder: the agent's.
        studies: those that have begun here, by digest with their names.
        named: the names of data in agent.yaml. In version 0.6 such a name approved the study of that name.
        now: aware.

    Raises `StateError` if the list cannot be read, OSError.
    """
    with one_at_a_time(folder.approving):
        found = approvals(folder)
        if not found.old:
            return found
        names = set(named)
        bound = {digest: replace(one, study=studies.get(digest, "")) for digest, one in found.bound.items()}
        for digest, name in studies.items():
            words = sorted((word for word in found.unbound if _meant(word, name, digest)), key=len)
            data = name if name in names else next((found.unbound[word] for word in reversed(words)), None)
            if digest not in bound and data is not None:
                bound[digest] = replace(_now(name, data, now), old=True)
        used = {word for word in found.unbound for digest in bound if _meant(word, studies.get(digest, ""), digest)}
        left = {word: data for word, data in found.unbound.items() if word not in used}
        listed = Approvals(bound, left)
        _write(folder, listed)
        folder.waiting.unlink(missing_ok=True)
        return listed


def upgrade_of(config: AgentConfig, state: State, now: datetime) -> Approvals:
    """`upgrade` for this agent."""
    return upgrade(state.files, state.names(), (*config.data, *config.databases), now)


def source_of(config: AgentConfig, study: Study, policy: Policy) -> Path | SqlSource | None:
    """Where a study's records are: by an approval, else by the policy's rule. None if neither says so.

    Raises `StateError`, also if the rule gives a study several data.
    """
    decided = approvals(StateFolder(config.state)).bound.get(study.digest)
    if decided is not None:
        return None if decided.data is None else config.source(decided.data)
    by_rule = policy.data_for(study.name, study.purpose, author_uri(StateFolder(config.state), study.digest))
    if len(by_rule) > 1:
        msg = (
            f"approved_data of the policy gives the study {study.name!r} several data ({', '.join(by_rule)}); say"
            f" which: fedward-silo study approve {study.digest[:_SHORTEST]} --data NAME"
        )
        raise StateError(msg)
    return config.source(by_rule[0]) if by_rule else None


def require_approved(config: AgentConfig, study: Study, policy: Policy) -> None:
    """Raise `Refused` if nobody lets the study use data now, or if the list of approvals cannot be read."""
    try:
        source = source_of(config, study, policy)
    except StateError:
        source = None
    if source is None:
        raise Refused(Reason.NOT_APPROVED, NOT_APPROVED)


def own(config: AgentConfig, study: Study, policy: Policy) -> Path | SqlSource | None:
    """The data at which a person of the hospital looks for a study, who needs no approval: nothing is charged or sent.

    These are the data that the study may use, else those of the study's own name, else the only ones that agent.yaml
    names; None if none of that says which. Raises `StateError` as `source_of` does.
    """
    names = (*config.data, *config.databases)
    found = source_of(config, study, policy) or config.source(study.name)
    return config.source(names[0]) if found is None and len(names) == 1 else found


def looked_at(config: AgentConfig, study: Study, policy: Policy, data: str | None = None) -> Path | SqlSource:
    """The data of that name, else the `own`. Raises `StateError` if nothing says which."""
    found = own(config, study, policy) if data is None else config.source(data)
    if found is None:
        which = f"nothing says which data the study {study.name!r} is for (agent.yaml names: {config.named})"
        raise StateError(f"{which}; say so with --data NAME" if data is None else unknown(data, config))
    return found


def unknown(data: str, config: AgentConfig) -> str:
    """What to say of data that agent.yaml does not name."""
    return f"agent.yaml names no data {data!r} under data or databases; it names: {config.named}"


def no_data(study: Study, config: AgentConfig) -> str:
    """What to say if nobody lets a study use data."""
    digest = study.digest[:_SHORTEST]
    own = config.source(study.name) is not None
    said = f"; data of the study's name give it none, because agent.yaml names data and no study ({study.name})"
    return (
        f"the study {study.name!r} {digest} is not approved{said if own else ''}. Read it: fedward-silo study show"
        f" {digest}, then let it use data that agent.yaml names ({config.named}): fedward-silo study approve {digest}"
        " --data NAME"
    )


def _meant(word: str, name: str, digest: str) -> bool:
    """Whether version 0.6 took this word for the study: its name, unless it looks like a digest, or its digest."""
    return digest.startswith(word) if _DIGEST.fullmatch(word) else word == name


def _now(study: str, data: str | None, now: datetime) -> Approval:
    return Approval(study, data, now.astimezone(UTC).isoformat(timespec="seconds"))


def _parsed(found: Any) -> Approvals:
    """Raises `ValueError`, `TypeError`, `KeyError` or `AttributeError` if this is no list."""
    if not isinstance(found.get("version"), int):
        old = {str(word): _text(data) for word, data in found.items()}
        bound = {word: Approval("", data, "", old=True) for word, data in old.items() if is_sha256(word)}
        return Approvals(bound, {word: data for word, data in old.items() if word not in bound}, old=True)
    if found["version"] not in (2, _VERSION):
        raise ValueError
    bound = {}
    for digest, one in found["approvals"].items():
        if not is_sha256(digest):
            raise ValueError
        bound[digest] = _approval(one, found["version"])
    return Approvals(bound, {str(word): _text(data) for word, data in found["unbound"].items()})


def _approval(one: Mapping[str, Any], version: int) -> Approval:
    """One decision of a list of this version. Raises as `_parsed`."""
    data = None if one["data"] is None else _text(one["data"])
    plain = Approval(_text(one["study"]), data, _text(one["at"]))
    if version < _VERSION:
        return replace(plain, old=True)
    signature, certificate, declined = bytes.fromhex(one["signature"]), _text(one["certificate"]), one["declined"]
    if not isinstance(declined, bool) or not isinstance(one["old"], bool):
        raise TypeError
    signed = SignatureBeside(certificate.encode(), signature) if signature else None
    return replace(plain, reason=_text(one["reason"]), declined=declined, signed=signed, old=one["old"])


def _document(one: Approval) -> dict[str, object]:
    return {
        "study": one.study,
        "data": one.data,
        "at": one.at,
        "reason": one.reason,
        "declined": one.declined,
        "old": one.old,
        "certificate": "" if one.signed is None else one.signed.certificate.decode("ascii"),
        "signature": "" if one.signed is None else one.signed.signature.hex(),
    }


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError
    return found


def _write(folder: StateFolder, listed: Approvals) -> None:
    content = {
        "version": _VERSION,
        "approvals": {digest: _document(one) for digest, one in listed.bound.items()},
        "unbound": dict(listed.unbound),
    }
    write_whole(folder.approvals, json.dumps(content, sort_keys=True, indent=1).encode())
