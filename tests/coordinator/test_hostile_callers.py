"""Members that send anything, over real TLS: changed requests of every method end no coordinator and no study."""

from __future__ import annotations

import collections
from random import Random

import grpc
import pytest
from structlog.testing import capture_logs

from coordinator.server import OPERATORS, SILOS
from protos import codec
from protos.messages import Confirm, Tensor
from protos.steps import Note, Task
from protos.v1 import common_pb2, operator_pb2, silo_pb2
from support.mutating import mutated
from support.people import create_request
from support.silos import Caller
from support.studies import tiny_study

SECONDS = 20.0


def requests_of(silo, place, content):
    """An honest request of every method, by name; a list where the method takes a stream."""
    header = codec.to_wire(silo.header(place, content, Note.GREETING))
    stream = list(silo.messages(silo.header(place, content, Note.GREETING), content))
    confirm = codec.to_wire(Confirm(place, Task.SIGN, Tensor.COUNTS, signature=b"signed"))
    wire = codec.to_wire(place)
    return {
        "Join": silo_pb2.JoinRequest(protocol=1, agent_version="1", session="one"),
        "GetStudy": silo_pb2.GetStudyRequest(study=place.study),
        "Poll": silo_pb2.PollRequest(session="one", hold_seconds=0.0),
        "Answer": silo_pb2.AnswerRequest(place=wire, session="one", refusal="no", explanation="because"),
        "Upload": stream,
        "UploadStatus": silo_pb2.UploadStatusRequest(header=header),
        "Download": silo_pb2.DownloadRequest(place=wire, kind="greeting", silos=[silo.name]),
        "Confirm": confirm,
        "FollowAudit": silo_pb2.FollowAuditRequest(entries=0, head=bytes(32)),
        "CosignAudit": common_pb2.AuditCosignature(
            silo=silo.name, entries=1, head=bytes(32), broke_head=bytes(32), certificate_pem=b"pem", signature=b"s"
        ),
        "NextPoll": silo_pb2.NextPollRequest(),
        "AnswerPoll": silo_pb2.AnswerPollRequest(study=place.study, verdict="person"),
        "Heartbeat": silo_pb2.HeartbeatRequest(session="one"),
        "LatestCountersignatures": silo_pb2.LatestCountersignaturesRequest(),
        "Countersign": silo_pb2.CountersignRequest(place=wire, hold_seconds=0.0),
        "Witness": silo_pb2.WitnessRequest(hold_seconds=0.0),
    }


def operator_requests(study, authority):
    one = operator_pb2.StudyRequest(study="nobody's")
    return {
        "CreateStudy": create_request(authority, study),
        "PollStudy": create_request(authority, study),
        "StartStudy": one,
        "DeleteStudy": one,
        "ArchiveStudy": one,
        "AbortStudy": operator_pb2.AbortStudyRequest(study="nobody's", reason="no"),
        "PauseStudy": one,
        "ResumeStudy": one,
        "ForgiveSilo": operator_pb2.ForgiveSiloRequest(study="nobody's", silo="nobody"),
        "Drain": operator_pb2.DrainRequest(undo=True),
        "GetAuditLog": operator_pb2.GetAuditLogRequest(),
        "LinkConsole": operator_pb2.LinkConsoleRequest(),
        "GetResults": one,
        "GetStudyStatus": one,
        "ListStudies": operator_pb2.ListStudiesRequest(),
    }


def bombard(caller, service, honest, number, *, random, ends):
    """Send so many changed requests of every method of a service."""
    for method in service.methods:
        call = caller.channel.stream_stream(f"/{service.full_name}/{method.name}")
        for _ in range(number):
            given = honest[method.name]
            stream = given if isinstance(given, list) else [given]
            data = [mutated(one, random) if random.random() < 0.8 else one.SerializeToString() for one in stream]
            try:
                list(call(iter(data), timeout=SECONDS))
                ends["done"] += 1
            except grpc.RpcError as error:
                ends[error.code()] += 1


@pytest.mark.parametrize("number", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_whatever_members_send_the_coordinator_goes_on(server, authority, make_scene, number):
    victim, honest = make_scene(), make_scene()
    silo, random, ends = next(iter(victim.silos.values())), Random(number), collections.Counter()  # noqa: S311
    place = silo.poll().place
    operator = Caller(server.port, authority.credential("operator", f"hostile-{number}"))
    requests = requests_of(silo, place, b"greeting" * 100)
    with capture_logs() as said:
        bombard(silo, SILOS, requests, number, random=random, ends=ends)
        bombard(operator, SILOS, requests, 1, random=random, ends=ends)
        asked = operator_requests(tiny_study(name="hostile"), authority)
        bombard(operator, OPERATORS, asked, number, random=random, ends=ends)
        bombard(silo, OPERATORS, asked, 1, random=random, ends=ends)
    server.engine.drain(undo=True)  # an operator may have asked for it
    operator.close()
    assert ends["done"] > 0
    assert ends[grpc.StatusCode.INVALID_ARGUMENT] > 0
    failed = [line for line in said if line["event"] == "failed"]
    assert failed == [], "nothing that is sent is a fault of the coordinator"
    assert server.engine.passes()
    honest.play(lambda status: status.round == 1)


def test_a_changed_message_is_changed():
    """Else the tests above would show nothing."""
    honest = operator_pb2.CreateStudyRequest(canonical=b"{}" * 50)
    changed = {mutated(honest, Random(seed)) for seed in range(50)}  # noqa: S311
    assert len(changed - {honest.SerializeToString()}) > 5
