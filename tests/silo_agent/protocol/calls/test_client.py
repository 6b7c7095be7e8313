import errno
import socket
import threading
import time
from concurrent import futures
from dataclasses import replace

import grpc
import numpy as np
import pytest

from crypto.audit_chain import UNKNOWN, AuditStatement, Followed
from crypto.pki.certificates import Trust
from crypto.pki.identity import Role
from crypto.pki.tls import server_credentials
from protos import codec
from protos.audit import AuditTrail, CosignedAudit
from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import (
    EPOCH_KEY,
    MAX_CHUNK,
    MAX_MESSAGE,
    PROTOCOL,
    Answer,
    AuthorSignature,
    Confirm,
    Member,
    Part,
    Place,
    Signature,
    StudyText,
    Tensor,
    UploadHeader,
    Work,
)
from protos.steps import SUM, Note, Task
from protos.v1 import silo_pb2, silo_pb2_grpc
from silo_agent.protocol.calls import client as client_module
from silo_agent.protocol.calls.client import (
    MAX_COSIGNERS,
    AskedToStop,
    CallRefused,
    Client,
    ContentError,
    Heartbeat,
    WentBackRefused,
    greet,
    remembered,
)
from support.certificates import load
from support.contents import digest_of, listed
from support.epochs import fresh_epochs

PLACE = Place("5" * 64, 1, 2)
SIGNED = SignedCheckpoint(b"statement", b"certificate", b"signature")
WORD = CosignedCheckpoint(SIGNED, b"other", b"signature")
CONTENT = np.random.default_rng(1).bytes(2_304_000)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
LONG = 600.0
"""Seconds that nobody waits for: a hold, and a pause, that has to end before."""


class Fake(silo_pb2_grpc.SiloServiceServicer):
    """Answers as scripted: `faults` are codes to abort the next calls with, by method."""

    def __init__(self):
        self.faults = {}
        self.epochs = []
        """What its answers say, one after another; the last one stays."""
        self.calls = []
        self.seen = []
        self.content = CONTENT
        self.sent = 0
        self.stored = b""
        self.complete = False
        self.break_upload_after = None
        self.break_download_after = None
        self.given = 0
        self.listed = None
        self.offsets = lambda offset: offset
        self.release = threading.Event()
        self.hold = False
        self.remembered = 0
        self.ahead = None
        self.peer_signed = self.handed = None
        self.work = Work(Task.WAIT)

    def _begin(self, name, context, request=None):
        self.calls.append(name)
        self.seen.append(request)
        self.peer = context.auth_context()["x509_pem_cert"][0]
        if self.epochs:
            epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
            context.send_initial_metadata(((EPOCH_KEY, str(epoch)),))
        if self.faults.get(name):
            context.abort(self.faults[name].pop(0), f"{name} is not to be had")

    def Join(self, request, context):
        self._begin("Join", context, request)
        clock = time.time() + self.ahead if self.ahead is not None else 0.0
        return silo_pb2.JoinReply(coordinator_version="7", time=clock)

    def GetStudy(self, request, context):
        self._begin("GetStudy", context, request)
        return codec.to_wire(StudyText(b"{}", AuthorSignature(b"pem", b"signature")))

    def Poll(self, request, context):
        self._begin("Poll", context, request)
        if self.hold:
            self.release.wait(LONG)
        return codec.to_wire(self.work)

    def Answer(self, request, context):
        self._begin("Answer", context, codec.from_wire(Answer, request))
        return silo_pb2.AnswerReply()

    def Confirm(self, request, context):
        self._begin("Confirm", context, codec.from_wire(Confirm, request))
        return silo_pb2.ConfirmReply()

    def Heartbeat(self, request, context):
        self._begin("Heartbeat", context, request)
        return silo_pb2.HeartbeatReply(audit_entries=2, audit_head=b"2" * 32)

    def FollowAudit(self, request, context):
        self._begin("FollowAudit", context, Followed(request.entries, request.head))
        return silo_pb2.FollowAuditReply(entries=7, digests=b"7" * 64)

    def CosignAudit(self, request, context):
        self._begin("CosignAudit", context, codec.from_wire(CosignedAudit, request))
        return silo_pb2.CosignAuditReply()

    def LatestCountersignatures(self, request, context):
        self._begin("LatestCountersignatures", context, request)
        yield from [codec.to_wire(WORD)] * self.remembered

    def Countersign(self, request, context):
        self._begin("Cosign", context, request)
        if self.hold:
            self.release.wait(LONG)
        return codec.to_wire(Cosigned(WORD, self.peer_signed))

    def Witness(self, request, context):
        self._begin("Witness", context, request)
        return silo_pb2.WitnessReply() if self.handed is None else codec.to_wire(self.handed)

    def UploadStatus(self, request, context):
        self._begin("UploadStatus", context, codec.from_wire(UploadHeader, request.header))
        return silo_pb2.UploadStatusReply(offset=len(self.stored), complete=self.complete)

    def Upload(self, chunks, context):
        first = next(chunks)
        self._begin("Upload", context, first)
        listing = ChunkList(first.header.size, first.hashes)
        listing.require(first.header.sha256)
        for chunk in chunks:
            assert chunk.offset == len(self.stored)
            listing.check(chunk.offset, chunk.data)
            self.stored += chunk.data
            self.sent += len(chunk.data)
            if self.break_upload_after is not None and len(self.stored) >= self.break_upload_after:
                self.break_upload_after = None
                context.abort(UNAVAILABLE, "gone")
        return silo_pb2.UploadReply()

    def Download(self, request, context):
        self._begin("Download", context, request)
        offset = request.offset
        for _ in request.silos:
            hashes = listed(CONTENT).hashes if self.listed is None else self.listed or None
            while hashes or offset < len(self.content):
                data = self.content[offset : offset + MAX_CHUNK]
                yield silo_pb2.DownloadChunk(offset=self.offsets(offset), data=data, hashes=hashes)
                offset, hashes = offset + len(data), None
                self.given += len(data)
                if self.break_download_after is not None and self.given >= self.break_download_after:
                    self.break_download_after = None
                    context.abort(UNAVAILABLE, "gone")
            offset = 0


