"""The studies that ask: who stands behind one, its text for people, what this silo has against it, and who is told.

Guarantees: a study is kept for people to read whoever offers it, and goes on only if an author has signed its digest
and purpose; what the coordinator says of an author is not believed. A signature that was verified once stays good while
its certificate is not revoked, so a study may wait for a person longer than a certificate lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from crypto.authorship import SignatureBeside, author_of
from crypto.errors import CryptoError
from crypto.pki.certificates import Trust
from policies.documents.study import Study
from policies.refusals import Reason, Refused
from protos.messages import AuthorSignature
from silo_agent.storage import offered
from silo_agent.storage.approvals import approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.offered import Said, Signed
from silo_agent.storage.state import State

log = structlog.get_logger()
UNSIGNED: Final = "no author has signed the study; its author creates it anew, and signs it by that"
"""What others hear of a study without a signature. What is wrong with one follows from public certificates."""


class Asking:
    """The studies that ask one agent."""

    def __init__(self, state: State, trust: Trust, tell: Callable[[], object] = lambda: None) -> None:
        """`tell` looks whether somebody is to be told of studies that wait; it neither raises nor waits."""
        self._state, self._trust, self._tell = state, trust, tell

    def keep(self, study: Study, given: AuthorSignature | None) -> None:
        """Keep the text of an offered study. Raises `Refused` if no author has signed it, OSError."""
        try:
            signed, fault = self._verified(study, given), None
        except Refused as refused:
            signed, fault = None, refused
        offered.keep(
            self._state.files,
            study,
            datetime.now(UTC),
            signed=signed,
            approved=self._approved(),
            begun=[digest for digest, *_ in self._state.studies()],
        )
        if fault is not None:
            raise fault

    def judged(self, digest: str, said: Said) -> None:
        """Note what this silo has against a study; empty if it has nothing against it. Raises OSError."""
        offered.judged(self._state.files, digest, said)
        self._tell()

    def begin(self, study: Study) -> None:
        """Keep the author of a study that begins. Raises OSError."""
        offered.begin(self._state.files, study.digest, offered.author_of(self._state.files, study.digest))

    def _verified(self, study: Study, given: AuthorSignature | None) -> Signed:
        if given is None:
            raise Refused(Reason.UNSIGNED, UNSIGNED)
        signature = SignatureBeside(given.certificate_pem, given.signature)
        known = offered.author_of(self._state.files, study.digest)
        try:
            if known is not None and known.signature == signature:
                if (since := self._trust.revoked(signature.certificate)) is None:
                    return known
                msg = f"the certificate of the study's author was revoked as of {since:%Y-%m-%d}"
                raise Refused(Reason.UNSIGNED, msg)
            return Signed(author_of(self._trust, study.digest, study.purpose, signature).uri, signature)
        except CryptoError as fault:
            raise Refused(Reason.UNSIGNED, f"the author's signature does not count: {fault}") from None

    def _approved(self) -> frozenset[str]:
        try:
            return approvals(self._state.files).approved
        except StateError as fault:
            log.error("no study begins", why=str(fault))  # noqa: TRY400  # the sentence says it all
            return frozenset()
