from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from crypto.pki.tls import server_credentials
from silo_agent.protocol.calls.server_certificate import shown_certificate
from support.certificates import load, make_authority
from support.proxy import proxying


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def coordinator(authority):
    return load(authority.credential("coordinator", "hub"))


@pytest.fixture(scope="module")
def north(authority):
    return load(authority.credential("silo", "north"))


@pytest.fixture(scope="module")
def address(coordinator):
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_secure_port("localhost:0", server_credentials(coordinator))
    server.start()
    yield f"localhost:{port}"
    server.stop(None).wait()


def test_it_is_the_one_that_the_server_shows_and_no_key_stays_in_a_file(
    address, coordinator, north, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = shown_certificate(address, north, 60)
    assert coordinator.chain_pem.startswith(shown.strip())
    assert not list(tmp_path.iterdir())


def test_it_is_asked_for_by_the_way_that_calls_take(address, coordinator, north):
    with proxying() as proxy:
        assert coordinator.chain_pem.startswith(shown_certificate(address, north, 60, proxy=proxy.url).strip())
        assert [line.split()[1] for line in proxy.asked] == [address]
        proxy.refusal = b"HTTP/1.1 403 Forbidden\r\n\r\n"
        with pytest.raises(OSError, match="403"):
            shown_certificate(address, north, 60, proxy=proxy.url)
        proxy.refusal = b"no proxy\r\n"
        with pytest.raises(OSError, match="does not answer in HTTP"):
            shown_certificate(address, north, 60, proxy=proxy.url)


def test_a_server_of_another_consortium_or_one_that_says_nothing_shows_none(address, tmp_path):
    stranger = load(make_authority(tmp_path).credential("silo", "north"))
    with pytest.raises(OSError, match="certificate verify failed"):
        shown_certificate(address, stranger, 60)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        closing = threading.Thread(target=hang_up, args=(deaf,))
        closing.start()
        with pytest.raises(OSError):  # noqa: PT011  # which one is the system's affair
            shown_certificate(f"127.0.0.1:{deaf.getsockname()[1]}", stranger, 60)
        closing.join()


def hang_up(listening):
    listening.accept()[0].close()
