"""Listens for `est` over HTTPS, by cheroot.

Guarantees: a caller may show a certificate of the consortium and need not. Handshakes happen in the workers, so that a
caller who begins one and stops holds one worker for some seconds, and not the door. Headers, bodies and waiting are
bounded, and nobody holds all workers (`door`).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from cheroot.ssl.builtin import BuiltinSSLAdapter
from cheroot.wsgi import Gateway_10, Server

from crypto.pki.authority.building import require_permitted
from crypto.pki.authority.issuing import IssuingAuthority
from crypto.pki.authority.service.door import Door
from crypto.pki.authority.service.est import MAX_BODY, Est
from crypto.pki.authority.timestamping import TimestampingAuthority
from crypto.pki.chain import Bundle

THREADS = 32
FREE = 2
"""Threads that no connection holds for long."""
SECONDS = 10
"""How long a caller may be silent."""
WAITING = 128
MAX_HEADERS = 1 << 14


class _Adapter(BuiltinSSLAdapter):
    """TLS whose handshake a worker makes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self._door = Door(THREADS - FREE)

    def wrap(self, sock: Any) -> tuple[Any, dict[str, Any]]:
        """Begin TLS without the handshake, which the first read makes."""
        self._door.enter(sock)
        secure = self.context.wrap_socket(sock, do_handshake_on_connect=False, server_side=True)
        return secure, {"wsgi.url_scheme": "https", "HTTPS": "on"}


class _Gateway(Gateway_10):
    """Gives the application the certificate that the caller shows."""

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override]  # cheroot's types lag behind its code
        """As cheroot's, with SSL_CLIENT_CERT."""
        environ: dict[str, Any] = super().get_environ()  # type: ignore[no-untyped-call]  # as above
        shown = self.req.conn.socket.getpeercert(binary_form=True)
        environ["SSL_CLIENT_CERT"] = ssl.DER_cert_to_PEM_cert(shown) if shown else ""
        return environ


class Service:
    """The running service. `port` is the bound port (0 asks for any free one)."""

    def __init__(
        self,
        authority: IssuingAuthority,
        host: str,
        port: int,
        names: Sequence[str],
        stamps: TimestampingAuthority | None = None,
    ) -> None:
        """`names` are the DNS names under which parties reach it, which the root allowed.

        Raises `EnrolmentError`, OSError.
        """
        require_permitted(authority.certificate, names)
        est = Est(authority, stamps)
        self.metrics = est.metrics
        self._server = Server(
            (host, port),
            est,
            numthreads=THREADS,
            max=THREADS,
            request_queue_size=WAITING,
            timeout=SECONDS,
            shutdown_timeout=5,
        )
        self._server.gateway = _Gateway
        self._server.max_request_body_size = MAX_BODY
        self._server.max_request_header_size = MAX_HEADERS
        self._server.ssl_adapter = _Adapter(_context(authority, names))
        self._server.error_log = _quiet  # type: ignore[method-assign]  # as cheroot's documentation says
        self._server.prepare()
        self.port = int(self._server.bind_addr[1])

    def serve(self) -> None:
        """Answer until `close` is called from another thread."""
        self._server.serve()

    def close(self) -> None:
        """Stop."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _context(authority: IssuingAuthority, names: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=Bundle.read(authority.authority_pem).pem.decode())
    chain, key = authority.server_credential(names)
    handle, name = tempfile.mkstemp(suffix=".pem")  # ssl reads keys from files alone; mkstemp makes it for the owner
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(key + chain)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
    return context


def _quiet(msg: str = "", level: int = 20, traceback: bool = False) -> None:  # noqa: FBT001, FBT002  # cheroot's
    """Handshakes that fail are the caller's affair; cheroot would print them."""
