"""Attacks by gRPC's own client: messages, and calls that wait."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench.attacks.hostile import wire
from bench.attacks.hostile.target import Callers, Target, by_calls
from crypto.pki.certificates import Credential
from protos import codec
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, MAX_CONTENT, MAX_MESSAGE, Place, Tensor, UploadHeader
from protos.v1 import common_pb2, operator_pb2, silo_pb2

BEAT = silo_pb2.HeartbeatRequest()
MEBI = 1 << 20


# --- what was found -------------------------------------------------------------------------------------------------
@by_calls
def long_explanation(target: Target, callers: Callers) -> Iterator[None]:
    """A refusal with four megabytes of reasons."""
    text = "x" * (MAX_MESSAGE - 500)
    while True:
        request = silo_pb2.AnswerRequest(place=target.place(), session="s", refusal="clip", explanation=text)
        callers.go(callers.silo.Answer, request)
        yield


@by_calls
def markup_and_escapes(target: Target, callers: Callers) -> Iterator[None]:
    """Text for the operator's terminal."""
    while True:
        for text in ("[/red]", "\x1b]0;owned\x07", "\u202e", "\x9b2J"):
            request = silo_pb2.AnswerRequest(place=target.place(), session="s", refusal="clip", explanation=text)
            callers.go(callers.silo.Answer, request)
            yield


@by_calls
def long_dispute(target: Target, callers: Callers) -> Iterator[None]:
    """A dispute with four megabytes of reasons."""
    request = silo_pb2.ConfirmRequest(place=target.place(), task=silo_pb2.TASK_OPEN, dispute="x" * (MAX_MESSAGE - 500))
    while True:
        callers.go(callers.silo.Confirm, request)
        yield


@by_calls
def lone_disputes(target: Target, callers: Callers) -> Iterator[None]:
    """Disputes of every task, again and again."""
    while True:
        for task in silo_pb2.Task.keys()[2:]:
            request = silo_pb2.ConfirmRequest(place=target.place(), task=task, dispute="data", explanation="no")
            callers.go(callers.silo.Confirm, request)
            yield


@by_calls
def another_s_certificate(target: Target, callers: Callers) -> Iterator[None]:
    """Takes part with the certificate of another silo."""
    pem = (target.other / "certificate.pem").read_bytes()
    member = {"certificate_pem": pem, "public_key": b"k" * 32, "kem_key": b"k" * 1184, "signature": b"s"}
    request = silo_pb2.AnswerRequest(place=target.place(), session="s", member={"silo": target.folder.name, **member})
    while True:
        callers.go(callers.silo.Answer, request)
        yield


@by_calls
def holds_for_statements(_: Target, callers: Callers) -> Iterator[None]:
    """`Witness` calls that wait."""
    while True:
        callers.go(callers.silo.Witness, silo_pb2.WitnessRequest(hold_seconds=1e9))
        yield


@by_calls
def holds_for_work(_: Target, callers: Callers) -> Iterator[None]:
    """`Poll` calls that wait."""
    while True:
        callers.go(callers.silo.Poll, silo_pb2.PollRequest(session="s", hold_seconds=float("inf")))
        yield


# --- messages -------------------------------------------------------------------------------------------------------
@by_calls
def malformed(_: Target, callers: Callers) -> Iterator[None]:
    """Bytes that are no message of any kind."""
    call = callers.raw(f"{wire.SILO_SERVICE}Confirm")
    while True:
        callers.go(call, b"\xff" * 1000)
        yield


@by_calls
def too_large(_: Target, callers: Callers) -> Iterator[None]:
    """Messages above the limit."""
    call, large = callers.raw(f"{wire.SILO_SERVICE}Confirm"), bytes(MAX_MESSAGE + 1)
    while True:
        callers.go(call, large)
        yield


