"""What the issuing authority answers: Enrolment over Secure Transport (RFC 7030), as a WSGI application.

    GET  /.well-known/est/cacerts         the authorities' certificates (4.1)
    POST /.well-known/est/simpleenroll    a first certificate, for a token as the password of HTTP Basic (3.2.3, 4.2.1)
    POST /.well-known/est/simplereenroll  the next one, for the certificate that TLS shows (4.2.2)
    GET  /authority.pem, /crls.pem        the same authorities, and the newest lists of all of them, as PEM
    POST /timestamp                       a stamp of a digest (RFC 3161, 3.4), if this authority has a key for it
    GET  /healthz                         whether it answers

Guarantees: every request gets one answer, and lists are handed out whatever the others ask for: one certificate is
renewed a few times a minute at most, and who asks for lists never waits for another's renewal if there are any. A
refusal is one sentence for the caller to read; of an unforeseen error only the log says more. No token, no secret and
no request stands in a log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from crypto.errors import CryptoError, EnrolmentError
from crypto.pki.admission import Token
from crypto.pki.authority.service.metrics import AuthorityMetrics
from crypto.pki.reading import parse_certificate, parse_certificates

if TYPE_CHECKING:
    from crypto.pki.authority.issuing import IssuingAuthority
    from crypto.pki.authority.timestamping import TimestampingAuthority

log = structlog.get_logger()
EST = "/.well-known/est"
MAX_BODY = 1 << 14
REPLY_TYPE = "application/timestamp-reply"
FRESH_SECONDS = 1.0
"""How long the lists are handed out before the register is asked again."""
RENEWALS, RENEWAL_SECONDS = 6, 60.0
"""So many requests to renew one certificate are looked at in so many seconds. A program renews every other day."""
_MOST_CALLERS = 10_000
Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], object]


@dataclass(frozen=True)
class EstReply:
    """Status, body and headers of an answer."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass
class _Lists:
    """The lists as they were a moment ago."""

    pem: bytes = b""
    at: float = float("-inf")
    guard: threading.Lock = field(default_factory=threading.Lock)


