"""The coordinator as a whole: it serves, says so, survives its own restart, and needs no learning library."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator import engine as engines
from coordinator.config import CoordinatorConfig
from coordinator.server import SERVICES, RevocationCheck
from crypto.pki.certificates import Trust
from policies.plan.release import plan
from protos import chunks
from protos.messages import Place, Tensor
from protos.steps import Note, Task
from protos.v1 import silo_pb2
from support.contents import listed
from support.databases import server_of
from support.online import Online
from support.silos import Caller, Scene, refused, summed
from support.studies import tiny_study

numbers = itertools.count(1)
ROOT = Path(__file__).resolve().parents[2]


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as reply:
        return reply.read().decode()


def measured(port):
    """Each figure by its name and labels."""
    lines = [line for line in scrape(port).splitlines() if line.startswith("fedward_coordinator_")]
    parted = [line.removeprefix("fedward_coordinator_").rsplit(" ", 1) for line in lines]
    return {name: float(value) for name, value in parted}


# --- who was revoked --------------------------------------------------------------------------------------------------
def test_a_certificate_is_checked_again_only_when_the_lists_change(tmp_path, monkeypatch):
    online, checked = Online(tmp_path), []
    home = online.enrol("silo", "north")
    pem = (home / "certificate.pem").read_bytes()
    trust = Trust.load(home / "authority.pem")
    examine = trust.examine
    monkeypatch.setattr(trust, "examine", lambda one: checked.append(one) or examine(one))
    revoked = RevocationCheck(trust)
    assert [revoked(pem) for _ in range(3)] == [False] * 3
    assert len(checked) == 1
    online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "left")
    online.bring_lists(home)
    assert revoked(pem)
    assert not revoked(b"of a root that was taken out")


# --- health and metrics ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("service", ["", *SERVICES])
def test_health_says_serving(operator, service):
    health = health_pb2_grpc.HealthStub(operator.channel)
    reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=300)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_health_of_something_else(operator):
    with refused(grpc.StatusCode.NOT_FOUND, ""):
        health_pb2_grpc.HealthStub(operator.channel).Check(health_pb2.HealthCheckRequest(service="other"), timeout=300)


def test_metrics_follow_a_study(server, scene):
    before = measured(server.metrics_port)
    scene.play(lambda status: status.state == "finished")
    after = measured(server.metrics_port)
    grown = {
        'studies{state="finished"}': 1,
        'attempts_total{outcome="committed"}': 4,
        'phase_seconds_count{phase="open"}': 5,
        'received_bytes_total{kind="ckks"}': sum(
            upload.bytes for upload in scene.status().uploads if upload.kind == "ckks"
        ),
    }
    for name, by in grown.items():
        assert after[name] - before.get(name, 0.0) == by, name
    assert after[f'round{{study="{scene.study.digest[:12]}"}}'] == 3
    for silo in scene.silos:
        assert f'silo_last_seen_seconds{{silo="{silo}"}}' in after


def test_every_release_in_a_signed_list_is_stored_and_charges_are_judged_by_the_studies(server, scene):
    (silo, *_), study = scene.silos.values(), scene.study
    running, _ = server.engine.catalogue.studies_of(silo.name)
    assert study in running
    scene.play(lambda status: status.state == "finished")
    planned = {(number, tensor) for number in range(plan(study).last + 1) for tensor in plan(study).tensors(number)}
    stored = [one for one in server._cosigning._checkpoints.summed(silo.name) if one.study == study.digest]
    assert {(one.round, one.tensor) for one in stored} == planned
    _, ended = server.engine.catalogue.studies_of(silo.name)
    assert study in ended
    assert server.engine.catalogue.studies_of("nobody") == ([], [])
    assert server._cosigning._studies is server.engine.catalogue


def test_refusals_are_counted_by_code_and_caller(server, operator):
    name = {"code": "PERMISSION_DENIED", "caller": f"operator/{operator.name}"}
    before = server.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", name) or 0
    with refused(grpc.StatusCode.PERMISSION_DENIED, ""):
        operator.silo.Heartbeat(silo_pb2.HeartbeatRequest())
    assert server.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", name) == before + 1


# --- restarts -------------------------------------------------------------------------------------------------------
class Restarts:
    """A server that is stopped and started again on the same data, with one study."""

    def __init__(self, make_server, authority, operator_folder, data, study):
        self._make, self._operator_folder, self._data = make_server, operator_folder, data
        self.server = make_server(data)
        self.operator = Caller(self.server.port, operator_folder)
        self.scene = Scene(self.server, authority, study, self.operator)
        self.scene.start()

    def restart(self):
        self.stop()
        self.begin()

    def begin(self):
        self.server = self._make(self._data)
        self.operator = Caller(self.server.port, self._operator_folder)
        self.scene.reconnect(self.server.port, self.operator)

    def stop(self):
        self.operator.close()
        self.server.close()


@pytest.fixture
def restarts(make_server, authority, operator_folder, tmp_path):
    names = tuple(f"{letter}-{next(numbers)}" for letter in "abc")
    made = Restarts(make_server, authority, operator_folder, tmp_path / "data", tiny_study(silos=names))
    yield made
    made.scene.close()
    made.stop()


@pytest.mark.slow
def test_a_restart_while_gathering_keeps_what_is_there(restarts, monkeypatch):
    monkeypatch.setattr(chunks, "MAX_CHUNK", 40)
    scene = restarts.scene
    place = scene.gathering(Tensor.ENCODER)
    one, two, three = scene.silos.values()
    whole, half = (silo.contribution(place, Tensor.ENCODER) for silo in (one, two))
    one.upload(one.header(place, whole, Tensor.ENCODER), whole)
    header = two.header(place, half, Tensor.ENCODER)
    with refused(grpc.StatusCode.ABORTED, "resume at "):
        two.upload(header, half[:40], hashes=listed(half).hashes)
    path = growing(scene, place, two.name)
    path.write_bytes(path.read_bytes() + half[40:60])  # the process is killed in the middle of the next chunk
    restarts.restart()
    one, two, three = scene.silos.values()
    assert set(scene.status().waiting_for) == {two.name, three.name}
    assert two.stored(header) == (40, False)
    two.upload(header, half, offset=40)
    status = scene.play(lambda status: status.phase == "open")
    assert (status.round, status.attempt) == (1, 1)
    sent = [silo.contribution(place, Tensor.ENCODER) for silo in scene.silos.values()]
    assert one.download(place, "sum", Tensor.ENCODER) == summed(plan(scene.study).ring("encoder"), sent)
    assert scene.play(lambda status: status.state != "running").state == "finished"


def growing(scene, place, name):
    return scene.server.engine._spool.partial(place, "encoder", name)


def test_a_restart_while_adding_adds_anew(restarts, monkeypatch):
    """The process dies after the last upload was stored and before the sum was: it is made by the next one."""
    scene = restarts.scene
    with monkeypatch.context() as patch:
        patch.setattr(engines.Engine, "_add", lambda *_: None)
        scene.play(lambda status: status.phase == "add")
        restarts.stop()
    restarts.begin()
    place = Place(scene.study.digest, 0, 1)
    status = scene.play(lambda status: status.phase == "open")
    assert status.attempt == 1
    sent = [silo.contribution(place, Tensor.COUNTS) for silo in scene.silos.values()]
    assert next(iter(scene.silos.values())).download(place, "sum", Tensor.COUNTS) == summed("ckks", sent)


@pytest.mark.parametrize("phase", ["greet", "deal", "take", "exchange", "sign", "reveal", "open", "solve", "adopt"])
def test_a_restart_in_any_other_phase_goes_on(restarts, phase):
    scene = restarts.scene
    before = scene.play(lambda status: status.phase == phase)
    restarts.restart()
    after = scene.status()
    assert (after.round, after.attempt, after.phase, after.waiting_for) == (
        before.round,
        before.attempt,
        before.phase,
        before.waiting_for,
    )
    ended = len(before.times)
    scene.play(lambda status: len(status.times) >= ended + 2)


def test_a_restart_while_somebody_catches_up(make_server, authority, operator_folder, tmp_path):
    names = tuple(f"{letter}-{next(numbers)}" for letter in "abc")
    study = tiny_study(silos=names, min_silos=2, privacy={"colluders": 0})
    made = Restarts(make_server, authority, operator_folder, tmp_path / "data", study)
    try:
        late = names[0]
        made.scene.play(lambda status: status.round == 1, silent=(late,))
        made.scene.silos[late].do(made.scene.silos[late].poll())
        for phase in ("share", "catch_up"):
            before = made.scene.play(lambda status, p=phase: status.phase == p)
            made.restart()
            after = made.scene.status()
            assert (after.phase, after.waiting_for, after.attempt) == (phase, before.waiting_for, 1)
        assert made.scene.play(lambda status: status.state != "running").state == "finished"
    finally:
        made.scene.close()
        made.stop()


def test_a_restart_in_a_pause_and_while_waiting(make_server, authority, operator_folder, tmp_path):
    names = tuple(f"{letter}-{next(numbers)}" for letter in "abc")
    study = tiny_study(silos=names)
    made = Restarts(make_server, authority, operator_folder, tmp_path / "data", study)
    try:
        made.scene.play(lambda status: status.state == "waiting", silent=(names[0],))
        made.restart()
        assert made.scene.status().waiting_for == (names[0],)
        made.scene.silos[names[0]].do(made.scene.silos[names[0]].poll())
        made.scene.play(lambda status: status.phase == "take")
        made.scene.pause()
        made.restart()
        assert made.scene.status().state == "paused"
        assert {silo.poll().task for silo in made.scene.silos.values()} == {Task.WAIT}
        made.scene.resume()
        assert made.scene.play(lambda status: status.state != "running").state == "finished"
    finally:
        made.scene.close()
        made.stop()


# --- as a process ---------------------------------------------------------------------------------------------------
BLIND = """
import importlib.util
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "opacus", "tenseal", "pyarrow", "safetensors", "silo_agent"}:
            raise ImportError(f"{name} must not be imported by the coordinator")