class Ward:
    """The fake's server, and clients of it."""

    def __init__(self, credential, coordinator):
        self.fake = Fake()
        self.credential, self.server = credential, grpc.server(futures.ThreadPoolExecutor(4))
        silo_pb2_grpc.add_SiloServiceServicer_to_server(self.fake, self.server)
        self.port = self.server.add_secure_port("localhost:0", server_credentials(coordinator))
        self.server.start()
        self.stop = threading.Event()
        self.connected = []
        self.client = self.connect()

    def connect(self, port=None, credential=None, proxy=None):
        address = f"localhost:{port or self.port}"
        return Client(
            [address],
            credential or self.credential,
            "s" * 32,
            self.stop,
            self.connected.append,
            epochs=fresh_epochs(),
            proxy=proxy,
        )

    def close(self):
        self.fake.release.set()
        self.client.close()
        self.server.stop(None).wait()


@pytest.fixture
def ward(credentials, coordinator, monkeypatch):
    monkeypatch.setattr(client_module, "PAUSES", (0.01, 0.02))
    ward = Ward(credentials["north"], coordinator)
    yield ward
    ward.close()


def free_port():
    """A port of this machine at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return taken.getsockname()[1]


def test_a_proxy_carries_the_connection_and_sees_where_it_goes_alone(ward, proxy):
    client = ward.connect(proxy=f"http://127.0.0.1:{proxy.server_address[1]}")
    try:
        assert client.join("0.7.0").coordinator_version == ward.client.join("0.7.0").coordinator_version
    finally:
        client.close()
    assert {line.split()[:2][0] for line in proxy.asked} == {"CONNECT"}
    assert {line.split()[1].rpartition(":")[2] for line in proxy.asked} == {str(ward.port)}


def stops(call):
    """`AskedToStop`, long before the fake coordinator's hold or the pause between two tries is over."""
    with futures.ThreadPoolExecutor(1) as pool, pytest.raises(AskedToStop):
        pool.submit(call).result(timeout=LONG / 2)


SILOS = ("north", "south")
ADDED = {"participants": SILOS, "survivors": SILOS}


def part(kind=SUM, silo="", content=CONTENT):
    return Part(str(kind), silo, len(content), digest_of(content))


def header(content=CONTENT):
    return UploadHeader(PLACE, "ckks", Tensor.HEADS, "north", 9, len(content), digest_of(content))


# --- who speaks to whom -----------------------------------------------------------------------------------------------
def test_calls_carry_the_silos_certificate(ward, authority):
    assert ward.client.join("1.2").coordinator_version == "7"
    assert Trust(authority.pem).identify(ward.fake.peer, role=Role.SILO).name == "north"
    request = ward.fake.seen[0]
    assert (request.protocol, request.agent_version, request.session) == (PROTOCOL, "1.2", "s" * 32)


def test_a_coordinator_of_another_authority_is_never_spoken_to(ward, foreign_authority):
    stranger = ward.connect(credential=load(foreign_authority.credential("silo", "north")))
    threading.Timer(0.5, ward.stop.set).start()
    with pytest.raises(AskedToStop):
        stranger.join("1")
    assert ward.fake.calls == []
    assert ward.connected[0] is False
    stranger.close()


