"""TLS for a program that browsers call: the coordinator's console.

Guarantees: the server shows the certificate that is in the files at each handshake. A caller may show a certificate of
the consortium and need not. Whose it is, and whether it counts, is for the caller of `Trust.identify`. The key is in no
file on a disk while it is read.
"""

from __future__ import annotations

import os
import ssl
from typing import Final

from crypto.pki.certificates import Credential

_KEPT: Final = "fedward-console"


def web_context(credential: Credential) -> ssl.SSLContext:
    """Return the context of a server, which follows renewals of certificate, authorities and lists."""
    shown = _shown(credential)
    current = [(shown, _context(*shown))]
    outer = _context(*shown)

    def newest(connection: ssl.SSLObject, _name: str | None, _outer: ssl.SSLContext) -> None:  # ssl's
        now = _shown(credential)
        if now != current[0][0]:
            current[0] = now, _context(*now)
        connection.context = current[0][1]

    outer.sni_callback = newest  # called at every handshake, whether or not the caller says a name
    return outer


def _shown(credential: Credential) -> tuple[bytes, bytes, bytes]:
    return credential.key_pem, credential.chain_pem, credential.authority_pem


def _context(key: bytes, chain: bytes, authorities: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authorities.decode())
    handle = os.memfd_create(_KEPT)  # ssl reads keys from files alone; this one is memory
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(key + chain)
    try:
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
    return context
