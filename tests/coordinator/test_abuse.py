"""One member against a real coordinator process: whatever it holds or sends, the others are served.

`make abuse` runs these attacks, and more, for minutes beside a study.
"""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import grpc
import pytest
import yaml

from bench.attacks.hostile.wire import Wire
from coordinator.door.connections import UNPROVEN
from protos import codec
from protos.messages import Answer, Member, Place
from protos.steps import Task
from protos.v1 import operator_pb2, silo_pb2
from support.cosigners import cosign, signed, stated, witness, witnessed
from support.hub_process import ROOT, hub_file, running
from support.people import create_request
from support.silos import Caller, Scene, Silo, refused
from support.studies import tiny_study

ELSEWHERE = "127.0.0.2"
"""The hostile member's own address."""
OPEN_FILES = 1024
numbers = itertools.count(1)


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not reached in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def hub(authority, tmp_path_factory):
    path = hub_file(tmp_path_factory.mktemp("abuse"), authority.credential("coordinator", "abused"))
    with running(path, open_files=OPEN_FILES) as made:
        yield made


@pytest.fixture(scope="module")
def honest(hub, authority, operator_folder):
    """An operator and a silo, on new connections every time."""
    north = authority.credential("silo", "honest-north")

    def ask():
        operator, silo = Caller(hub.port, operator_folder), Caller(hub.port, north)
        operator.operator.ListStudies(operator_pb2.ListStudiesRequest(), timeout=30)
        silo.silo.Heartbeat(silo_pb2.HeartbeatRequest(), timeout=30)
        operator.close()
        silo.close()

    return ask


@pytest.fixture
def evil(authority):
    """The folder of a hostile member's certificate."""
    return authority.credential("silo", f"evil-{next(numbers)}")


def counted(hub, evil, code):
    caller = evil.name.replace("silo-", "silo/", 1)
    return hub.metrics().get(f'fedward_coordinator_refused_calls_total{{caller="{caller}",code="{code}"}}', 0)


def test_holds_of_one_certificate_take_no_thread_of_others(hub, honest, evil):
    caller = Caller(hub.port, evil)
    calls = [caller.silo.Witness.future(silo_pb2.WitnessRequest(hold_seconds=20)) for _ in range(200)]
    honest()
    wait_for(lambda: counted(hub, evil, "RESOURCE_EXHAUSTED") > 0)
    for call in calls:
        call.cancel()
    wait_for(lambda: _beats(caller))
    caller.close()


def _beats(caller):
    try:
        caller.silo.Heartbeat(silo_pb2.HeartbeatRequest(), timeout=30)
    except grpc.RpcError:
        return False
    return True


def test_calls_that_never_send_their_message_take_no_thread_of_others(hub, honest, evil):
    wires = [Wire(hub.port, evil, ELSEWHERE) for _ in range(6)]
    for wire in wires:
        wire.begin()
        for _ in range(30):
            wire.call("Poll")
    honest()
    wait_for(lambda: counted(hub, evil, "RESOURCE_EXHAUSTED") >= 100)
    for wire in wires:
        wire.close()


def test_uploads_that_send_nothing_take_no_thread_of_others(hub, honest, evil):
    caller, over = Caller(hub.port, evil), threading.Event()

    def silent():
        over.wait(60)
        yield silo_pb2.UploadChunk()

    calls = [caller.silo.Upload.future(silent()) for _ in range(20)]
    honest()
    over.set()
    for call in calls:
        call.cancel()
    caller.close()


def test_bare_connections_are_closed_and_files_stay(hub, honest):
    """The process began with a limit of 1,024 open files, and raised it."""
    crowd = [socket.create_connection(("127.0.0.1", hub.port), 30, (ELSEWHERE, 0)) for _ in range(OPEN_FILES + 300)]
    honest()
    name = 'fedward_coordinator_closed_connections_total{reason="address"}'
    wait_for(lambda: hub.metrics().get(name, 0) >= len(crowd) - 2 * UNPROVEN)
    wait_for(lambda: hub.files() < 2 * UNPROVEN + 100)
    for one in crowd:
        one.close()