def test_every_message_arrives_as_it_was_said(ward):
    member = Member("north", b"pem", bytes(32), bytes(1184), b"signature")
    answer = Answer(PLACE, "s" * 32, member=member, model="d")
    confirm = Confirm(PLACE, Task.OPEN, Tensor.HEADS, dispute="sum", explanation="why")
    ward.client.answer(answer)
    ward.client.confirm(confirm)
    assert ward.fake.seen == [answer, confirm]
    assert ward.client.study("5" * 64) == StudyText(b"{}", AuthorSignature(b"pem", b"signature"))
    assert ward.fake.seen[2].study == "5" * 64
    for work in (
        Work(Task.OPEN, PLACE, Tensor.HEADS, (member,), parts=(part(), part(Note.REVEAL, "south")), **ADDED),
        Work(Task.REVEAL, PLACE, Tensor.HEADS, (member,), signatures=(Signature("south", b"signed"),), **ADDED),
    ):
        ward.fake.work = work
        assert ward.client.poll() == work


# --- cosigning ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ahead", [0.0, 400.0, -400.0])
def test_a_greeting_tells_how_far_the_clocks_are_apart(ward, ahead):
    ward.fake.ahead = ahead
    found = greet([f"localhost:{ward.port}"], ward.credential, "1", LONG)
    assert found.version == "7"
    assert abs(found.ahead - ahead) <= found.within + 1e-3
    assert {request.session for request in ward.fake.seen} == {""}


def test_a_coordinator_that_tells_no_time_is_greeted_all_the_same(ward):
    found = greet([f"localhost:{ward.port}"], ward.credential, "1", LONG)
    assert (found.ahead, found.within) == (None, None)


def test_a_refused_greeting_says_why(ward):
    ward.fake.faults["Join"] = [grpc.StatusCode.PERMISSION_DENIED]
    with pytest.raises(CallRefused, match=r"^Join is not to be had"):
        greet([f"localhost:{ward.port}"], ward.credential, "1", LONG)


def test_a_statement_carries_the_silos_signature(ward, authority):
    made = ward.client.signed(b"statement")
    assert Trust(authority.pem).verify(made.certificate_pem, b"statement", made.signature).name == "north"


def test_what_others_remember_is_asked_for_without_a_session(ward):
    ward.fake.remembered = 2
    assert remembered([f"localhost:{ward.port}"], ward.credential, LONG) == (WORD, WORD)
    ward.fake.faults["LatestCountersignatures"] = [grpc.StatusCode.PERMISSION_DENIED]
    with pytest.raises(CallRefused, match="is not to be had"):
        remembered([f"localhost:{ward.port}"], ward.credential, LONG)
    with pytest.raises(CallRefused):
        remembered(["localhost:1"], ward.credential, 0.5)


def test_what_others_remember_comes_in_a_stream_that_ends(ward):
    ward.fake.remembered = 2
    assert ward.client.cosigned() == (WORD, WORD)
    ward.fake.remembered = MAX_COSIGNERS + 5
    assert len(ward.client.cosigned()) == MAX_COSIGNERS


@pytest.mark.parametrize("peer", [None, "peer"])
def test_a_statement_brings_cosignatures(ward, peer):
    ward.fake.peer_signed = peer and replace(WORD, signature=b"the peer's")
    mine = replace(SIGNED, signature=b"mine")
    assert ward.client.cosign(PLACE, mine) == Cosigned(WORD, ward.fake.peer_signed)
    request = ward.fake.seen[0]
    assert codec.from_wire(Place, request.place) == PLACE
    assert codec.from_wire(SignedCheckpoint, request.statement) == mine
    assert request.hold_seconds > 0
    assert not request.HasField("evidence")
    ward.client.cosign(PLACE, mine, WORD)
    assert codec.from_wire(CosignedCheckpoint, ward.fake.seen[1].evidence) == WORD


def test_a_ledger_that_went_back_is_refused_by_a_name_of_its_own(ward):
    ward.fake.faults["Cosign"] = [grpc.StatusCode.DATA_LOSS, grpc.StatusCode.FAILED_PRECONDITION]
    with pytest.raises(WentBackRefused):
        ward.client.cosign(PLACE, SIGNED)
    with pytest.raises(CallRefused) as refused:
        ward.client.cosign(PLACE, SIGNED)
    assert not isinstance(refused.value, WentBackRefused)