sys.meta_path.insert(0, Forbidden())
from coordinator.cli import main

main.app(["serve", "-c", sys.argv[1]], standalone_mode=False)
rooms = ("agreement", "checks", "masks", "packages", "sealing", "unmasking", "dealt.shamir")
secret = {"crypto.rings.ckks_secret", *(f"crypto.secagg.{room}" for room in rooms)}
assert all(importlib.util.find_spec(name) for name in secret), "one of them has another name now"
print(sorted(secret & set(sys.modules)), flush=True)
"""


@pytest.fixture
def config_file(authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("process")
    home = authority.credential("coordinator", folder.name.replace("_", "-"))
    files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    path = folder / "coordinator.yaml"
    path.write_text(yaml.safe_dump({"port": 0, "metrics_port": 0, "data": "data", **files}))
    return path


@pytest.fixture
def listening(tmp_path):
    """A service manager's socket, and where it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(60)
        yield heard, tmp_path / "notify"


def test_it_serves_where_nothing_can_learn_or_open(config_file, authority, operator_folder, listening):
    """Neither torch, opacus nor tenseal can be imported there; a round runs to its opened sum nevertheless."""
    command = [sys.executable, "-c", BLIND, config_file]
    service_manager, notified = listening
    environment = {**os.environ, "NOTIFY_SOCKET": str(notified), "WATCHDOG_USEC": "300000"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            entry = json.loads(process.stderr.readline())
            assert (entry["event"], entry["level"]) == ("serving", "info")
            heard = [service_manager.recv(200) for _ in range(3)]
            assert [one for one in heard if not one.startswith(b"STATUS=")] == [b"READY=1", b"WATCHDOG=1"]
            assert [one[:24] for one in heard if one.startswith(b"STATUS=")] == [b"STATUS=certificate until"]
            port, metrics_port = entry["port"], entry["metrics_port"]
            operator = Caller(port, operator_folder)
            study = tiny_study(silos=("blind-a", "blind-b"), min_silos=2)
            scene = Scene(type("Elsewhere", (), {"port": port}), authority, study, operator)
            scene.start()
            scene.play(lambda status: status.round == 1)
            assert 'outcome="committed"} 1.0' in scrape(metrics_port)
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                stranger.recv(1)  # it is closed
            while "failed_handshakes_total 1.0" not in scrape(metrics_port):
                time.sleep(0.05)
            scene.close()
            operator.close()
            os.kill(process.pid, signal.SIGTERM)
            out, err = process.communicate(timeout=300)
            assert (process.returncode, out) == (0, "[]\n"), "no module that could open a sum was loaded"
            told = [json.loads(line) for line in err.splitlines()]
            assert told[-1]["event"] == "stopped"
            assert [one["why"][:16] for one in told if one["event"] == "a TLS handshake failed"] == ["Handshake failed"]
        finally:
            process.kill()
    assert (config_file.parent / "data" / "coordinator.sqlite3").exists()


def test_a_port_that_is_taken_is_one_sentence(server, config_file, tmp_path):
    config = CoordinatorConfig.load(config_file).model_copy(update={"data": tmp_path / "of another"})
    with pytest.raises(OSError, match=f"127.0.0.1:{server.port} cannot be served; give another"):
        server_of(config.model_copy(update={"port": server.port}))
    with pytest.raises(OSError, match=f"served on 127.0.0.1:{server.metrics_port} .Address already in use.; give"):
        server_of(config.model_copy(update={"port": 0, "metrics_port": server.metrics_port}))


def test_a_note_is_relayed_as_it_came(scene):
    status = scene.play(lambda status: status.phase == "deal")
    dealer = scene.silos[status.waiting_for[0]]
    place, content = Place(scene.study.digest, 0, 1), json.dumps({"sealed": "for others"}).encode() * 100_000
    dealer.upload(dealer.header(place, content, Note.KEYS), content)
    for silo in scene.silos.values():
        assert silo.download(place, "keys", of_silo=dealer.name) == content
