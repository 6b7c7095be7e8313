"""Countersigns silos' ledgers, and has another silo countersign them too.

Guarantees: a statement is signed only where its own silo signed it, about the data set of its certificate, and it does
not go back behind the last one of that ledger (`policies.countersign.advance`); it is stored before it is signed. A
statement is handed to one other silo of the attempt, and to one more each time `PATIENCE_SECONDS` pass without an
answer; what comes back is verified, the stating silo's own signature too, stored and handed on. Who waits for whom is
in memory: a silo asks again, so nothing is lost with it.

Left to others: whether a countersignature is enough, which the stating silo decides; the coordinator can withhold a
silo's word, and then that silo computes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from coordinator.statements import Statements
from crypto.certificates import Credential, Trust, require_data_set
from crypto.dated import signer_at
from crypto.errors import SignatureRefused
from crypto.identity import Identity, Role
from policies.countersign import Statement, advance, follows
from policies.errors import CountersignError
from protos.statements import Countersigned, CountersignedStatement, SignedStatement

log = structlog.get_logger()
PATIENCE_SECONDS = 2.0
"""How long one silo may take before another is asked, and before it is asked again."""
_LOOK_SECONDS = 0.25
"""How often a waiting call looks whether somebody's time is over."""


@dataclass
class _Asked:
    """A statement that another silo is to countersign."""

    signed: SignedStatement
    peers: tuple[str, ...]
    """In the order in which they are asked."""
    since: float
    handed: dict[str, float] = field(default_factory=dict)
    """Who has been handed it, and when last."""
    answer: CountersignedStatement | None = None

    def due(self, silo: str, now: float) -> bool:
        """Whether it is to be handed to this silo now."""
        asked = self.peers[: 1 + int((now - self.since) / PATIENCE_SECONDS)]
        again = silo not in self.handed or now - self.handed[silo] >= PATIENCE_SECONDS
        return self.answer is None and silo in asked and again

    def answered_by(self, given: Statement) -> bool:
        """Whether this is a word on it: of its own head, or of one that it lacks and so does not let pass.

        A word on an earlier head that it contains was meant for an earlier question and came twice or late: the silo
        that asks has that one, and would wait for ever for a better one.
        """
        stated = Statement.parse(self.signed.statement)
        return given.head == stated.head or given.head not in (*stated.anchors, *stated.covers)


class Countersigning:
    """All ledgers of one coordinator's silos."""

    def __init__(
        self,
        statements: Statements,
        credential: Credential,
        trust: Trust,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._statements, self._credential, self._trust, self._clock = statements, credential, trust, clock
        self._changed = threading.Condition()
        self._asked: dict[str, _Asked] = {}
        self._stopped = False

    def latest(self, silo: str) -> tuple[CountersignedStatement, ...]:
        """What the coordinator and others countersigned last of a silo's ledger; nothing where it is unknown."""
        stated = self._statements.latest(silo)
        return (*([self._sign(stated)] if stated else []), *self._statements.countersigned(silo).values())

    def state(self, silo: str, signed: SignedStatement, peers: Sequence[str], hold: float) -> Countersigned:
        """Countersign a silo's statement; wait up to `hold` seconds for one of `peers` to do so.

        Raises `LedgerRolledBackError` where the ledger went back, `CountersignError`, `CertificateError`,
        `SignatureRefused`; then nothing is stored.
        """
        self._require_signer(silo, signed.certificate_pem, signed.statement, signed.signature)
        statement = Statement.parse(signed.statement)
        if statement.silo != silo:
            msg = f"{silo} may not state how far the ledger of {statement.silo} has come"
            raise SignatureRefused(msg)
        require_data_set(signed.certificate_pem, statement.data_set)
        until = self._clock() + hold
        with self._changed:
            self._keep(statement, signed)
            asked = self._ask(statement, signed, peers)
            while asked.answer is None and not self._stopped and (left := until - self._clock()) > 0:
                self._changed.wait(left)
            return Countersigned(self._sign(signed), asked.answer)

    def witness(self, silo: str, given: CountersignedStatement | None, hold: float) -> SignedStatement | None:
        """Take what a silo has countersigned; wait up to `hold` seconds for a statement that it is asked to.

        Raises `CountersignError`, `CertificateError`, `SignatureRefused`.
        """
        if given is not None:
            self._take(silo, given)
        until = self._clock() + hold
        with self._changed:
            while True:
                now = self._clock()
                for asked in self._asked.values():
                    if asked.due(silo, now):
                        asked.handed[silo] = now
                        return asked.signed
                if self._stopped or now >= until:
                    return None
                self._changed.wait(min(until - now, _LOOK_SECONDS))

    def close(self) -> None:
        """Let all waiting calls go."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    # --- inside -------------------------------------------------------------------------------------------------
    def _keep(self, statement: Statement, signed: SignedStatement) -> None:
        """Store it as the latest, unless it is. Raises `LedgerRolledBackError`, `CountersignError`."""
        last = self._statements.latest(statement.silo)
        advance(None if last is None else Statement.parse(last.statement), statement)
        if last is None or last.statement != signed.statement:
            self._statements.keep(statement.silo, signed)

    def _ask(self, statement: Statement, signed: SignedStatement, peers: Sequence[str]) -> _Asked:
        """Have it handed to the others, first to the next of them in a circle: so that each is asked by one."""
        own = statement.silo
        circle = tuple(sorted(set(peers) - {own}, key=lambda name: (name < own, name)))
        asked = self._asked.get(own)
        same = asked is not None and asked.signed.statement == signed.statement
        if asked is None or not same or (asked.answer is None and asked.peers != circle):
            asked = self._asked[own] = _Asked(signed, circle, self._clock())
            self._changed.notify_all()
        return asked

    def _take(self, silo: str, given: CountersignedStatement) -> None:
        statement = self._read(silo, given)
        own = statement.silo
        with self._changed:
            if own == silo or self._statements.latest(own) is None:
                msg = f"nobody asked {silo} to countersign the ledger of {own}"
                raise CountersignError(msg)
            last = self._statements.countersigned(own).get(silo)
            if last is None or follows(Statement.parse(last.stated.statement), statement):
                self._statements.keep_countersigned(own, silo, given)
            asked = self._asked.get(own)
            if asked is not None and asked.answer is None and asked.answered_by(statement):
                asked.answer = given
                self._changed.notify_all()
        log.info("ledger countersigned", of=own, by=silo, entry=statement.head.sequence)

    def _read(self, silo: str, given: CountersignedStatement) -> Statement:
        """The statement, where this silo countersigned what the ledger's own silo had signed."""
        stated = given.stated
        self._require_signer(silo, given.certificate_pem, stated.statement, given.signature)
        statement = Statement.parse(stated.statement)
        own = signer_at(self._trust, stated.certificate_pem, stated.statement, stated.signature, statement.at)
        if own.identity != Identity(Role.SILO, statement.silo):
            msg = f"{own.identity} may not state how far the ledger of {statement.silo} has come"
            raise SignatureRefused(msg)
        return statement

    def _require_signer(self, silo: str, certificate_pem: bytes, statement: bytes, signature: bytes) -> None:
        signer = self._trust.verify(certificate_pem, statement, signature, role=Role.SILO)
        if signer.name != silo:
            msg = f"{silo} may not hand in what {signer.name} has signed"
            raise SignatureRefused(msg)

    def _sign(self, stated: SignedStatement) -> CountersignedStatement:
        credential = self._credential
        return CountersignedStatement(stated, credential.certificate_pem, credential.sign(stated.statement))
