"""A coordinator over real mutual TLS that says anything: recorded words of an honest one, most of them changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from random import Random

import grpc
from google.protobuf.message import Message

from crypto.pki.certificates import Credential
from crypto.pki.tls import server_credentials
from protos import codec
from protos.checkpoints import SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, Place, Work, note_slot
from protos.steps import SUM
from protos.v1 import common_pb2, silo_pb2
from support.contents import listed
from support.cosigners import witnessed
from support.local_coordinator import LocalCoordinator
from support.mutating import mutated

SERVICE = silo_pb2.DESCRIPTOR.services_by_name["SiloService"]
_CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]


@dataclass
class HostileCoordinator:
    """Answers one silo's calls. `honest` has the studies, contents and keys that an honest coordinator would have."""

    honest: LocalCoordinator
    credential: Credential
    works: list[Work]
    """What is asked, in any order."""
    random: Random
    polls: int
    """After so many answers to polls, it is honest: it asks `last`, and nothing more."""
    last: Work
    peer: Credential | None = None
    calm: threading.Event = field(default_factory=threading.Event)
    """From then on it is honest."""
    answers: list[silo_pb2.AnswerRequest] = field(default_factory=list)
    """What it was told since then."""
    answered: threading.Event = field(default_factory=threading.Event)
    seen: set[str] = field(default_factory=set)
    changed: int = 0
    """Messages that were changed on their way."""

    def serve(self) -> tuple[grpc.Server, int]:
        """Begin to serve on loopback; returns the server and its port."""
        server = grpc.server(futures.ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((_Raw(self),))
        port = server.add_secure_port("localhost:0", server_credentials(self.credential))
        server.start()
        return server, port

    def reply(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The bytes of every message of an answer."""
        self.seen.add(method)
        first = next(requests, b"")
        for message in self._honest(method, first, requests):
            if self.calm.is_set() or self.random.random() < 0.4:
                yield message.SerializeToString()
            elif self.random.random() < 0.15:
                context.abort(self.random.choice(_CODES), self.random.choice(("", "no", "x" * 3000, "\u202e")))
            else:
                data = mutated(message, self.random)
                self.changed += data != message.SerializeToString()
                yield data

    # --- inside ---------------------------------------------------------------------------------------------------
    def _honest(self, method: str, first: bytes, requests: Iterator[bytes]) -> Iterator[Message]:
        maker: Callable[[bytes, Iterator[bytes]], Iterator[Message]] = getattr(self, f"_{method.lower()}")
        return maker(first, requests)

    def _join(self, *_: object) -> Iterator[Message]:
        yield silo_pb2.JoinReply(protocol=1, coordinator_version="7", max_chunk=MAX_CHUNK, time=time.time())

    def _getstudy(self, first: bytes, _: Iterator[bytes]) -> Iterator[Message]:
        wanted = silo_pb2.GetStudyRequest.FromString(first).study
        yield silo_pb2.GetStudyReply(canonical=self.honest.studies.get(wanted, b"{}"))

    def _poll(self, *_: object) -> Iterator[Message]:
        self.polls -= 1
        if self.polls <= 0:
            self.calm.set()
        if self.calm.is_set():
            time.sleep(0.01)
        yield codec.to_wire(self.last if self.calm.is_set() else self.random.choice(self.works))

    def _answer(self, first: bytes, _: Iterator[bytes]) -> Iterator[Message]:
        said = silo_pb2.AnswerRequest.FromString(first)
        if self.last.place is not None and said.place.study == self.last.place.study:
            self.answers.append(said)
            self.answered.set()
        yield silo_pb2.AnswerReply()

    def _confirm(self, *_: object) -> Iterator[Message]:
        yield silo_pb2.ConfirmReply()

    def _heartbeat(self, *_: object) -> Iterator[Message]:
        random = self.random
        yield silo_pb2.HeartbeatReply(audit_entries=random.randrange(9), audit_head=random.randbytes(32))

    def _followaudit(self, *_: object) -> Iterator[Message]:
        digests = self.random.randbytes(self.random.choice((0, 31, 32, 96)))
        yield silo_pb2.FollowAuditReply(entries=self.random.randrange(9), digests=digests)

    def _nextpoll(self, *_: object) -> Iterator[Message]:
        texts = [b"", b"{}", *self.honest.studies.values()]
        author = common_pb2.AuthorSignature(certificate_pem=self.credential.certificate_pem, signature=b"s")
        yield silo_pb2.GetStudyReply(canonical=self.random.choice(texts), author=author)

    def _answerpoll(self, *_: object) -> Iterator[Message]:
        yield silo_pb2.AnswerPollReply()

    def _cosignaudit(self, *_: object) -> Iterator[Message]:
        yield silo_pb2.CosignAuditReply()

    def _uploadstatus(self, *_: object) -> Iterator[Message]:
        yield silo_pb2.UploadStatusReply(offset=0, complete=False)

    def _upload(self, _: bytes, requests: Iterator[bytes]) -> Iterator[Message]:
        for _chunk in requests:
            pass
        yield silo_pb2.UploadReply()

    def _download(self, asked: bytes, _: Iterator[bytes]) -> Iterator[Message]:
        wanted = silo_pb2.DownloadRequest.FromString(asked)
        place = Place(wanted.place.study, wanted.place.round, wanted.place.attempt)
        tensor = codec.tensor_from_wire(wanted.tensor)
        slot = f"sum-{tensor}" if wanted.kind == SUM else note_slot(wanted.kind, tensor)
        begin = wanted.offset
        for silo in wanted.silos:
            content = self.honest.content.get((place, slot, silo), b"nothing")
            chunks: ChunkList = listed(content)
            first = silo_pb2.DownloadChunk(offset=begin, hashes=chunks.hashes)
            for offset in range(begin, len(content), MAX_CHUNK):
                first.offset, first.data = offset, content[offset : offset + MAX_CHUNK]
                yield first
                first = silo_pb2.DownloadChunk()
            if first.hashes:
                yield first
            begin = 0

    def _countersign(self, first: bytes, _: Iterator[bytes]) -> Iterator[Message]:
        stated = codec.from_wire(SignedCheckpoint, silo_pb2.CountersignRequest.FromString(first).statement)
        reply = silo_pb2.CountersignReply(coordinator=codec.to_wire(witnessed(stated, self.credential)))
        if self.peer is not None:
            reply.peer.CopyFrom(codec.to_wire(witnessed(stated, self.peer)))
        yield reply

    def _latestcountersignatures(self, *_: object) -> Iterator[Message]:
        for client in self.honest.clients.values():
            for _place, stated in getattr(client, "stated", [])[-1:]:
                yield codec.to_wire(witnessed(stated, self.credential))

    def _witness(self, *_: object) -> Iterator[Message]:
        time.sleep(0.01)
        stated = [client.stated[-1][1] for client in self.honest.clients.values() if getattr(client, "stated", [])]
        yield silo_pb2.WitnessReply(statement=codec.to_wire(stated[0]) if stated else None)


class _Raw(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Takes and gives bytes, so that nothing of a message is checked on this side."""

    def __init__(self, hostile: HostileCoordinator) -> None:
        self._hostile = hostile

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method.rpartition("/")[2]
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._hostile.reply(method, requests, context)
        )
