"""Timestamps of the ledger's head and of exports, by the consortium's timestamping authority (crypto.pki.timestamps).

Guarantees: a stamp is kept only after it was checked. Whether and when one is asked for follows from the day alone: on
each day in UTC the running agent asks once, also if nothing was charged, and again every ten minutes while it gets
none. What is sent is the hash of the newest head that others cosigned, so a fault, which stands in the ledger before
anybody hears of it, shows in no stamp. Nothing waits for a stamp.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

import structlog

from crypto.canonical import canonical
from crypto.errors import CertificateError, CryptoError, UnknownAuthorityError
from crypto.pki.certificates import Trust
from crypto.pki.joining.link import Link
from crypto.pki.timestamps import query_for, stamped
from policies.errors import LedgerError
from policies.ledger.chain import Entry, Genesis, genesis_row
from policies.ledger.cosign import CosignatureFile, require_head
from policies.ledger.events import EntryRef
from policies.ledger.ledger import read_history
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
PACE_SECONDS: Final = 600.0


@dataclass(frozen=True)
class StampedHead:
    """A head of the ledger, and when it was stamped."""

    head: EntryRef
    at: datetime | None
    """None if the stamp is of a root that authority.pem does not hold, or holds no longer: nobody can check it here."""


def stamp(content: bytes, link: Link, trust: Trust) -> tuple[bytes, datetime]:
    """Have a content stamped; return the reply (DER) and its time. Raises `EnrolmentError`, `CertificateError`."""
    reply = link.timestamp(query_for(content))
    return reply, time_of(reply, content, trust)


def time_of(reply: bytes, content: bytes, trust: Trust) -> datetime:
    """When a content was stamped. Raises `CertificateError`."""
    return stamped(reply, content, trust.bundle, trust.source().lists)


def stamped_heads(files: StateFolder, genesis: Genesis, entries: tuple[Entry, ...], trust: Trust) -> list[StampedHead]:
    """The stamps of this ledger, oldest first.

    Raises `CertificateError` for one that does not count, `LedgerRolledBackError` if the ledger lacks the head of any.
    """
    heads = []
    for path in files.stamps():
        try:
            content = json.loads(path.read_bytes())
            head = EntryRef(int(content["sequence"]), str(content["hash"]))
            reply = base64.b64decode(content["stamp"], validate=True)
        except (ValueError, KeyError, TypeError):
            msg = f"{path.name} in {path.parent.name} is no stamp of a head; move it away"
            raise CertificateError(msg) from None
        try:
            at = time_of(reply, _message(genesis, head), trust)
        except UnknownAuthorityError:
            at = None
        require_head(genesis, entries, head)
        heads.append(StampedHead(head, at))
    return heads


class Stamping:
    """Has the head stamped once a day. `look` does once what the agent does every `PACE_SECONDS`."""

    def __init__(
        self,
        files: StateFolder,
        trust: Trust,
        link: Callable[[], Link] | None,
        *,
        clock: Callable[[], date] = lambda: datetime.now(UTC).date(),
    ) -> None:
        """`link` is the way to the authority; without it nothing is stamped."""
        self._files, self._trust, self._link, self._clock = files, trust, link, clock
        self._said = ""

    def run(self, stop: threading.Event) -> None:
        """Look at once and then at its pace, until told to stop."""
        while not stop.is_set():
            try:
                self.look()
            except Exception as fault:  # noqa: BLE001  # a fault of one look must not end all stamps
                log.warning("the ledger's head is not timestamped", fault=type(fault).__name__)
            stop.wait(PACE_SECONDS)

    def look(self) -> None:
        """Have today's head stamped, unless it was. A failure is told once, until it fails in another way."""
        path = self._files.stamp(self._clock())
        if self._link is None or path.exists():
            return
        try:
            genesis, entries = read_history(self._files.ledger)
            head = _known_head(self._files, genesis, entries)
            reply, at = stamp(_message(genesis, head), self._link(), self._trust)
            content = {"sequence": head.sequence, "hash": head.hash, "stamp": base64.b64encode(reply).decode("ascii")}
            write_whole(path, json.dumps(content, indent=1).encode())
        except (CryptoError, LedgerError, OSError) as fault:
            if str(fault) != self._said:
                self._said = str(fault)
                log.warning("the ledger's head is not timestamped", why=str(fault))
        else:
            self._said = ""
            log.info("the ledger's head is timestamped", entry=head.sequence, at=at.isoformat())


def _known_head(files: StateFolder, genesis: Genesis, entries: tuple[Entry, ...]) -> EntryRef:
    """The newest head of this chain that somebody else has cosigned; the beginning if nobody has."""
    chain = {entry.head for entry in entries}
    cosigned = [item.checkpoint.head for item in CosignatureFile(files.ledger).latest()]
    known = [head for head in cosigned if head in chain]
    return max(known, key=lambda head: head.sequence, default=EntryRef(0, genesis_row(genesis)[2]))


def _message(genesis: Genesis, head: EntryRef) -> bytes:
    return canonical("ledger head", genesis.data_set, head.sequence, head.hash)
