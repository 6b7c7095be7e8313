"""People's decisions about studies, as entries of the ledger: approved, refused, withdrawn.

Guarantees: the running agent, which holds the ledger, writes every decision into it before the decision counts; no
study is charged by an approval that has no entry. Where the policy names approvers, an approval counts only with the
signature of one of them, by a certificate that counts when the entry is written. Of a study that has begun under an
approval of an earlier version nothing is asked or written, so a hospital can still go back to that version. An approval
that is older than the ledger's last decision about the study is not taken, so nobody brings one back that was taken
back. A decline and a withdrawal need no signature: they let nothing leave. An entry holds no word of a reason, but a
hash under a key of the hospital's (docs/design/threat-model.md).
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from crypto.canonical import canonical
from crypto.errors import CryptoError
from crypto.hkdf import derive
from crypto.pki.certificates import Credential
from crypto.pki.identity import Role, role_of
from crypto.pki.reading import fingerprint
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.chain import Entry
from policies.ledger.events import Approved
from policies.ledger.ledger import Ledger
from policies.refusals import Reason, Refused
from silo_agent.storage.approvals import NOT_APPROVED, Approval, approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
_SIGN: Final = "fedward-silo study sign"
NO_APPROVER: Final = (
    "the policy's approvers are operators, who approve nothing; put a policy into force that names approvers"
    " (fedward://approver/<name>; fedward-silo policy reload)"
)


def approvers_of(policy: Policy) -> list[str]:
    """Return who may sign approvals, as URIs. Operators, whom policies of versions up to 0.6 name, may not."""
    return [person for person in policy.approvers or () if role_of(person) is Role.APPROVER]


class Decisions:
    """What people decided, in one agent's ledger."""

    def __init__(
        self,
        ledger: Ledger,
        folder: StateFolder,
        credential: Credential,
        secret: bytes,
        begun: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`secret`: of the state folder, for the key of the reasons. `begun` says if a study has begun here."""
        self._begun = begun
        self._ledger, self._folder, self._credential = ledger, folder, credential
        self._key = derive(secret, canonical("reasons of decisions"))
        self._turn = threading.Lock()
        self._seen: tuple[object, ...] = ()
        self._said: dict[str, str] = {}

    def note(self, policy: Policy) -> None:
        """Write into the ledger what people decided since. Raises `StateError`, `LedgerWriteError`."""
        with self._turn:
            seen = (*self._file(), policy.digest)
            if seen == self._seen:
                return
            for digest, one in approvals(self._folder).bound.items():
                if not self._stands(digest, one) and not self._earlier(digest, one):
                    self._decide(digest, one, policy)
            self._seen = seen

    def fault(self, study: Study, policy: Policy) -> str:
        """Return why what people decided about a study keeps it from data; empty if nothing does.

        An approval counts only if its entry stands in the ledger. Raises `StateError`, `LedgerWriteError`.
        """
        self.note(policy)
        one, last = approvals(self._folder).bound.get(study.digest), self._ledger.decision(study.digest)
        if one is None:
            gone = last is not None and _verdict(last) != "approved"
            return "the ledger says that a person declined the study or took its approval back" if gone else ""
        if one.data is None or self._stands(study.digest, one) or self._earlier(study.digest, one):
            return ""
        return self._said.get(study.digest, "its approval does not stand in the ledger yet")

    def require(self, study: Study, policy: Policy) -> None:
        """Raise `Refused` if what people decided keeps a study from data, or cannot be read."""
        try:
            fault = self.fault(study, policy)
        except StateError as error:
            fault = str(error)
        if fault:
            log.warning("a study is not approved", study=study.digest[:12], why=fault)
            raise Refused(Reason.NOT_APPROVED, NOT_APPROVED)

    def _file(self) -> tuple[int, ...]:
        """What tells that the list was written anew: it is replaced as a whole."""
        try:
            found = self._folder.approvals.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _earlier(self, digest: str, one: Approval) -> bool:
        """Whether a study goes on under what an earlier version took, and nobody has decided about it since."""
        return one.old and self._begun(digest) and self._ledger.decision(digest) is None

    def _stands(self, digest: str, one: Approval) -> bool:
        """Whether the ledger's last decision about a study is this one."""
        last = self._ledger.decision(digest)
        if last is None or not isinstance(last.event, Approved):
            return False
        return (last.event.verdict, last.event.reason) == (one.verdict, self._mac(one))

    def _decide(self, digest: str, one: Approval, policy: Policy) -> None:
        fault, certificate = "", self._credential.certificate_pem
        if one.data is not None:
            fault = self._old(digest, one) or self._unsigned(digest, one, policy)
            certificate = certificate if one.signed is None or fault else one.signed.certificate
        if fault:
            if self._said.get(digest) != fault:
                log.warning("an approval does not count", study=digest[:12], name=one.study, why=fault)
            self._said[digest] = fault
            return
        self._said.pop(digest, None)
        self._ledger.decide(Approved(digest, one.verdict, fingerprint(certificate), self._mac(one)))
        log.info("decided", study=digest[:12], name=one.study, verdict=one.verdict)

    def _old(self, digest: str, one: Approval) -> str:
        last = self._ledger.decision(digest)
        if last is None or not one.at or _time(one.at) >= _time(last.at).replace(microsecond=0):
            return ""
        return f"it was signed before the last decision about the study ({last.at}); approve the study again"

    def _unsigned(self, digest: str, one: Approval, policy: Policy) -> str:
        """What keeps an approval from counting by the policy's approvers; empty if nothing does."""
        named = approvers_of(policy)
        if policy.approvers is not None and not named:
            return NO_APPROVER
        if one.signed is None:
            missing = f"the policy names approvers ({', '.join(named)}), and none has signed the approval ({_SIGN})"
            return missing if policy.approvers is not None else ""
        try:
            given = one.signed
            who = self._credential.trust.verify(
                given.certificate, one.message(digest), given.signature, role=Role.APPROVER
            )
        except CryptoError as error:
            return f"the signature of its approval does not count: {error}"
        if policy.approvers is not None and who.uri not in named:
            return f"{who} has signed the approval, and the policy names {', '.join(named)}"
        return ""

    def _mac(self, one: Approval) -> str:
        said = canonical("decision", one.data or "", one.at, one.reason)
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()


def _verdict(entry: Entry) -> str:
    return entry.event.verdict if isinstance(entry.event, Approved) else ""


def _time(at: str) -> datetime:
    found = datetime.fromisoformat(at)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