def test_a_long_explanation_with_markup_reaches_nobody(hub, authority, evil, operator_folder, tmp_path):
    """What one silo says to refuse a study is shown to all silos and to the operator."""
    names = tuple(f"{name}-{next(numbers)}" for name in ("far", "wide"))
    study = tiny_study(name="reviled", silos=(evil.name.removeprefix("silo-"), *names), min_silos=3)
    operator = Caller(hub.port, operator_folder)
    operator.operator.CreateStudy(create_request(authority, study), timeout=60)
    operator.operator.StartStudy(operator_pb2.StudyRequest(study=study.digest), timeout=60)
    place = codec.to_wire(Place(study.digest, 0, 1))
    silos = [Silo(hub.port, folder, study) for folder in (evil, *(authority.credential("silo", n) for n in names))]

    def say(text, reason="clip"):
        request = silo_pb2.AnswerRequest(place=place, session="s", refusal=reason, explanation=text)
        silos[0].silo.Answer(request, timeout=60)

    for text, why in (
        ("x" * ((4 << 20) - 500), "answer.explanation: has 4193804 characters, above 1000"),
        ("\x1b]0;owned\x07", "answer.explanation: has control characters"),
    ):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, why):
            say(text)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "answer.refusal: has 65 characters"):
        say("why", reason="y" * 65)
    say("[/red] no " + "x" * 990)
    for silo in silos[1:]:
        silo.answer(Place(study.digest, 0, 1), refusal="budget_spent")
        assert len(silo.poll().why) <= 1000
    file = tmp_path / "operator.yaml"
    paths = {name: str(operator_folder / f"{name}.pem") for name in ("certificate", "key", "authority")}
    file.write_text(yaml.safe_dump({"coordinator": f"127.0.0.1:{hub.port}", **paths}))
    program = [
        sys.executable,
        "-c",
        "from coordinator.cli.main import main; main()",
        "study",
        "status",
        "-o",
        str(file),
    ]
    shown = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "[/red] no" in shown.replace("\n", " ")
    for caller in (operator, *silos):
        caller.close()


def disputes_what_it_shall_contribute(silo, work):
    if work.task is Task.CONTRIBUTE:
        silo.confirm(work.place, work.task, work.tensor, dispute="data", explanation="not today")
    else:
        silo.do(work)


def everybody_once(scene, hostile):
    for silo in scene.silos.values():
        work = silo.poll()
        if work.task is not Task.WAIT:
            (disputes_what_it_shall_contribute if silo is hostile else Silo.do)(silo, work)


def test_a_member_that_disputes_replays_and_impersonates_ends_no_study(hub, authority, operator_folder):
    operator = Caller(hub.port, operator_folder)
    names = [f"{name}-{next(numbers)}" for name in ("calm", "evil", "mild", "tame")]
    study = tiny_study(name="disputed", silos=names, min_silos=3)
    scene = Scene(hub, authority, study, operator)
    scene.start()
    honest, hostile, other, _ = scene.silos.values()
    place = Place(study.digest, 0, 1)
    member = Member(hostile.name, honest.credential.certificate_pem, b"k" * 32, b"k" * 1184, b"signature")
    with refused(grpc.StatusCode.UNAUTHENTICATED, "may not answer with the certificate of"):
        hostile.silo.Answer(codec.to_wire(Answer(place, hostile.session, member=member)), timeout=60)

    for _ in range(200):
        everybody_once(scene, hostile)
        status = scene.status()
        if (status.phase, status.attempt) == ("gather", 2):
            break
    mine = signed(stated(honest, 3), honest.credential)
    cosign(honest, replace(place, attempt=2), mine)
    witness(hostile, witnessed(signed(stated(honest, 2), honest.credential), hostile.credential))
    assert cosign(honest, replace(place, attempt=2), mine).peer is None, "an old word answers nothing"
    witness(other, witnessed(mine, other.credential))
    assert cosign(honest, replace(place, attempt=2), mine).peer.stated == mine, "another silo has answered"

    for _ in range(400):
        if (status := scene.status()).state != "running":
            break
        everybody_once(scene, hostile)
    assert (status.state, {time.attempt for time in status.times if time.round}) == ("finished", {1})
    scene.close()
    operator.close()


def test_the_process_has_stayed_small_and_without_a_fault(hub, honest):
    honest()
    assert hub.memory() < 400 << 20
    assert not [line for line in hub.said if '"level": "error"' in line]