@pytest.mark.parametrize("evidence", [None, WORD])
def test_a_witness_hands_in_and_is_handed(ward, evidence):
    assert ward.client.witness(None) is None
    ward.fake.handed = Handed(SIGNED, evidence)
    assert ward.client.witness(replace(WORD, signature=b"given")) == Handed(SIGNED, evidence)
    first, second = ward.fake.seen
    assert not first.HasField("given")
    assert second.given.signature == b"given"


def test_who_waits_for_a_cosignature_can_be_stopped(ward):
    ward.fake.hold = True
    threading.Timer(0.2, ward.stop.set).start()
    stops(lambda: ward.client.cosign(PLACE, SIGNED))


# --- patience ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("code", [UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN])
def test_a_call_is_repeated_while_the_coordinator_is_away(ward, code):
    ward.fake.faults["Poll"] = [code] * 4
    assert ward.client.poll() == Work(Task.WAIT)
    assert ward.fake.calls == ["Poll"] * 5
    assert ward.connected == [False] * 4 + [True]


@pytest.mark.parametrize("others", [1, 3])
def test_the_machine_that_is_active_is_found_among_those_that_stand_by(ward, others):
    closed = [f"localhost:{free_port()}" for _ in range(others)]
    ward.client.close()
    ward.client = Client(
        [*closed, f"localhost:{ward.port}"],
        ward.credential,
        "s" * 32,
        ward.stop,
        ward.connected.append,
        epochs=fresh_epochs(),
    )
    assert ward.client.poll() == Work(Task.WAIT)
    ward.client.join("1")
    assert ward.client.address == f"localhost:{ward.port}"
    assert ward.connected == [False] * others + [True, True], "each is tried once, and the active one stays"


def test_a_machine_is_left_only_if_it_does_not_answer(ward):
    ward.client._addresses.append(f"localhost:{free_port()}")
    ward.fake.faults["Poll"] = [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED]
    assert ward.client.poll() == Work(Task.WAIT)
    assert ward.fake.calls == ["Poll"] * 3


@pytest.mark.parametrize("call", ["poll", "join", "cosigned", "heartbeat"])
def test_an_answer_of_a_coordinator_that_was_replaced_counts_as_none(ward, call):
    ward.fake.epochs = [5]
    ward.client.join("1")
    ward.fake.epochs, ward.connected[:] = [4, 4, 6], []
    ward.fake.faults["Poll"] = [grpc.StatusCode.NOT_FOUND]
    if call == "heartbeat":
        with pytest.raises(grpc.RpcError, match="another one has replaced: it says epoch 4, and 5 is known"):
            ward.client.heartbeat()
        return
    {"poll": ward.client.poll, "join": lambda: ward.client.join("1"), "cosigned": ward.client.cosigned}[call]()
    assert ward.connected == [False, False, True]
    assert ward.client._epochs.highest == 6


def test_a_coordinator_that_comes_back_is_found_again(ward, coordinator):
    ward.client.join("1")
    ward.server.stop(None).wait()
    done = []
    waiting = threading.Thread(target=lambda: done.append(ward.client.poll()))
    waiting.start()
    end = time.monotonic() + LONG
    while ward.connected[-1:] != [False]:  # until it has failed once
        assert time.monotonic() < end
        time.sleep(0.01)
    assert waiting.is_alive()
    ward.server = grpc.server(futures.ThreadPoolExecutor(4))
    silo_pb2_grpc.add_SiloServiceServicer_to_server(ward.fake, ward.server)
    ward.server.add_secure_port(f"localhost:{ward.port}", server_credentials(coordinator))
    ward.server.start()
    waiting.join(300)
    assert done == [Work(Task.WAIT)]


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED])
def test_a_refusal_is_not_repeated(ward, code):
    ward.fake.faults.update(Answer=[code], Upload=[code], Poll=[code])
    for call, name in (
        (lambda: ward.client.answer(Answer(PLACE, "s", refusal="clip")), "Answer"),
        (ward.client.poll, "Poll"),
    ):
        with pytest.raises(CallRefused, match=f"^{name} is not to be had") as refused:
            call()
        assert refused.value.code is code
    assert ward.fake.calls == ["Answer", "Poll"]


# --- uploads ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sealed"
    path.write_bytes(CONTENT)
    return path


def upload(ward, file):
    ward.client.upload(header(), file, ChunkList.of(file))


def test_an_upload_arrives_whole_and_signed(ward, file, authority):
    upload(ward, file)
    assert ward.fake.stored == CONTENT
    first = ward.fake.seen[1]
    assert first.hashes == listed(CONTENT).hashes
    assert codec.from_wire(UploadHeader, first.header) == header()
    signer = Trust(authority.pem).verify(ward.fake.peer, header().canonical(), first.signature, role=Role.SILO)
    assert signer.name == "north"


