"""A console on a real port: what a connection may hold, and for how long."""

from __future__ import annotations

import gc
import http.client
import socket
import ssl
import time
import weakref
from types import SimpleNamespace

import pytest

from policies.web import serving
from policies.web.serving import ConsoleServer


async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


@pytest.fixture
def serve():
    opened = []

    def begin(host="127.0.0.1", context=None):
        made = ConsoleServer(app, host, 0, context)
        made.start()
        opened.append(made)
        return made

    yield begin
    for one in opened:
        one.close()


def get(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/")
    return connection.getresponse()


def test_it_answers_on_a_free_port_and_says_nothing_of_itself(serve):
    reply = get(serve().port)
    assert (reply.status, reply.read()) == (200, b"here")
    assert reply.getheader("server") is None


def test_an_answer_of_two_writes_waits_for_no_acknowledgement(serve, monkeypatch):
    made, at_once = serving._Connection.connection_made, []

    def noted(self, transport):
        accepted = transport.get_extra_info("socket")
        at_once.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        made(self, transport)

    monkeypatch.setattr(serving._Connection, "connection_made", noted)
    get(serve().port).read()
    assert at_once == [1]


def test_a_port_that_is_taken_is_named(serve):
    taken = serve().port
    with pytest.raises(
        OSError, match=rf"^the console cannot be served on 127.0.0.1:{taken} \(.*in use\); give another"
    ):
        ConsoleServer(app, "127.0.0.1", taken)


def test_a_connection_that_says_nothing_is_closed(serve, monkeypatch):
    monkeypatch.setattr(serving, "SECONDS", 0.2)
    port = serve().port
    with socket.create_connection(("127.0.0.1", port), timeout=60) as silent:
        silent.sendall(b"GET / HT")
        assert silent.recv(1) == b""
    assert get(port).status == 200


def test_nobody_holds_all_connections(serve, monkeypatch):
    monkeypatch.setattr(serving, "CONNECTIONS", 3)
    port, held = serve().port, []
    for _ in range(3):
        held.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        time.sleep(0.05)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as more:
        assert more.recv(1) == b""
    for one in held:
        one.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            assert get(port).status == 200
            break
        except (http.client.HTTPException, OSError):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_handshakes_that_last_take_no_more_than_their_share(serve, monkeypatch):
    monkeypatch.setattr(serving, "SOCKETS", 3)
    monkeypatch.setattr(serving._Connection, "_alive", weakref.WeakSet())
    port = serve(context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)).port
    held = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(3)]
    deadline = time.monotonic() + 60
    while len(serving._Connection._alive) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as more:
        assert more.recv(1) == b""
    for one in held:
        one.close()
    while len(serving._Connection._alive) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.02)
    assert len(serving._Connection._alive) == 0


def test_headers_without_end_are_refused(serve):
    port = serve().port
    with socket.create_connection(("127.0.0.1", port), timeout=60) as greedy:
        greedy.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * (1 << 17))
        assert b" 400 " in greedy.recv(100)


def test_waiting_ends_when_it_is_asked_to(serve):
    asked = iter([False, True])
    serve().wait(lambda _: next(asked))
    assert list(asked) == []


def test_a_crowd_fills_no_log_and_any_other_fault_is_told():
    told = []
    loop = SimpleNamespace(default_exception_handler=told.append)
    for error in (serving._CrowdedError(), OSError("x"), None):
        serving._unless_crowded(loop, {"exception": error})
    assert [str(one["exception"]) for one in told] == ["x", "None"]
