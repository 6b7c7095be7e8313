"""What a third party can check in an export of a ledger, with only the authority's public certificate.

Guarantees: `audit` returns only if the silo that is certified for this data set signed the file, every hash, figure
and price is correct (policies/ledger/exports.py), every recovery was signed for its place in exactly this chain by the
party that it names, and every cosignature is its signer's and about this chain. If a signer's certificate has expired
since, the signature is checked for the time that it names (signing.py), and the result says so.

Left to others: only the cosigners know whether they cosigned more than the export shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from crypto.errors import CryptoError
from crypto.pki.certificates import Trust, require_data_set
from crypto.pki.dated import Signer, signer_at
from crypto.pki.identity import Role
from policies.errors import ExportError
from policies.ledger.cosign import Cosignature
from policies.ledger.events import EntryRef, Recovery, recovery_message
from policies.ledger.exports import Export, read_export
from silo_agent.oversight.signing import Detached, cosigner_of, signer_of


@dataclass(frozen=True, slots=True)
class Audit:
    """A valid export, and who signed which part of it."""

    export: Export
    signer: Signer
    recoveries: tuple[tuple[int, Recovery, Signer], ...]
    """Each recovery has the number of its entry."""
    cosigned: tuple[tuple[Cosignature, Signer], ...]


def audit(
    content: bytes, detached: Detached, trust: Trust, *, now: datetime | None = None, known: datetime | None = None
) -> Audit:
    """Check a JSON export and its signature; `now` (aware) defaults to the clock.

    `known` is when the export's signature was timestamped, if it was: all that the export holds was there then.

    Raises `CryptoError` if the file is not what its silo signed, and the `LedgerError` that names any other fault.
    """
    signer = signer_of(trust, detached, content, now=now, known=known)
    export = read_export(content)
    if (export.silo, export.at) != (signer.identity.uri, detached.at):
        msg = (
            f"the export says that it is of {export.silo} at {export.at}, but {signer.identity} signed it at"
            f" {detached.at}; ask {export.silo} for its own"
        )
        raise ExportError(msg)
    require_data_set(detached.certificate, export.genesis.data_set)
    return Audit(
        export, signer, tuple(_recoveries(export, trust, now, known)), tuple(_cosigned(export, trust, now, known))
    )


def _recoveries(
    export: Export, trust: Trust, now: datetime | None, known: datetime | None
) -> Iterator[tuple[int, Recovery, Signer]]:
    for entry in export.entries:
        event = entry.event
        if not isinstance(event, Recovery):
            continue
        after = EntryRef(entry.sequence - 1, entry.previous)
        message = recovery_message(export.genesis.data_set, after, event.covers, event.costs, event.responsible)
        try:
            signature, certificate = bytes.fromhex(event.signature), event.certificate.encode()
            signer = signer_at(trust, certificate, message, signature, entry.at, role=Role.SILO, now=now, known=known)
            require_data_set(certificate, export.genesis.data_set)
        except (CryptoError, ValueError) as error:
            why = str(error) if isinstance(error, CryptoError) else "it is not written in hex"
            msg = f"the signature of the recovery in entry {entry.sequence} is not valid: {why}"
            raise ExportError(msg) from None
        if signer.identity.uri != event.signer:
            msg = (
                f"the recovery in entry {entry.sequence} names {event.signer}, but {signer.identity} signed it; ask"
                f" {export.silo} who answers for it"
            )
            raise ExportError(msg)
        yield entry.sequence, event, signer


def _cosigned(
    export: Export, trust: Trust, now: datetime | None, known: datetime | None
) -> Iterator[tuple[Cosignature, Signer]]:
    for item in export.cosigned:
        try:
            shown, signer = cosigner_of(trust, item, now=now, known=known)
        except CryptoError as error:
            msg = f"the cosignature of entry {item.checkpoint.head.sequence} is not valid: {error}"
            raise ExportError(msg) from None
        if shown.signer != item.signer:
            msg = f"a cosignature names {item.signer}, but {shown.signer} signed it; ask {export.silo} for a new export"
            raise ExportError(msg)
        yield shown, signer