def test_an_upload_that_breaks_goes_on_where_the_durable_bytes_end(ward, file):
    ward.fake.break_upload_after = MAX_CHUNK
    upload(ward, file)
    assert ward.fake.stored == CONTENT
    assert ward.fake.sent == len(CONTENT), "bytes were sent twice"
    assert ward.fake.calls == ["UploadStatus", "Upload"] * 2


def test_an_upload_whose_answer_was_lost_is_not_sent_again(ward, file):
    ward.fake.stored, ward.fake.complete = CONTENT, True
    upload(ward, file)
    assert ward.fake.sent == 0


def test_an_upload_goes_on_from_any_chunk(ward, file):
    ward.fake.stored = CONTENT[: 5 * MAX_CHUNK]
    upload(ward, file)
    assert (ward.fake.stored, ward.fake.sent) == (CONTENT, len(CONTENT) - 5 * MAX_CHUNK)


def test_a_coordinator_that_lost_chunks_is_sent_them_again(ward, file):
    """Between its two words it finds that its disk has altered what it kept."""
    ward.fake.stored = CONTENT[: 5 * MAX_CHUNK]
    ward.fake.faults["Upload"] = [grpc.StatusCode.ABORTED]
    begin = ward.fake._begin

    def losing(name, context, request=None):
        if name == "Upload" and ward.fake.faults["Upload"]:
            ward.fake.stored = CONTENT[: 2 * MAX_CHUNK]
        begin(name, context, request)

    ward.fake._begin = losing
    upload(ward, file)
    assert (ward.fake.stored, ward.fake.sent) == (CONTENT, len(CONTENT) - 2 * MAX_CHUNK)


def test_a_refused_upload_is_a_refusal(ward, file):
    ward.fake.faults["Upload"] = [grpc.StatusCode.FAILED_PRECONDITION]
    with pytest.raises(CallRefused):
        upload(ward, file)


# --- downloads --------------------------------------------------------------------------------------------------------
def test_a_download_arrives_whole_in_place_of_what_lay_there(ward, tmp_path):
    target = tmp_path / "inbox" / "sum"
    target.parent.mkdir()
    target.write_bytes(b"left from before")
    ward.client.download(PLACE, Tensor.HEADS, [(part(), target)])
    assert target.read_bytes() == CONTENT
    request = ward.fake.seen[0]
    assert codec.from_wire(Place, request.place) == PLACE
    assert (codec.tensor_from_wire(request.tensor), request.kind, request.offset) == (Tensor.HEADS, "sum", 0)


def test_a_download_that_breaks_goes_on_where_it_was(ward, tmp_path):
    ward.fake.break_download_after = 4 * MAX_CHUNK
    ward.client.download(PLACE, Tensor.HEADS, [(part(), tmp_path / "sum")])
    assert (tmp_path / "sum").read_bytes() == CONTENT
    assert [request.offset for request in ward.fake.seen] == [0, 4 * MAX_CHUNK]


REVEALS = [Part("reveal", silo, len(CONTENT), listed(CONTENT).digest) for silo in ("east", "north", "south")]


@pytest.mark.parametrize("breaks", [None, len(CONTENT) + 2 * MAX_CHUNK, 2 * len(CONTENT), 3 * len(CONTENT)])
def test_what_all_have_sent_comes_in_one_stream_and_goes_on_where_it_broke(ward, tmp_path, breaks):
    ward.fake.break_download_after = breaks
    ward.client.download(PLACE, Tensor.HEADS, [(one, tmp_path / one.silo) for one in REVEALS])
    assert all((tmp_path / one.silo).read_bytes() == CONTENT for one in REVEALS)
    asked = [(list(request.silos), request.offset) for request in ward.fake.seen]
    assert asked[0] == (["east", "north", "south"], 0)
    again = {
        len(CONTENT) + 2 * MAX_CHUNK: [(["north", "south"], 2 * MAX_CHUNK)],
        2 * len(CONTENT): [(["south"], 0)],
    }
    assert asked[1:] == again.get(breaks, [])


def test_if_one_of_them_is_not_what_was_announced_nothing_of_it_is_left(ward, tmp_path):
    other = replace(REVEALS[1], sha256="0" * 64)
    with pytest.raises(ContentError, match="the list is not that of the announced content"):
        ward.client.download(
            PLACE, Tensor.HEADS, [(one, tmp_path / one.silo) for one in (REVEALS[0], other, REVEALS[2])]
        )
    assert [path.name for path in tmp_path.iterdir()] == ["east"]


