"""Speaks with an issuing authority over HTTPS (`authority.service.est`), through a hospital's proxy if there is one.

Guarantees: the service is believed only if its certificate ends at a given authority, names its host, and is not that
of a party: a coordinator has a certificate for its host, too, and gets no token. Only `unverified` asks
without that, and it sends nothing. Answers are bounded. Every failure is one `EnrolmentError`.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs7

from crypto.errors import EnrolmentError
from crypto.pki.reading import extension, to_pem

SECONDS = 20.0
_MAX_ANSWER = 1 << 24
QUERY_TYPE = "application/timestamp-query"
_EST = "/.well-known/est"
_HTTPS = 443
Shown = tuple[Path, Path, bytes | None]
"""Files of a certificate and its key, and the key's passphrase: what TLS shows."""


@dataclass(frozen=True)
class Link:
    """An issuing authority at an URL."""

    url: str
    """https://host:port"""
    trusted_pem: bytes
    """Roots, and issuing authorities under them (`chain.Bundle`)."""
    proxy: str | None = None
    """http://host:port of a proxy that knows HTTP CONNECT."""

    def bundle(self) -> bytes:
        """Fetch `authority.pem`. Raises `EnrolmentError`."""
        return self._get("/authority.pem", None)[1]

    def lists(self, tag: str | None = None) -> tuple[str | None, bytes | None]:
        """Fetch `crls.pem` with its tag; None in the place of bytes if it is what it was under `tag`."""
        status, body, tag_now = self._ask("GET", "/crls.pem", {} if tag is None else {"If-None-Match": tag})
        if status == http.client.NOT_MODIFIED:
            return tag, None
        return tag_now, self._ok(status, body)

    def timestamp(self, query: bytes) -> bytes:
        """Have a query (`timestamps.query_for`) stamped; return the reply. Raises `EnrolmentError`."""
        status, body, _ = self._ask("POST", "/timestamp", {"Content-Type": QUERY_TYPE}, query)
        return self._ok(status, body)

    def enroll(self, request_pem: bytes, token: str) -> bytes:
        """Redeem a token; return the certificate (PEM). Raises `EnrolmentError` with the authority's reason."""
        password = base64.b64encode(f"token:{token}".encode()).decode()
        return self._certified("simpleenroll", request_pem, {"Authorization": f"Basic {password}"})

    def reenroll(self, request_pem: bytes, chain: Path, key: Path, passphrase: bytes | None = None) -> bytes:
        """Renew the certificate that these files hold; return the new one (PEM). Raises `EnrolmentError`.

        `passphrase` is the key's, if it has one.
        """
        return self._certified("simplereenroll", request_pem, {}, (chain, key, passphrase))

    def _certified(self, what: str, request_pem: bytes, headers: dict[str, str], shown: Shown | None = None) -> bytes:
        der = x509.load_pem_x509_csr(request_pem).public_bytes(serialization.Encoding.DER)
        headers = {**headers, "Content-Type": "application/pkcs10", "Content-Transfer-Encoding": "base64"}
        status, body, _ = self._ask("POST", f"{_EST}/{what}", headers, base64.encodebytes(der), shown)
        try:
            certificates = pkcs7.load_der_pkcs7_certificates(base64.b64decode(self._ok(status, body)))
        except (ValueError, binascii.Error):
            certificates = []
        if not certificates:
            msg = f"{self.url} answers without a certificate; check that this is the issuing authority"
            raise EnrolmentError(msg)
        return to_pem(certificates[0])

    def _get(self, path: str, shown: Shown | None) -> tuple[int, bytes]:
        status, body, _ = self._ask("GET", path, {}, b"", shown)
        return status, self._ok(status, body)

    def _ok(self, status: int, body: bytes) -> bytes:
        if status != http.client.OK:
            said = body.decode("utf-8", "replace").strip()[:2000]
            msg = f"the authority at {self.url} refuses: {said or f'HTTP {status}'}"
            raise EnrolmentError(msg)
        return body

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b"", shown: Shown | None = None
    ) -> tuple[int, bytes, str | None]:
        try:
            context = ssl.create_default_context(cadata=self.trusted_pem.decode())
            # The service shows one certificate of its authority. In a change of root there are two, of one key.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if shown is not None:
                context.load_cert_chain(shown[0], shown[1], shown[2] or b"")
            return _exchange(self.url, self.proxy, context, (method, path, headers, body), self._require_service)
        except ssl.SSLCertVerificationError as error:
            msg = (
                f"the service at {self.url} does not show a certificate of this consortium's authority for that host"
                f" ({error.verify_message}); check the URL and this machine's clock, and ask the authority"
            )
            raise EnrolmentError(msg) from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a port or name that is none
            raise _unreachable(self.url, self.proxy, error) from None

    def _require_service(self, der: bytes) -> None:
        """Raise `EnrolmentError` if a party showed this certificate, and not an issuing authority's own service."""
        names = extension(x509.load_der_x509_certificate(der), x509.SubjectAlternativeName)
        if names is None or names.get_values_for_type(x509.UniformResourceIdentifier):
            msg = (
                f"what answers at {self.url} shows the certificate of a party and not that of an issuing authority, so"
                " nothing was sent; check the URL, and ask the authority's keeper"
            )
            raise EnrolmentError(msg)


def unverified(url: str, proxy: str | None = None) -> bytes:
    """Fetch `authority.pem` from a service that nobody vouches for yet: the caller compares the root's fingerprint.

    Nothing is sent but the request for this file. Raises `EnrolmentError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        status, body, _ = _exchange(url, proxy, context, ("GET", "/authority.pem", {}, b""))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a port or name that is none
        raise _unreachable(url, proxy, error) from None
    return Link(url, b"")._ok(status, body)  # noqa: SLF001  # of this module


def _exchange(
    url: str,
    proxy: str | None,
    context: ssl.SSLContext,
    asked: tuple[str, str, dict[str, str], bytes],
    require: Callable[[bytes], None] = lambda _: None,
) -> tuple[int, bytes, str | None]:
    at = urlsplit(url)
    host, port = at.hostname or "", at.port or _HTTPS
    if proxy is None:
        connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=context)
    else:
        through = urlsplit(proxy)
        connection = http.client.HTTPSConnection(through.hostname or "", through.port, timeout=SECONDS, context=context)
        connection.set_tunnel(host, port)
    try:
        method, path, headers, body = asked
        connection.connect()
        require(connection.sock.getpeercert(binary_form=True) or b"")
        connection.request(method, path, body or None, headers)
        reply = connection.getresponse()
        return reply.status, reply.read(_MAX_ANSWER), reply.getheader("ETag")
    finally:
        connection.close()


def _unreachable(url: str, proxy: str | None, error: Exception) -> EnrolmentError:
    way = "" if proxy is None else f" through the proxy {proxy}"
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return EnrolmentError(
        f"the issuing authority at {url} cannot be reached{way} ({why}); check the URL, the proxy and the firewall, and"
        " that `fedward-authority serve` runs"
    )
