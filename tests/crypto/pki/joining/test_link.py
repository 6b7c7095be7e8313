"""Calls to an issuing authority: over real TLS, to services that lie, stall, shout or break off."""

from __future__ import annotations

import http.server
import ssl
import threading
from contextlib import contextmanager

import pytest

from crypto.errors import EnrolmentError
from crypto.pki.joining import link as module
from crypto.pki.joining.link import Link, unverified
from support.online import Online
from support.proxy import proxying


class Odd(http.server.BaseHTTPRequestHandler):
    """Answers with what the server was given."""

    def do_GET(self):
        status, body, length = self.server.answer
        if body is None:
            self.server.hold.wait(60)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  # the base class asks for the name

    def log_message(self, *_):
        pass


@contextmanager
def odd_service(online, tmp_path, answer):
    """A service with a certificate of the issuing authority, which answers as it is told."""
    chain, key = online.authority.server_credential(["localhost"])
    pem = tmp_path / "odd.pem"
    pem.write_bytes(key + chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.answer, server.hold = answer, threading.Event()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}"
    finally:
        server.hold.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def roots(online):
    return online.authority._bundle.roots_pem  # of the tests' own authority


def test_authorities_and_lists_are_fetched_and_lists_only_if_they_are_new(online, url, roots):
    link = Link(url, roots)
    assert link.bundle() == online.pem == unverified(url)
    tag, lists = link.lists()
    assert lists == online.authority.lists_pem()
    assert link.lists(tag) == (tag, None)


def test_a_proxy_is_asked_for_the_very_host_and_sees_nothing_else(url, roots, online):
    with proxying() as proxy:
        assert Link(url, roots, proxy.url).bundle() == online.pem
        (asked,) = proxy.asked
        assert asked.startswith(f"CONNECT {url.removeprefix('https://')} HTTP/1.")
        proxy.refusal = b"HTTP/1.1 403 Forbidden\r\n\r\n"
        with pytest.raises(EnrolmentError, match=rf"cannot be reached through the proxy {proxy.url} .*403"):
            Link(url, roots, proxy.url).bundle()


def test_a_service_of_another_root_is_asked_nothing(url, tmp_path):
    foreign = Online(tmp_path / "foreign")
    with pytest.raises(EnrolmentError, match="does not show a certificate of this consortium's authority"):
        Link(url, foreign.pem).bundle()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, b"no such token\n", None), "refuses: no such token"),
        ((500, b"", None), "refuses: HTTP 500"),
        ((200, b"no base64 \xff", None), "answers without a certificate"),
        ((200, b"AAAA", None), "answers without a certificate"),
        ((200, b"short", 4000), "cannot be reached|answers without a certificate"),
    ],
)
def test_an_answer_that_is_none_is_one_sentence(online, roots, tmp_path, answer, why):
    home = online.enrol("silo", "asking", home=tmp_path / "home")
    with odd_service(online, tmp_path, answer) as there, pytest.raises(EnrolmentError, match=why):
        Link(there, roots).enroll((home / "request.csr").read_bytes(), "token")


def test_a_service_that_stands_still_or_shouts_is_left(online, roots, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    with (
        odd_service(online, tmp_path, (200, None, None)) as there,
        pytest.raises(EnrolmentError, match=r"cannot be reached .*timed out"),
    ):
        Link(there, roots).bundle()
    monkeypatch.setattr(module, "_MAX_ANSWER", 10)
    with odd_service(online, tmp_path, (200, b"x" * 1000, None)) as there:
        assert Link(there, roots).bundle() == b"x" * 10


@pytest.mark.parametrize("url", ["https://localhost:99999", f"https://{'a' * 70}.example:1"])
def test_an_url_that_no_network_knows_is_one_sentence(online, url):
    for ask in (lambda: unverified(url), Link(url, online.pem).bundle):
        with pytest.raises(EnrolmentError, match="cannot be reached"):
            ask()