def test_nothing_is_asked_for_where_nothing_is_wanted(ward):
    ward.client.download(PLACE, None, [])
    assert ward.fake.calls == []


def test_more_than_was_announced_is_refused(ward, tmp_path):
    whole = Part("sum", "", MAX_CHUNK, listed(CONTENT[:MAX_CHUNK]).digest)
    ward.fake.listed, ward.fake.content = listed(CONTENT[:MAX_CHUNK]).hashes, CONTENT[:MAX_CHUNK] * 2
    with pytest.raises(ContentError, match="sends more than the sum that it announced"):
        ward.client.download(PLACE, Tensor.HEADS, [(whole, tmp_path / "sum")])


THREE = ("east", "north", "south")


@pytest.mark.parametrize("breaks", [None, len(CONTENT) + 2 * MAX_CHUNK, 2 * len(CONTENT), 3 * len(CONTENT)])
def test_notes_come_in_one_stream_by_owner_and_those_that_are_here_are_not_asked_for_again(ward, breaks):
    ward.fake.break_download_after = breaks
    limit = len(CONTENT)
    assert ward.client.notes(PLACE, Note.SHARES, THREE, ("west",), limit) == dict.fromkeys(THREE, CONTENT)
    asked = [(list(one.silos), list(one.about), one.offset, one.kind) for one in ward.fake.seen]
    again = {len(CONTENT) + 2 * MAX_CHUNK: THREE[1:], 2 * len(CONTENT): THREE[2:]}.get(breaks)
    assert asked == [(list(left), ["west"], 0, "shares") for left in (THREE, again) if left]
    assert codec.from_wire(Place, ward.fake.seen[0].place) == PLACE
    assert ward.client.notes(PLACE, Note.SHARES, (), ("west",), limit) == {}
    assert len(ward.fake.seen) == len(asked), "nothing is asked for where nothing is wanted"


@pytest.mark.parametrize(
    ("content", "listing", "limit", "fault"),
    [
        (CONTENT, None, len(CONTENT) - 1, f"cut, out of order or longer than {len(CONTENT) - 1} bytes"),
        (
            CONTENT[:-1] if len(CONTENT) % MAX_CHUNK == 1 else CONTENT[:MAX_CHUNK],
            None,
            len(CONTENT),
            "cut, out of order",
        ),
        (CONTENT[:MAX_CHUNK], listed(CONTENT[:MAX_CHUNK]).hashes[:31], len(CONTENT), "cut, out of order"),
        (CONTENT, listed(CONTENT[:MAX_CHUNK]).hashes, len(CONTENT), "sends more than the shares that were asked for"),
        (b"", listed(CONTENT).hashes, len(CONTENT), "cut, out of order"),
    ],
    ids=["too long", "too short", "no list", "more", "nothing"],
)
def test_a_note_that_is_cut_or_too_long_is_refused_with_all_of_them(ward, content, listing, limit, fault):
    ward.fake.content, ward.fake.listed = content, listing
    with pytest.raises(ContentError, match=fault):
        ward.client.notes(PLACE, Note.SHARES, ("north",), (), limit)
    assert ward.fake.calls == ["Download"]


def test_a_note_out_of_order_is_refused(ward):
    ward.fake.offsets = lambda offset: offset + MAX_CHUNK * (offset > 0)
    with pytest.raises(ContentError, match="out of order"):
        ward.client.notes(PLACE, Note.SHARES, ("north",), (), len(CONTENT))


def fetched_wrongly(ward, target, fault):
    """A download that is refused by name; nothing is left of it."""
    with pytest.raises(ContentError, match=fault):
        ward.client.download(PLACE, Tensor.HEADS, [(part(), target)])
    assert list(target.parent.iterdir()) == []


COUNT = -(-len(CONTENT) // MAX_CHUNK)


@pytest.mark.parametrize("at", [0, 7, COUNT - 1], ids=["first", "middle", "last"])
def test_an_altered_chunk_is_refused_by_number_and_no_half_file_left(ward, tmp_path, at):
    altered = bytearray(CONTENT)
    altered[at * MAX_CHUNK + 5] ^= 1
    ward.fake.content = bytes(altered)
    fault = f"the sum that the coordinator sends is not what it announced: .* are not chunk {at + 1} of {COUNT}"
    fetched_wrongly(ward, tmp_path / "sum", fault)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (CONTENT + b"1", f"are not chunk {COUNT} of {COUNT}"),
        (CONTENT[:-1], f"are not chunk {COUNT} of {COUNT}"),
        (CONTENT[: 3 * MAX_CHUNK], f"ends at {3 * MAX_CHUNK} of {len(CONTENT)} bytes"),
        (b"", f"ends at 0 of {len(CONTENT)} bytes"),
        (CONTENT[:MAX_CHUNK] + CONTENT, f"are not chunk 2 of {COUNT}"),
    ],
)
def test_a_download_that_is_not_what_was_announced_is_refused(ward, tmp_path, content, fault):
    ward.fake.content = content
    fetched_wrongly(ward, tmp_path / "sum", fault)


