"""What a third party finds in an export of a ledger, with the authority's public certificate and nothing else.

Guarantees: `audit` returns only where the silo that is certified for this data set signed the file, every hash, figure
and price holds (policies/ledger/exports.py), every recovery was signed at its place of this very chain by the party
that it names, and every cosignature is its signer's and about this chain. Signatures whose certificates expired since
are checked as of the time that they name (signing.py), and are told apart.

Left to others: the deny lists of the two services are not known to a third party, and whether somebody cosigned
more than the export shows can only be asked of those who cosign.
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
    """An export that holds, and who vouches for what."""

    export: Export
    signer: Signer
    recoveries: tuple[tuple[int, Recovery, Signer], ...]
    """With the number of its entry."""
    cosigned: tuple[tuple[Cosignature, Signer], ...]


def audit(content: bytes, detached: Detached, trust: Trust, *, now: datetime | None = None) -> Audit:
    """Check a JSON export and its signature; `now` (aware) defaults to the clock.

    Raises `CryptoError` where the file is not what its silo signed, `LedgerError` by name for whatever else does not
    hold.
    """
    signer = signer_of(trust, detached, content, now=now)
    export = read_export(content)
    if (export.silo, export.at) != (signer.identity.uri, detached.at):
        msg = (
            f"the export says that it is of {export.silo} at {export.at}, but {signer.identity} signed it at"
            f" {detached.at}; ask {export.silo} for its own"
        )
        raise ExportError(msg)
    require_data_set(detached.certificate, export.genesis.data_set)
    return Audit(export, signer, tuple(_recoveries(export, trust, now)), tuple(_cosigned(export, trust, now)))


def _recoveries(export: Export, trust: Trust, now: datetime | None) -> Iterator[tuple[int, Recovery, Signer]]:
    for entry in export.entries:
        event = entry.event
        if not isinstance(event, Recovery):
            continue
        after = EntryRef(entry.sequence - 1, entry.previous)
        message = recovery_message(export.genesis.data_set, after, event.covers, event.costs, event.responsible)
        try:
            signature, certificate = bytes.fromhex(event.signature), event.certificate.encode()
            signer = signer_at(trust, certificate, message, signature, entry.at, role=Role.SILO, now=now)
            require_data_set(certificate, export.genesis.data_set)
        except (CryptoError, ValueError) as error:
            why = str(error) if isinstance(error, CryptoError) else "it is not written in hex"
            msg = f"the signature of the recovery in entry {entry.sequence} does not hold: {why}"
            raise ExportError(msg) from None
        if signer.identity.uri != event.signer:
            msg = (
                f"the recovery in entry {entry.sequence} names {event.signer} and was signed by {signer.identity}; ask"
                f" {export.silo} who answers for it"
            )
            raise ExportError(msg)
        yield entry.sequence, event, signer


def _cosigned(export: Export, trust: Trust, now: datetime | None) -> Iterator[tuple[Cosignature, Signer]]:
    for item in export.cosigned:
        try:
            found, signer = cosigner_of(trust, item, now=now)
        except CryptoError as error:
            msg = f"the cosignature under entry {item.checkpoint.head.sequence} does not hold: {error}"
            raise ExportError(msg) from None
        if found.signer != item.signer:
            msg = f"a cosignature names {item.signer} and is of {found.signer}; ask {export.silo} for a new export"
            raise ExportError(msg)
        yield found, signer
