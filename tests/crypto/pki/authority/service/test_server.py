"""The service bears callers who are slow, silent or strangers."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack

import pytest

from crypto.errors import EnrolmentError
from crypto.pki.authority.service.server import THREADS
from crypto.pki.joining.link import Link
from support.online import Online


def test_who_begins_a_handshake_and_stops_holds_nobody_up(online, url):
    port = int(url.rpartition(":")[2])
    silent = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(THREADS - 2)]
    try:
        assert Link(url, online.pem).bundle() == online.pem
    finally:
        for one in silent:
            one.close()


def test_who_sends_a_request_byte_by_byte_holds_nobody_up(online, url):
    port = int(url.rpartition(":")[2])
    context = ssl.create_default_context(cadata=online.pem.decode())
    with ExitStack() as opened:
        for _ in range(THREADS):
            plain = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            secure = opened.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            secure.sendall(b"GET /authority.pem HTTP/1.1\r\nX")
        assert Link(url, online.pem).bundle() == online.pem


def test_a_certificate_of_another_consortium_gets_no_connection(online, url, tmp_path):
    stranger = Online(tmp_path).enrol("silo", "stranger")
    request = (stranger / "request.csr").read_bytes()
    with pytest.raises(EnrolmentError, match="cannot be reached"):
        Link(url, online.pem).reenroll(request, stranger / "certificate.pem", stranger / "key.pem")


def test_too_large_a_body_and_plain_text_are_not_read(url):
    port = int(url.rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(b"POST /.well-known/est/simpleenroll HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n")
        assert secure.recv(99).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200" not in plain.recv(99)
