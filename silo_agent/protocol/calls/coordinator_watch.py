"""Leaves a coordinator whose certificate was revoked, or that the root never admitted, and comes back to another.

Guarantees: at the agent's start, whenever its revocation lists change, and all the time while a coordinator is left,
the coordinator's certificate is examined, its admission too, and compared with the lists. If it does not count, open
connections are closed, also in the middle of an upload, and nothing more is sent. A coordinator that cannot be reached
is the calls' affair.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from crypto.errors import CertificateError
from crypto.pki.certificates import Credential
from crypto.pki.identity import Role
from silo_agent.protocol.calls.client import Client
from silo_agent.protocol.calls.server_certificate import shown_certificate

log = structlog.get_logger()
PACE_SECONDS: Final = 10.0
_SECONDS: Final = 20.0


class CoordinatorWatch:
    """Looks at the certificate of the machine that is called. `look` does once what the thread does all the time."""

    def __init__(
        self,
        client: Client,
        credential: Credential,
        lists: Path,
        *,
        proxy: str | None = None,
        shown: Callable[[], bytes] | None = None,
    ) -> None:
        """`lists` is the file of the revocation lists. `shown` gives the certificate that is shown now (PEM)."""
        self._client, self._credential, self._lists = client, credential, lists
        self._shown = shown or (lambda: shown_certificate(client.address, credential, _SECONDS, proxy=proxy))
        self._seen: tuple[float, str] | None = None
        self._left = False

    def run(self, stop: threading.Event) -> None:
        """Look at once and then at its pace, until told to stop."""
        while not stop.is_set():
            self.try_to_look()
            stop.wait(PACE_SECONDS)

    def try_to_look(self) -> None:
        """Look, and log if that fails: a fault of one look must not leave the coordinator unwatched."""
        try:
            self.look()
        except Exception as fault:  # noqa: BLE001  # as the docstring says
            log.warning("the coordinator is not watched", fault=type(fault).__name__, why=str(fault))

    def look(self) -> None:
        """Compare the coordinator's certificate with the lists, if either may have changed."""
        try:
            changed = (self._lists.stat().st_mtime, self._client.address)
        except OSError:
            return  # a consortium without lists
        if changed == self._seen and not self._left:
            return
        try:
            shown = self._shown()
        except OSError as fault:
            log.debug("the coordinator's certificate is not seen", why=str(fault))
            return
        why = self._fault_of(shown)
        self._seen, self._left = changed, why is not None
        if why is None:
            self._client.allow()
        else:
            self._client.leave(f"{why}, so nothing is sent to it; ask the authority's keeper and its operator")

    def _fault_of(self, shown: bytes) -> str | None:
        """Say why the certificate does not count; None if it does."""
        try:
            trust = self._credential.trust
            revoked = trust.revoked(shown)
            if revoked is None:
                trust.recognise(shown, Role.COORDINATOR)
        except CertificateError as fault:  # TLS libraries know no admissions: a thief of the issuing key has none
            return f"the coordinator's certificate does not count ({fault})"
        if revoked is None:
            return None
        return f"the coordinator's certificate was revoked as of {revoked:%Y-%m-%d %H:%M} UTC"
