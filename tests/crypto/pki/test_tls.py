from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Role
from crypto.pki.tls import channel_credentials, handshake_fault, server_credentials
from tests.support.online import Online, load


@pytest.fixture(scope="module")
def port(coordinator):
    """A server that answers with the caller's identity."""
    trust = Trust(coordinator.authority_pem)

    def who(request, context):
        return trust.identify(context.auth_context()["x509_pem_cert"][0]).uri.encode() + b" says " + request

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("test", {"Who": grpc.unary_unary_rpc_method_handler(who)})
    server.add_generic_rpc_handlers((handler,))
    bound = server.add_secure_port("127.0.0.1:0", server_credentials(coordinator))
    server.start()
    yield bound
    server.stop(None).wait()


def call(port, credentials, host="127.0.0.1"):
    with grpc.secure_channel(f"{host}:{port}", credentials) as channel:
        return channel.unary_unary("/test/Who")(b"hello", timeout=300)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_sides_know_each_other(port, silos, host):
    assert call(port, channel_credentials(silos["north"]), host) == b"fedward://silo/north says hello"


def test_an_operator_may_call_too(port, enrol):
    assert call(port, channel_credentials(enrol("ada", Role.OPERATOR))).startswith(b"fedward://operator/ada")


def test_without_a_certificate_nobody_gets_in(port, coordinator):
    bare = grpc.ssl_channel_credentials(root_certificates=coordinator.authority_pem)
    with pytest.raises(grpc.RpcError) as refused:
        call(port, bare)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_certificate_of_another_authority_does_not_get_in(port, foreign, coordinator):
    stranger = foreign("stranger")
    credentials = grpc.ssl_channel_credentials(coordinator.authority_pem, stranger.key_pem, stranger.certificate_pem)
    with pytest.raises(grpc.RpcError) as refused:
        call(port, credentials)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_silo_does_not_talk_to_a_server_of_another_authority(port, foreign):
    with pytest.raises(grpc.RpcError) as refused:
        call(port, channel_credentials(foreign("lost")))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_plain_text_is_not_answered(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/test/Who")(b"hello", timeout=300)


def test_roles_do_not_swap_sides(silos, coordinator):
    with pytest.raises(CertificateError, match="only a coordinator may serve"):
        server_credentials(silos["north"])
    with pytest.raises(CertificateError, match="makes no calls"):
        channel_credentials(coordinator)


def served(credentials):
    """A server that says how the caller's certificate ends."""

    def who(request, context):
        return context.auth_context()["x509_pem_cert"][0]

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.method_handlers_generic_handler("test", {"Who": grpc.unary_unary_rpc_method_handler(who)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    return server, port


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(tmp_path):
    online = Online(tmp_path)
    homes = {role: online.enrol(role, role) for role in ("coordinator", "silo")}
    hub, north = (load(home) for home in homes.values())
    server, port = served(server_credentials(hub))
    try:
        assert call(port, channel_credentials(north), "localhost") == north.certificate_pem
        before = shown(port, north)
        for home in homes.values():
            online.renew(home)
        assert call(port, channel_credentials(north), "localhost") == (homes["silo"] / "certificate.pem").read_bytes()
        assert before != shown(port, north) == hub.certificate_pem
    finally:
        server.stop(None).wait()


def shown(port, caller):
    """The certificate that the server presents in a handshake."""
    context = ssl.create_default_context(cadata=caller.trust.bundle.roots_pem.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True)).encode()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_thief_of_the_online_key_stands_for_no_server_that_the_root_did_not_name(tmp_path, host):
    online = Online(tmp_path, hosts=["hub.example"])
    north = load(online.enrol("silo", "north"))
    chain, key = online.authority.server_credential([host])
    server, port = served(grpc.ssl_server_credentials([(key, chain)], online.pem, require_client_auth=True))
    try:
        with pytest.raises(grpc.RpcError) as refused:
            call(port, channel_credentials(north), host)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.value.details()
    finally:
        server.stop(None).wait()


@pytest.fixture(scope="module")
def elsewhere(enrol):
    """A coordinator whose certificate has another name than its address."""
    server = grpc.server(ThreadPoolExecutor(2))
    bound = server.add_secure_port(
        "127.0.0.1:0", server_credentials(enrol("elsewhere", Role.COORDINATOR, hosts=["hub.example.org"]))
    )
    server.start()
    yield bound
    server.stop(None).wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_address_that_the_certificate_does_not_name_is_told_apart_from_a_foreign_authority(host, elsewhere, silos):
    with pytest.raises(grpc.RpcError) as failed:
        call(elsewhere, channel_credentials(silos["north"]), host)
    told = handshake_fault(failed.value.details())
    assert told.startswith("the coordinator's certificate does not name this address")
    assert "authority.pem" not in told


def test_a_foreign_authority_is_told_and_anything_else_is_no_matter_of_tls(port, foreign):
    with pytest.raises(grpc.RpcError) as failed:
        call(port, channel_credentials(foreign("lost-again")))
    assert "check that authority.pem is the same" in handshake_fault(failed.value.details())
    assert handshake_fault("Failed to connect to remote host: Connection refused") == ""