def test_a_download_that_never_ends_is_cut_off(ward, tmp_path):
    ward.fake.content = CONTENT[: -(len(CONTENT) % MAX_CHUNK)] * 20
    fetched_wrongly(ward, tmp_path / "sum", f"are not chunk {COUNT} of {COUNT}")


HASHES = listed(CONTENT).hashes


@pytest.mark.parametrize(
    ("hashes", "fault"),
    [
        (HASHES[:-1] + bytes([HASHES[-1] ^ 1]), "the list is not that of the announced content"),
        (b"", "0 bytes do not list the chunks"),
        (HASHES[:-32], "do not list the chunks"),
        (HASHES * 2, "do not list the chunks"),
        (False, "do not list the chunks"),
    ],
    ids=["altered", "empty", "too short", "too long", "absent"],
)
def test_a_list_that_is_not_the_part_s_is_refused_before_anything_is_taken(ward, tmp_path, hashes, fault):
    ward.fake.listed = hashes
    fetched_wrongly(ward, tmp_path / "sum", f"is not what it announced: chunks: .*{fault}")


def test_a_list_above_any_message_is_not_taken(ward, tmp_path):
    ward.fake.listed = bytes(MAX_MESSAGE)
    threading.Timer(0.3, ward.stop.set).start()
    with pytest.raises(AskedToStop):
        ward.client.download(PLACE, Tensor.HEADS, [(part(), tmp_path / "sum")])
    assert list(tmp_path.iterdir()) == []


def test_chunks_out_of_order_are_refused(ward, tmp_path):
    ward.fake.offsets = lambda offset: offset + MAX_CHUNK
    fetched_wrongly(ward, tmp_path / "sum", f"comes out of order: offset {MAX_CHUNK} after 0 bytes")


def test_a_resumed_download_does_not_take_another_content(ward, tmp_path):
    ward.fake.break_download_after = 4 * MAX_CHUNK
    begin = ward.fake._begin

    def changing(name, context, request=None):
        if ward.fake.break_download_after is None:
            ward.fake.content, ward.fake.listed = CONTENT[::-1], listed(CONTENT[::-1]).hashes
        begin(name, context, request)

    ward.fake._begin = changing
    fetched_wrongly(ward, tmp_path / "sum", "the list is not that of the announced content")
    assert len(ward.fake.calls) == 2


def test_a_wish_to_stop_leaves_no_half_file(ward, tmp_path):
    ward.fake.break_download_after = 4 * MAX_CHUNK
    ward.fake.faults["Download"] = []
    begin = ward.fake._begin

    def stopping(name, context, request=None):
        if ward.fake.break_download_after is None:
            ward.stop.set()
            context.abort(UNAVAILABLE, "gone")
        begin(name, context, request)

    ward.fake._begin = stopping
    with pytest.raises(AskedToStop):
        ward.client.download(PLACE, Tensor.HEADS, [(part(), tmp_path / "sum")])
    assert list(tmp_path.iterdir()) == []


class Renewed:
    """A credential whose certificate is renewed at the first call."""

    def __init__(self):
        self.chain_pem = b"old"

    def call(self, code):
        if self.chain_pem == b"old":
            self.chain_pem = b"new"
            raise RefusedCall(code)
        return "answer"


class RefusedCall(grpc.RpcError):
    def __init__(self, code):
        self.code, self.details = lambda: code, lambda: "not known"


@pytest.mark.parametrize("code", sorted(client_module.NOT_KNOWN, key=str))
def test_a_certificate_that_was_renewed_on_the_way_is_shown_anew(ward, monkeypatch, code):
    credential = Renewed()
    monkeypatch.setattr(ward.client, "_credential", credential)
    assert ward.client._patiently(lambda: credential.call(code)) == "answer"
    stays = Renewed()
    with pytest.raises(CallRefused):
        ward.client._patiently(lambda: stays.call(code))


def test_another_refusal_is_one_whatever_was_renewed_meanwhile(ward, monkeypatch):
    credential = Renewed()
    monkeypatch.setattr(ward.client, "_credential", credential)
    with pytest.raises(CallRefused):
        ward.client._patiently(lambda: credential.call(grpc.StatusCode.FAILED_PRECONDITION))


