"""TLS for browsers: a certificate may be shown and need not, and what the files say counts at each handshake."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from coordinator.console.tls import web_context
from crypto.pki.authority import root
from crypto.pki.identity import Identity, Role, Subject
from support.certificates import LOOPBACK, load, make_authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def hub(authority):
    return authority.credential("coordinator", "hub")


def handshake(context, client):
    """What the server is shown (DER), or why there is no connection; and what the client is shown."""
    ours, theirs = socket.socketpair()
    shown = []

    def serve():
        try:
            with context.wrap_socket(ours, server_side=True) as secure:
                shown.append(secure.getpeercert(binary_form=True))
                secure.sendall(b".")
        except ssl.SSLError as error:
            shown.append(error.reason)
        finally:
            ours.close()

    thread = threading.Thread(target=serve)
    thread.start()
    certificate = None
    try:
        with client.wrap_socket(theirs, server_hostname="localhost") as secure:
            certificate = secure.getpeercert(binary_form=True)
            secure.recv(1)
    except OSError:
        theirs.close()
    thread.join()
    return shown[0], certificate


def browser(authority, home=None):
    client = ssl.create_default_context(cadata=authority.pem.decode())
    if home is not None:
        client.load_cert_chain(home / "certificate.pem", home / "key.pem")
    return client


def test_a_certificate_of_the_consortium_is_told_and_none_is_needed(authority, hub):
    context = web_context(load(hub))
    assert handshake(context, browser(authority))[0] is None
    person = authority.credential("viewer", "vera")
    shown, _ = handshake(context, browser(authority, person))
    assert ssl.DER_cert_to_PEM_cert(shown).strip() == (person / "certificate.pem").read_text().strip()


def test_a_certificate_of_another_consortium_is_no_connection(authority, hub, tmp_path):
    stranger = make_authority(tmp_path).credential("viewer", "vera")
    assert handshake(web_context(load(hub)), browser(authority, stranger))[0] == "CERTIFICATE_VERIFY_FAILED"


def test_a_renewed_certificate_is_shown_from_the_next_handshake_on(authority):
    home = authority.credential("coordinator", "renewed")
    context = web_context(load(home))
    before = handshake(context, browser(authority))[1]
    subject = Subject(Identity(Role.COORDINATOR, "renewed"))
    request = (home / "request.csr").read_bytes()
    newer = root.sign(authority._root, request, subject=subject, days=60, hosts=LOOPBACK)
    (home / "certificate.pem").write_bytes(newer)
    after = handshake(context, browser(authority))[1]
    assert after != before
    assert ssl.DER_cert_to_PEM_cert(after).encode().strip() == newer.strip()


def test_old_versions_of_tls_are_refused(authority, hub):
    assert web_context(load(hub)).minimum_version >= ssl.TLSVersion.TLSv1_2
