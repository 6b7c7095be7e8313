"""Which certificate a coordinator shows in TLS, asked before anything is sent to it.

TLS libraries check a certificate's signatures and names, and gRPC's asks no revocation list. So a silo asks for the
coordinator's certificate in a handshake of its own, by the way that its calls take, and compares it with its lists.
Whoever sits on that way with a revoked key can show an honest coordinator's certificate here and another one to the
calls; what the coordinator signs is checked against the lists everywhere (`certificates.Trust`).
"""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from crypto.pki.certificates import Credential


def shown_certificate(address: str, credential: Credential, seconds: float, *, proxy: str | None = None) -> bytes:
    """Return the certificate (PEM) that the server at host:port shows under this consortium's roots.

    Raises OSError (`ssl.SSLError` is one) if it cannot be reached or shows none that TLS accepts.
    """
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cadata=credential.trust.bundle.roots_pem.decode())
    context.set_alpn_protocols(["h2"])
    _load(context, credential)
    with (
        _connected(host, int(port), proxy, seconds) as plain,
        context.wrap_socket(plain, server_hostname=host.strip("[]")) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(der or b"").encode()


def _connected(host: str, port: int, proxy: str | None, seconds: float) -> socket.socket:
    if proxy is None:
        return socket.create_connection((host.strip("[]"), port), timeout=seconds)
    through = urlsplit(proxy)
    connection = HTTPConnection(through.hostname or "", through.port, timeout=seconds)
    connection.set_tunnel(host, port)
    try:
        connection.connect()
    except HTTPException as fault:
        msg = f"the proxy {proxy} does not answer in HTTP: {fault!r}"
        raise OSError(msg) from None
    return connection.sock


def _load(context: ssl.SSLContext, credential: Credential) -> None:
    """Show this party's certificate. ssl reads keys from files alone; mkstemp makes one for the owner."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(credential.key_pem + credential.chain_pem)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