class _Pace:
    """How often each certificate has asked lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._asked, self._guard = clock, dict[str, deque[float]](), threading.Lock()

    def allows(self, certificate_pem: str) -> bool:
        """Whether this certificate may ask once more now."""
        now, name = self._clock(), hashlib.sha256(certificate_pem.encode()).hexdigest()
        with self._guard:
            if len(self._asked) >= _MOST_CALLERS:
                self._asked = {one: times for one, times in self._asked.items() if times[-1] > now - RENEWAL_SECONDS}
            times = self._asked.setdefault(name, deque(maxlen=RENEWALS))
            if len(times) == RENEWALS and times[0] > now - RENEWAL_SECONDS:
                return False
            times.append(now)
            return True


class Est:
    """The WSGI application. It may be called by many threads."""

    def __init__(
        self,
        authority: IssuingAuthority,
        stamps: TimestampingAuthority | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authority, self._stamps, self._clock, self._lists = authority, stamps, clock, _Lists()
        self._pace = _Pace(clock)
        self._routes: dict[tuple[str, str], Callable[[Environ], EstReply]] = {
            ("GET", f"{EST}/cacerts"): self._authorities,
            ("POST", f"{EST}/simpleenroll"): self._enroll,
            ("POST", f"{EST}/simplereenroll"): self._reenroll,
            ("GET", "/authority.pem"): lambda environ: _pem(environ, authority.authority_pem),
            ("GET", "/crls.pem"): lambda environ: _pem(environ, self._newest()),
            ("POST", "/timestamp"): self._timestamp,
            ("GET", "/healthz"): lambda _: EstReply(HTTPStatus.OK, b"ok\n"),
        }
        self.metrics = AuthorityMetrics(path for _, path in self._routes)

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        reply = self._answer(environ)
        self.metrics.answered(environ["PATH_INFO"], reply.status)
        length = ("Content-Length", str(len(reply.body)))
        start(f"{reply.status.value} {reply.status.phrase}", [("Content-Type", reply.kind), length, *reply.headers])
        return [reply.body]

    def _answer(self, environ: Environ) -> EstReply:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        route = self._routes.get((method, path))
        if route is None:
            known = any(path == one for _, one in self._routes)
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            return EstReply(
                status, b"there is nothing here for such a request; see RFC 7030 and docs/handbook/authority.md\n"
            )
        try:
            return route(environ)
        except CryptoError as error:
            log.info("refused", path=path, why=str(error), caller=environ.get("REMOTE_ADDR", ""))
            return EstReply(HTTPStatus.BAD_REQUEST, f"{error}\n".encode())
        except Exception:
            log.exception("a request failed", path=path)
            return EstReply(
                HTTPStatus.INTERNAL_SERVER_ERROR, b"the authority failed; its keeper finds why in its log\n"
            )

    def _authorities(self, _: Environ) -> EstReply:
        return _certificates(self._authority.authority_pem, HTTPStatus.OK)

    def _enroll(self, environ: Environ) -> EstReply:
        token = _token(environ.get("HTTP_AUTHORIZATION", ""))
        if token is None:
            msg = b"give the token that the authority made as the password of HTTP Basic; the user name is not read\n"
            asks = (("WWW-Authenticate", 'Basic realm="FedWard token"'),)
            return EstReply(HTTPStatus.UNAUTHORIZED, msg, headers=asks)
        pem = self._authority.redeem(_request(environ), Token.parse(token))
        return self._certified(pem, environ)

    def _reenroll(self, environ: Environ) -> EstReply:
        shown = environ.get("SSL_CLIENT_CERT", "")
        if not shown:
            msg = "show the certificate that is to be renewed, in TLS; for a first one, use simpleenroll with a token"
            raise EnrolmentError(msg)
        if not self._pace.allows(shown):
            again = (("Retry-After", str(int(RENEWAL_SECONDS))),)
            too_often = b"this certificate asks too often; find out which program does, and ask again in a minute\n"
            return EstReply(HTTPStatus.TOO_MANY_REQUESTS, too_often, headers=again)
        return self._certified(self._authority.renew(_request(environ), shown.encode()), environ)

    def _timestamp(self, environ: Environ) -> EstReply:
        if self._stamps is None:
            return EstReply(
                HTTPStatus.NOT_FOUND, b"this authority makes no timestamps; see docs/handbook/authority.md\n"
            )
        return EstReply(HTTPStatus.OK, self._stamps.answer(_body(environ, "a query (RFC 3161)")), REPLY_TYPE)

    def _certified(self, pem: bytes, environ: Environ) -> EstReply:
        certificate = parse_certificate(pem)
        self.metrics.certified.inc()
        log.info(
            "certified",
            serial=f"{certificate.serial_number:x}",
            until=certificate.not_valid_after_utc.isoformat(),
            caller=environ.get("REMOTE_ADDR", ""),
        )
        return _certificates(pem, HTTPStatus.OK)

    def _newest(self) -> bytes:
        lists = self._lists
        if not lists.guard.acquire(blocking=not lists.pem):
            return lists.pem  # somebody is looking for newer ones
        try:
            now = self._clock()
            if now >= lists.at + FRESH_SECONDS:
                lists.pem, lists.at = self._authority.lists_pem(), now
            return lists.pem
        finally:
            lists.guard.release()


def _certificates(pem: bytes, status: HTTPStatus) -> EstReply:
    """A certs-only CMS message, base64 (RFC 7030, 4.1.3 and 4.2.3)."""
    message = pkcs7.serialize_certificates(parse_certificates(pem), Encoding.DER)
    kind = "application/pkcs7-mime; smime-type=certs-only"
    return EstReply(status, base64.encodebytes(message), kind, (("Content-Transfer-Encoding", "base64"),))


def _pem(environ: Environ, pem: bytes) -> EstReply:
    tag = f'"{hashlib.sha256(pem).hexdigest()}"'
    headers = (("ETag", tag), ("Cache-Control", "no-cache"))
    if environ.get("HTTP_IF_NONE_MATCH") == tag:
        return EstReply(HTTPStatus.NOT_MODIFIED, b"", headers=headers)
    return EstReply(HTTPStatus.OK, pem, "application/x-pem-file", headers)


def _token(header: str) -> str | None:
    """The password of HTTP Basic (RFC 7617), or None."""
    scheme, _, given = header.partition(" ")
    try:
        text = base64.b64decode(given, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2] if scheme.lower() == "basic" and ":" in text else None


def _body(environ: Environ, what: str) -> bytes:
    try:
        size = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        size = -1
    if not 0 < size <= MAX_BODY:
        msg = f"send {what} of at most {MAX_BODY} bytes, with its Content-Length"
        raise EnrolmentError(msg)
    body: bytes = environ["wsgi.input"].read(size)
    return body


def _request(environ: Environ) -> bytes:
    """The signing request: base64 of DER as RFC 7030 wants it, or PEM."""
    body = _body(environ, "a signing request (PKCS #10)")
    if body.lstrip().startswith(b"-----"):
        return body
    try:
        return base64.b64decode(b"".join(body.split()), validate=True)
    except binascii.Error:
        msg = "the body is no base64 of a signing request (PKCS #10)"
        raise EnrolmentError(msg) from None