@by_calls
def deep_json(target: Target, callers: Callers) -> Iterator[None]:
    """Statements and publications that are nested half a million times."""
    deep = b"[" * (MEBI // 2 - 10)
    signed = {"certificate_pem": (target.folder / "certificate.pem").read_bytes(), "signature": b"s"}
    statement = silo_pb2.SignedStatement(statement=deep, **signed)
    given = silo_pb2.Countersignature(stated=statement, **signed)
    publish = silo_pb2.ConfirmRequest(place=target.place(), task=silo_pb2.TASK_OPEN, publication=deep, signature=b"s")
    publish.tensor = common_pb2.TENSOR_METRICS
    while True:
        callers.go(callers.silo.Countersign, silo_pb2.CountersignRequest(place=target.place(), statement=statement))
        callers.go(callers.silo.Witness, silo_pb2.WitnessRequest(given=given))
        callers.go(callers.silo.Confirm, publish)
        yield


@by_calls
def chunk_lists(target: Target, callers: Callers) -> Iterator[None]:
    """Uploads that announce eight gibibytes, with the list of all their chunks."""
    hashes = bytes(32 * (MAX_CONTENT // MAX_CHUNK))
    digest = ChunkList(MAX_CONTENT, hashes).digest
    place = Place(target.study, 0, 1)
    header = UploadHeader(place, "ckks", Tensor.COUNTS, target.folder.name, 1 << 20, MAX_CONTENT, digest)
    credential = Credential.load(*(target.folder / f"{n}.pem" for n in ("certificate", "key", "authority")))
    signature = credential.sign(header.canonical())
    first = silo_pb2.UploadChunk(header=codec.to_wire(header), signature=signature, hashes=hashes)
    while True:
        callers.go(callers.silo.Upload, iter((first,)))
        yield


@by_calls
def other_places(_: Target, callers: Callers) -> Iterator[None]:
    """Work of studies that do not exist, with names that are none."""
    while True:
        place = codec.to_wire(Place(os.urandom(32).hex(), 1, 1))
        callers.go(callers.silo.Answer, silo_pb2.AnswerRequest(place=place, session="s", refusal="no"))
        callers.go(callers.silo.GetStudy, silo_pb2.GetStudyRequest(study="../../etc/passwd\x00" * 1000))
        header = silo_pb2.UploadHeader(place=place, kind="keys", silo="../x", size=1, sha256="a" * 64)
        callers.go(callers.silo.UploadStatus, silo_pb2.UploadStatusRequest(header=header))
        yield


@by_calls
def operators_methods(_: Target, callers: Callers) -> Iterator[None]:
    """Commands that only an operator may give."""
    while True:
        callers.go(callers.operator.AbortStudy, operator_pb2.AbortStudyRequest(study="abuse", reason="\x1b[2J"))
        callers.go(callers.operator.CreateStudy, operator_pb2.CreateStudyRequest(canonical=b"{" * MEBI))
        yield


@by_calls
def unknown_methods(_: Target, callers: Callers) -> Iterator[None]:
    """Methods that nobody has."""
    while True:
        callers.go(callers.raw(f"/nobody.{os.urandom(4).hex()}/Knows"), b"x" * 1000)
        yield


@by_calls
def heartbeats(_: Target, callers: Callers) -> Iterator[None]:
    """Calls that are allowed, as many as go."""
    while True:
        callers.go(callers.silo.Heartbeat, BEAT)
        yield


@by_calls
def new_sessions(_: Target, callers: Callers) -> Iterator[None]:
    """An agent that says every time that it was restarted."""
    while True:
        callers.go(callers.silo.Poll, silo_pb2.PollRequest(session=os.urandom(16).hex()))
        yield


@by_calls
def cancelled_calls(_: Target, callers: Callers) -> Iterator[None]:
    """Calls that are given up at once, by gRPC's own client."""
    while True:
        callers.go(callers.silo.Poll, silo_pb2.PollRequest(session="s", hold_seconds=20), cancel=True)
        callers.go(callers.silo.Witness, silo_pb2.WitnessRequest(hold_seconds=20), cancel=True)
        yield


@by_calls
def much_metadata(_: Target, callers: Callers) -> Iterator[None]:
    """Calls of gRPC's own client with ten kilobytes of metadata."""
    metadata = tuple((f"x-{number}", "y" * 1000) for number in range(10))
    while True:
        callers.go(callers.silo.Heartbeat, BEAT, metadata=metadata)
        yield


@by_calls
def health_checks(_: Target, callers: Callers) -> Iterator[None]:
    """Questions whether the coordinator is well."""
    call = callers.raw("/grpc.health.v1.Health/Check")
    while True:
        callers.go(call, b"")
        yield
