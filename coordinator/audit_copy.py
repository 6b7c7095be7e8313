"""A copy of the audit log outside the coordinator: its file, and whether it is one chain that silos have signed.

The file is JSON lines: the entries in order, then what each silo signed last. Nothing of it is believed: the chain is
computed anew, and the signatures are checked against the consortium's authorities (docs/design/audit-log.md).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from coordinator.errors import CoordinatorError
from crypto.audit_chain import NOTHING, AuditStatement, Followed, entry_digest, follow
from crypto.errors import CryptoError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role
from protos.audit import AuditEntry, CosignedAudit
from protos.messages import MessageError

_MOST_BYTES: Final = 1 << 30
_BLOBS: Final = ("head", "broke_head", "certificate_pem", "signature")


class AuditFileError(CoordinatorError):
    """A file is no export of an audit log. The message names the file and the line."""


@dataclass(frozen=True)
class AuditCopy:
    """Entries of an audit log, in order, and what each silo signed of it last."""

    entries: tuple[AuditEntry, ...]
    cosigned: tuple[CosignedAudit, ...]


@dataclass(frozen=True)
class AuditVerdict:
    """What was found, in sentences: what holds, and what does not."""

    lines: tuple[str, ...]
    faults: tuple[str, ...]


def written(copy: AuditCopy) -> bytes:
    """Return a copy as the bytes of a file."""
    lines = [json.dumps({"entry": json.loads(entry.content())}, sort_keys=True) for entry in copy.entries]
    for signed in copy.cosigned:
        plain = {
            name: base64.b64encode(value).decode() if name in _BLOBS else value
            for name, value in asdict(signed).items()
        }
        lines.append(json.dumps({"signed": plain}, sort_keys=True))
    return "".join(f"{line}\n" for line in lines).encode()


def read(path: Path) -> AuditCopy:
    """Read what `written` gives. Raises `AuditFileError`, OSError."""
    if path.stat().st_size > _MOST_BYTES:
        msg = f"{path.name} is larger than any export of an audit log; give the file that `audit export` wrote"
        raise AuditFileError(msg)
    entries: list[AuditEntry] = []
    cosigned: list[CosignedAudit] = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            ((kind, content),) = json.loads(line).items()
            if kind == "entry" and not cosigned:
                entries.append(AuditEntry(**content))
            else:
                cosigned.append(_signed({"signed": content}[kind]))
        except (ValueError, TypeError, KeyError, AttributeError, MessageError, RecursionError) as error:
            msg = f"{path.name}: line {number} is not of an audit log ({type(error).__name__}); export it again"
            raise AuditFileError(msg) from None
    return AuditCopy(tuple(entries), tuple(cosigned))


def verdict(copy: AuditCopy, trust: Trust) -> AuditVerdict:
    """Say whether the entries are whole and in order, and whether each silo's signature is of a head of theirs.

    A certificate that has expired or was revoked since counts here: what it signed was signed while it counted, or is
    a reason to look, and a signature can only ever find a fault.
    """
    lines, faults = [], []
    misplaced = [entry.number for place, entry in enumerate(copy.entries) if entry.number != place]
    if not copy.entries or misplaced:
        faults.append(f"entry {misplaced[0] if misplaced else 0} is not where it belongs: entries are missing")
    heads = list(_heads(copy.entries))
    lines.append(f"{len(copy.entries)} entries, head {heads[-1].hex()}")
    if not copy.cosigned:
        faults.append("no silo has signed it, so nothing shows that it was not rewritten")
    for signed in copy.cosigned:
        fault = _fault(signed, heads, trust)
        if fault:
            faults.append(f"{signed.silo} {fault}")
            continue
        later = len(copy.entries) - signed.entries
        lines.append(f"{signed.silo} signed the first {signed.entries}{f', not yet the last {later}' if later else ''}")
    return AuditVerdict(tuple(lines), tuple(faults))


def _fault(signed: CosignedAudit, heads: list[bytes], trust: Trust) -> str:
    """Say what is wrong with a silo's word; empty if nothing is."""
    broke = Followed(signed.broke_entries, signed.broke_head)
    statement = AuditStatement(Followed(signed.entries, signed.head), broke)
    try:
        signer = trust.verify_ever(signed.certificate_pem, statement.to_sign(), signed.signature)
    except CryptoError as error:
        return f"is said to have signed the log, but: {error}"
    if signer != Identity(Role.SILO, signed.silo):
        return f"is said to have signed the log, but {signer} did"
    if signed.entries >= len(heads) or heads[signed.entries] != signed.head:
        return f"signed another log: its head after {signed.entries} entries is {signed.head.hex()[:12]}"
    if broke.entries and (broke.entries >= len(heads) or heads[broke.entries] != broke.head):
        return (
            f"had followed {broke.entries} entries to a head {broke.head.hex()[:12]} that this log does not have: it"
            " was rewritten, or put back from a backup; ask that hospital and the operators"
        )
    return ""


def _heads(entries: Iterable[AuditEntry]) -> Iterable[bytes]:
    """Give the head before the first entry, and after each."""
    digests = (entry_digest(entry.content().encode()) for entry in entries)
    return accumulate(digests, lambda head, digest: follow(head, [digest]), initial=NOTHING)


def _signed(content: dict[str, Any]) -> CosignedAudit:
    blobs = {name: base64.b64decode(content[name], validate=True) for name in _BLOBS}
    return CosignedAudit(**(content | blobs))