def test_a_coordinator_that_was_left_is_no_connection_until_it_may_be_called(ward, monkeypatch):
    monkeypatch.setattr(client_module, "LEFT_SECONDS", 0.01)
    ward.client.poll()
    ward.connected.clear()
    ward.client.leave("its lists are old")
    threading.Timer(0.1, ward.client.allow).start()
    ward.client.poll()
    assert ward.connected[-1] is True
    assert set(ward.connected[:-1]) == {False}


def test_a_call_whose_connection_is_closed_under_it_is_made_again_and_no_other_fault_is(ward, monkeypatch):
    monkeypatch.setattr(client_module, "LEFT_SECONDS", 0.01)
    faults = [ValueError("Cannot invoke RPC on closed channel!"), ValueError("another")]

    def call():
        raise faults.pop(0)

    with pytest.raises(ValueError, match="another"):
        ward.client._patiently(call)
    assert faults == []


@pytest.mark.parametrize(
    ("code", "details", "says"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "two calls under this certificate", "only one agent runs"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full", "ask the operator to free space"),
        (UNAVAILABLE, "a certificate is waited for", "the address in agent.yaml is right"),
        (UNAVAILABLE, "CERTIFICATE_VERIFY_FAILED", "the TLS handshake fails"),
    ],
)
def test_what_a_hospital_can_do_follows_from_code_and_words(code, details, says):
    assert says in client_module._fix(code, details)


# --- stopping ---------------------------------------------------------------------------------------------------------
def test_a_client_that_was_told_to_stop_calls_nobody(ward):
    ward.stop.set()
    stops(ward.client.poll)
    assert ward.fake.calls == []


def test_a_wait_between_two_tries_ends_when_asked(ward, monkeypatch):
    monkeypatch.setattr(client_module, "PAUSES", (LONG,))
    ward.fake.faults["Poll"] = [UNAVAILABLE] * 9
    threading.Timer(0.3, ward.stop.set).start()
    stops(ward.client.poll)


def test_a_poll_that_the_coordinator_holds_ends_when_asked(ward):
    ward.fake.hold = True
    threading.Timer(0.3, ward.stop.set).start()
    stops(ward.client.poll)


# --- heartbeat --------------------------------------------------------------------------------------------------------
def test_the_heart_beats_through_a_coordinators_absence_until_stopped(ward):
    ward.fake.faults["Heartbeat"] = [UNAVAILABLE]
    heard = []
    heartbeat = Heartbeat(ward.client, 0.02, ward.stop, heard.append)
    assert heartbeat._thread.daemon, "it keeps no process alive that ends"
    heartbeat.start()
    deadline = time.monotonic() + 300
    while ward.fake.calls.count("Heartbeat") < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    ward.stop.set()
    heartbeat._thread.join(300)
    assert not heartbeat._thread.is_alive()
    assert ward.fake.calls.count("Heartbeat") >= 3
    assert set(heard) == {Followed(2, b"2" * 32)}


def test_a_heart_whose_listener_fails_beats_on(ward):
    heard = []

    def fail(latest):
        heard.append(latest)
        raise OSError(errno.ENOSPC, "disk")

    heartbeat = Heartbeat(ward.client, 0.02, ward.stop, fail)
    heartbeat.start()
    deadline = time.monotonic() + 300
    while len(heard) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    ward.stop.set()
    heartbeat._thread.join(300)
    assert len(heard) >= 2


# --- the audit log ----------------------------------------------------------------------------------------------------
def test_the_audit_log_is_asked_for_from_a_head_on_and_signed_with_this_silo_s_key(ward):
    one, other = Followed(5, b"5" * 32), Followed(3, b"3" * 32)
    assert ward.client.audit_trail(one) == AuditTrail(7, b"7" * 64)
    statement = AuditStatement(one, other)
    ward.client.cosign_audit(statement)
    asked, signed = ward.fake.seen[-2:]
    assert asked == one
    assert (signed.silo, signed.entries, signed.head) == ("north", 5, one.head)
    assert (signed.broke_entries, signed.broke_head) == (3, other.head)
    credential = ward.credential
    assert credential.trust.verify(signed.certificate_pem, statement.to_sign(), signed.signature).name == "north"


def test_a_head_that_the_coordinator_does_not_have_is_no_trail_and_any_other_fault_is_one(ward):
    ward.fake.faults["FollowAudit"] = [grpc.StatusCode.FAILED_PRECONDITION, UNAVAILABLE]
    assert ward.client.audit_trail(UNKNOWN) is None
    with pytest.raises(grpc.RpcError):
        ward.client.audit_trail(UNKNOWN)
