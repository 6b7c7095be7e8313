"""A coordinator whose certificate is revoked is left at once, and called again when it shows another."""

from __future__ import annotations

import threading
import time
from concurrent import futures
from datetime import UTC, datetime
from types import SimpleNamespace

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from crypto.pki.authority import building
from crypto.pki.certificates import Credential
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.tls import server_credentials
from protos import codec
from protos.messages import Work
from protos.steps import Task
from protos.v1 import silo_pb2, silo_pb2_grpc
from silo_agent.protocol.calls import client as client_module
from silo_agent.protocol.calls.client import AskedToStop, Client, CoordinatorLeftError
from silo_agent.protocol.calls.coordinator_watch import CoordinatorWatch
from silo_agent.protocol.calls.server_certificate import shown_certificate
from support.epochs import fresh_epochs
from support.online import Online, week


class Hub(silo_pb2_grpc.SiloServiceServicer):
    """Holds every poll until it is let go."""

    def __init__(self):
        self.polled, self.go, self.joined = threading.Event(), threading.Event(), 0

    def Join(self, request, context):
        self.joined += 1
        return silo_pb2.JoinReply(coordinator_version="9")

    def Poll(self, request, context):
        self.polled.set()
        self.go.wait(300)
        return codec.to_wire(Work(Task.WAIT))


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path)


@pytest.fixture
def hub(online):
    """A running coordinator that follows its files, and its address."""
    home, service = online.enrol("coordinator", "hub"), Hub()
    online.bring_lists(home)
    credential = Credential.load(home / "certificate.pem", home / "key.pem", home / "authority.pem")
    server = grpc.server(futures.ThreadPoolExecutor(8))
    silo_pb2_grpc.add_SiloServiceServicer_to_server(service, server)
    port = server.add_secure_port("localhost:0", server_credentials(credential))
    server.start()
    yield service, f"localhost:{port}", home
    service.go.set()
    server.stop(None).wait()


@pytest.fixture
def silo(online):
    home = online.enrol("silo", "north")
    online.bring_lists(home)
    return home, Credential.load(home / "certificate.pem", home / "key.pem", home / "authority.pem")


@pytest.fixture
def client(hub, silo):
    stop = threading.Event()
    client = Client([hub[1]], silo[1], "00" * 16, stop, lambda _: None, epochs=fresh_epochs())
    yield client
    stop.set()
    client.close()


def test_a_revoked_coordinator_is_left_in_the_middle_of_a_call_and_called_again_with_another_certificate(
    online, hub, silo, client, monkeypatch
):
    monkeypatch.setattr(client_module, "LEFT_SECONDS", 0.05)
    (service, address, hub_home), (home, credential) = hub, silo
    watch = CoordinatorWatch(client, credential, home / "crls.pem")
    watch.look()
    client.join("1")
    ended = []
    polling = threading.Thread(target=lambda: ended.append(client.poll()))
    polling.start()
    assert service.polled.wait(60)

    former = shown_certificate(address, credential, 60)
    online.authority.revoke("fedward://coordinator/hub", None, datetime.now(UTC), "stolen")
    taken_back = datetime.now(UTC)
    online.bring_lists(home)
    with capture_logs() as logs:
        watch.look()
        watch.look()
    (told,) = [entry for entry in logs if entry["event"] == "coordinator left"]
    assert "the coordinator's certificate was revoked as of" in told["why"]
    with pytest.raises(CoordinatorLeftError):
        client.heartbeat()
    assert not ended
    joined = service.joined
    joining = threading.Thread(target=client.join, args=("1",))
    joining.start()
    joining.join(0.5)
    assert (joining.is_alive(), service.joined) == (True, joined), "it waits, as for one that is away"

    while datetime.now(UTC).replace(microsecond=0) <= taken_back:
        time.sleep(0.05)  # admissions count seconds, and one of the same second may be the thief's
    another = online.enrol("coordinator", "hub", home=hub_home.with_name("again"))
    for name in ("key.pem", "certificate.pem"):
        assert (another / name).exists()
    service.go.set()
    monkeypatch.setattr(watch, "_shown", (another / "certificate.pem").read_bytes)
    watch.look()
    joining.join(60)
    polling.join(60)
    assert (joining.is_alive(), polling.is_alive(), len(ended)) == (False, False, 1)
    assert former == (hub_home / "certificate.pem").read_bytes().strip() + b"\n"


def test_one_that_cannot_be_seen_or_keeps_no_lists_is_not_left(silo, client, hub, tmp_path):
    home, credential = silo
    closed = SimpleNamespace(address="localhost:1", leave=client.leave)
    gone = CoordinatorWatch(closed, credential, home / "crls.pem")
    gone.look()
    CoordinatorWatch(client, credential, tmp_path / "none").look()
    client.join("1")


def test_it_is_asked_again_only_if_the_lists_change(silo, client, hub):
    home, credential = silo
    asked = []
    watch = CoordinatorWatch(
        client, credential, home / "crls.pem",
        shown=lambda: asked.append(1) or (hub[2] / "certificate.pem").read_bytes(),
    )  # fmt: skip
    for _ in range(3):
        watch.look()
    assert len(asked) == 1


def test_while_it_is_left_an_agent_can_still_be_stopped(silo, hub, monkeypatch):
    stop = threading.Event()
    client = Client([hub[1]], silo[1], "00" * 16, stop, lambda _: None, epochs=fresh_epochs())
    client.leave("revoked")
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(AskedToStop):
        client.join("1")
    client.close()


def test_a_fault_that_nobody_foresaw_does_not_leave_the_coordinator_unwatched(client, silo):
    home, credential = silo
    stop, watch = threading.Event(), CoordinatorWatch(client, credential, home / "crls.pem")
    watch.look = lambda: stop.set() or 1 / 0
    with capture_logs() as logs:
        watch.run(stop)
    assert [one["fault"] for one in logs] == ["ZeroDivisionError"]


def test_a_server_that_a_thief_of_the_issuing_key_certified_without_an_admission_is_left(online, hub, silo, client):
    home, credential = silo
    key, hub_there = ec.generate_private_key(ec.SECP256R1()).public_key(), Subject(Identity(Role.COORDINATOR, "hub"))
    forged = building.leaf(hub_there, ["localhost"], key, week(), online.stolen.above)
    watch = CoordinatorWatch(client, credential, home / "crls.pem", shown=lambda: forged)
    watch.look()
    with pytest.raises(
        CoordinatorLeftError, match=r"does not count \(an issuing authority signed .* without an admission"
    ):
        client.heartbeat()
