"""The services over real gRPC and mutual TLS: the good way first, then every way to be refused."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from structlog.testing import capture_logs

from coordinator import service
from coordinator.door.callers import certificate_of
from coordinator.door.later import Later
from coordinator.service import WorkReplies
from coordinator.storage.database import LeaseLostError
from coordinator.storage.shortage import DatabaseShortError
from coordinator.storage.spool import SUM_FILE
from crypto.errors import CertificateError
from crypto.pki.certificates import Credential, Trust
from crypto.pki.identity import Role
from crypto.rings.rings import ckks_public
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.dealt.slices import Cutting, Layout
from crypto.secagg.layout import sealed_values
from crypto.secagg.survivors import AttemptRef, roster_digest
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos import chunks, codec
from protos.checkpoints import Cosigned
from protos.messages import (
    MAX_CHUNK,
    MAX_MESSAGE,
    MAX_PUBLICATION,
    PROTOCOL,
    Answer,
    Figure,
    Member,
    Place,
    Publication,
    Tensor,
    Work,
)
from protos.roster import digest_of as digest_of_roster
from protos.steps import Note, Task
from protos.v1 import common_pb2, operator_pb2, silo_pb2
from support.certificates import make_authority
from support.contents import listed
from support.cosigners import cosign, latest, signed, stated, witness, witnessed
from support.moving_clock import LIMIT
from support.people import create_request
from support.silos import Silo, content_size, refused, summed
from support.studies import tiny_document, tiny_study

Code = grpc.StatusCode
COUNT_BYTES = ckks_public.FRAME_BYTES
"""Of the counts of two domains, in one frame."""
CHUNK = 4000
DAY = timedelta(days=1)


def first(scene):
    return next(iter(scene.silos.values()))


@pytest.fixture
def small_chunks(monkeypatch):
    """The counts come in seven of them."""
    monkeypatch.setattr(chunks, "MAX_CHUNK", CHUNK)


def begin_upload(silo, header, content, further=()):
    """A stream of some messages that is held open; returns the call and a function that ends it."""
    go_on = threading.Event()

    def messages():
        yield next(silo.messages(header, content))
        yield from further
        go_on.wait(300)

    return silo.silo.Upload.future(messages()), go_on


def taken(silo, header, content, offset):
    """Resume; the coordinator may not have noticed yet that the stream before is broken, and then says so."""
    try:
        silo.upload(header, content, offset=offset)
    except grpc.RpcError as error:
        if "another stream is filling this slot" not in error.details():
            raise
        return False
    return True


def wait_for(condition, seconds=300.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not reached in time"
        time.sleep(0.01)


# --- the good way ---------------------------------------------------------------------------------------------------
def test_join_tells_versions_and_limits(scene):
    reply = first(scene).join()
    assert (reply.protocol, reply.max_chunk, reply.heartbeat_seconds) == (
        PROTOCOL,
        MAX_CHUNK,
        service.HEARTBEAT_SECONDS,
    )
    assert reply.coordinator_version
    assert abs(reply.time - time.time()) < 600


def test_the_study_comes_as_the_bytes_that_its_digest_names(scene):
    reply = first(scene).silo.GetStudy(silo_pb2.GetStudyRequest(study=scene.study.digest))
    assert reply.canonical == scene.study.canonical()
    assert hashlib.sha256(reply.canonical).hexdigest() == scene.study.digest


def test_a_heartbeat_is_seen(scene):
    silo = first(scene)
    silo.silo.Heartbeat(silo_pb2.HeartbeatRequest(session="one"))
    seen = {member.silo: member.last_seen for member in scene.status().members}
    assert seen[silo.name] == pytest.approx(scene.server.engine._clock(), abs=60)
    assert [last for name, last in seen.items() if name != silo.name] == [0.0, 0.0]


def test_a_study_from_its_offer_to_its_end(scene):
    opened = []

    def over(status):
        if status.phase == "open" and (status.round, status.tensor) not in opened:
            opened.append((status.round, status.tensor))
        return status.state == "finished"

    status = scene.play(over)
    assert opened == [
        (0, Tensor.COUNTS),
        (1, Tensor.HEADS),
        (1, Tensor.ENCODER),
        (2, Tensor.HEADS),
        (3, Tensor.METRICS),
    ]
    models = {silo.model for silo in scene.silos.values()}
    assert len(models) == 1
    uploads = [(u.round, u.tensor, u.silo) for u in status.uploads if u.tensor is not None]
    assert sorted(uploads) == sorted((number, tensor, silo) for number, tensor in opened for silo in scene.silos)
    always = {(number, kind) for number in range(4) for kind in ("shares", "reveal")}
    notes = {(0, "greeting"), (0, "keys"), (1, "heads"), (2, "heads")}
    assert {(u.round, u.kind) for u in status.uploads if u.tensor is None} == always | notes
    for silo in scene.silos.values():
        work = silo.poll()
        assert (work.task, work.outcome, work.why) == (Task.FINISH, "finished", "all rounds are committed")
        silo.do(work)
        assert silo.poll().task is Task.WAIT, "who knows that it is over is not told again"


@pytest.mark.parametrize("tensor", [Tensor.COUNTS, Tensor.ENCODER])
def test_what_is_opened_is_the_sum_of_what_was_sent(scene, tensor):
    place = scene.gathering(tensor)
    sent = [silo.contribution(place, tensor) for silo in scene.silos.values()]
    scene.play(lambda status: status.phase == "open")
    assert first(scene).download(place, "sum", tensor) == summed(plan(scene.study).ring(tensor), sent)


def test_a_poll_waits_for_work_and_not_longer(make_scene):
    scene = make_scene(begin=False)
    silo = first(scene)
    # A coordinator that holds each call as long as it may, 20 s, misses this deadline.
    brief = silo.silo.Poll(silo_pb2.PollRequest(session="one", hold_seconds=0.2), timeout=19)
    assert codec.from_wire(Work, brief).task is Task.WAIT
    waiting = silo.silo.Poll.future(silo_pb2.PollRequest(session="one", hold_seconds=15))
    with pytest.raises(grpc.FutureTimeoutError):
        waiting.result(timeout=0.3)
    scene.start()
    assert codec.from_wire(Work, waiting.result(timeout=300)).task is Task.DECIDE


@pytest.mark.parametrize("hold", [-1.0, math.nan, -math.inf])
def test_a_hold_that_is_no_time_does_not_wait(make_scene, hold):
    silo = first(make_scene(begin=False))
    assert silo.poll(hold=hold).task is Task.WAIT


@pytest.mark.usefixtures("small_chunks")
def test_a_broken_stream_is_resumed_where_the_chunks_end(gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    piece = silo_pb2.UploadChunk(offset=0, data=content[:CHUNK])
    call, go_on = begin_upload(silo, header, content, [piece])
    wait_for(lambda: silo.stored(header) == (CHUNK, False))
    call.cancel()
    go_on.set()

    wait_for(lambda: taken(silo, header, content, CHUNK))
    assert silo.stored(header) == (len(content), True)
    assert silo.poll().task is Task.WAIT


def test_an_upload_whose_reply_was_lost_is_sent_again_and_counted_once(scene):
    silo, place = first(scene), scene.gathering()
    content = silo.contribution(place, Tensor.COUNTS)
    header = silo.header(place, content, Tensor.COUNTS)
    for _ in range(3):
        silo.upload(header, content)
    kinds = [u.kind for u in scene.status().uploads]
    assert kinds == [*["greeting"] * 3, "keys", *["shares"] * 3, "ckks"], "one contribution"
    assert silo.name not in scene.status().waiting_for


@pytest.mark.usefixtures("small_chunks")
def test_a_download_is_resumed(scene):
    place = scene.gathering()
    scene.play(lambda status: status.phase == "open")
    silo = first(scene)
    whole = silo.download(place, "sum", Tensor.COUNTS)
    assert len(whole) == content_size(scene.study, 0, Tensor.COUNTS) == COUNT_BYTES
    assert silo.listed == listed(whole).hashes
    assert silo.download(place, "sum", Tensor.COUNTS, offset=5 * CHUNK) == whole[5 * CHUNK :]
    assert silo.listed == listed(whole).hashes, "of all of it"
    assert silo.download(place, "sum", Tensor.COUNTS, offset=len(whole)) == b""
    for offset in (len(whole) + 1, 2**64 - 1):
        with refused(Code.INVALID_ARGUMENT, "lies after the end; begin again at 0"):
            silo.download(place, "sum", Tensor.COUNTS, offset=offset)


def test_shares_notes_come_cut_for_whom_they_concern_and_whole_where_a_sum_is_opened(scene):
    status = scene.play(lambda s: s.phase == "check" and len(s.waiting_for) == len(s.members))
    silo, place = first(scene), Place(scene.study.digest, status.round, status.attempt)
    names = sorted(scene.silos)
    layout = Layout.of(plan(scene.study).tensors(place.round), names)

    def fetched(owners, about, kind=Note.SHARES, tensor=None):
        return silo.download_all(place, kind, tensor, owners, about=about)

    whole = fetched(names, ())
    assert [len(note) for note in whole] == [layout.form.note] * len(names)
    for about in ((silo.name,), tuple(names[1:]), ("elsewhere",)):
        assert fetched(names, about) == [Cutting(note, layout.form).cut(about) for note in whole]
    with refused(
        Code.INVALID_ARGUMENT, "download.about: 257 silos; greetings and shares alone are cut, for 256 at most"
    ):
        fetched(names, ["north"] * 257)
    with refused(Code.INVALID_ARGUMENT, "download.silos"):
        fetched(names, ["x" * 5000])
    with refused(Code.FAILED_PRECONDITION, "there is no shares of elsewhere"):
        fetched(["elsewhere"], (silo.name,))
    scene.play(lambda s: s.phase == "open" and s.round == place.round)
    assert fetched(names, ()) == whole
    with refused(Code.INVALID_ARGUMENT, "download.about: 1 silos; greetings and shares alone are cut, for 256 at most"):
        fetched([""], (silo.name,), "sum", Tensor.COUNTS)


@pytest.mark.parametrize("left", [None, b"", b"cut"])
def test_a_list_that_a_power_cut_took_is_made_anew(scene, server, left):
    place = scene.gathering()
    scene.play(lambda status: status.phase == "open")
    silo = first(scene)
    path = server.engine._spool.chunks(place, "counts", SUM_FILE)
    path.unlink() if left is None else path.write_bytes(left)
    whole = silo.download(place, "sum", Tensor.COUNTS)
    assert silo.listed == listed(whole).hashes


# --- who calls ------------------------------------------------------------------------------------------------------
def test_another_authority_s_silo_does_not_get_a_connection(server, scene, tmp_path):
    stranger = Silo(server.port, make_authority(tmp_path).credential("silo", first(scene).name), scene.study)
    with refused(Code.UNAVAILABLE, ""):
        stranger.join()
    stranger.close()


def test_no_certificate_no_connection(server, authority):
    with (
        grpc.secure_channel(
            f"127.0.0.1:{server.port}", grpc.ssl_channel_credentials(root_certificates=authority.pem)
        ) as channel,
        refused(Code.UNAVAILABLE, ""),
    ):
        channel.unary_unary("/fedward.v1.SiloService/Join")(b"", timeout=300)


def test_an_expired_certificate_gets_no_connection(server, authority, monkeypatch):
    folder = authority.credential("silo", "expired", period=(-DAY, timedelta(minutes=-1)))
    monkeypatch.setattr("support.silos.load", load_unchecked)
    silo = Silo(server.port, folder, tiny_study())
    with refused(Code.UNAVAILABLE, ""):
        silo.join()
    silo.close()


def load_unchecked(folder):
    """An attacker's program does not check its own certificate."""
    pems = {f"{name}_pem": (folder / f"{name}.pem").read_bytes() for name in ("certificate", "key", "authority")}
    return Credential(**pems, now=datetime.now(UTC) - timedelta(minutes=2))


def test_a_certificate_that_expires_ends_an_open_connection(server, authority):
    folder = authority.credential("silo", "expiring", period=(-DAY, timedelta(seconds=2)))
    silo = Silo(server.port, folder, tiny_study())
    silo.join()
    time.sleep(2.1)
    with refused(Code.PERMISSION_DENIED, "expired on .*; make a new request and have it signed"):
        silo.join()
    silo.close()


@pytest.mark.usefixtures("small_chunks")
def test_who_is_revoked_is_out_at_once_in_the_middle_of_an_upload(authority, gathering, scene):
    silo, place, content = gathering
    header, go_on = silo.header(place, content, Tensor.COUNTS), threading.Event()

    def messages():
        yield next(silo.messages(header, content))
        yield silo_pb2.UploadChunk(offset=0, data=content[:CHUNK])
        go_on.wait(300)
        yield silo_pb2.UploadChunk(offset=CHUNK, data=content[CHUNK : 2 * CHUNK])

    call = silo.silo.Upload.future(messages())
    wait_for(lambda: silo.stored(header) == (CHUNK, False))
    with authority.revoked(f"fedward://silo/{silo.name}"):
        go_on.set()
        with refused(Code.PERMISSION_DENIED, f"the certificate of fedward://silo/{silo.name} was revoked as of"):
            call.result(timeout=300)
        with refused(Code.PERMISSION_DENIED, "was revoked as of"):
            silo.join()
        wait_for(lambda: silo.name not in scene.status().waiting_for)
        (state,) = [one.state for one in scene.status().members if one.silo == silo.name]
        assert state == "away", "nobody waits for it until its time is up"


def test_who_is_revoked_while_it_waits_gets_no_answer(server, authority, gathering):
    silo, place, _ = gathering
    silo.do(silo.poll())
    mine, hold = signed(stated(silo, 1), silo.credential), 2.0
    waiting = [
        silo.silo.Poll.future(silo_pb2.PollRequest(session=silo.session, hold_seconds=hold)),
        silo.silo.Witness.future(silo_pb2.WitnessRequest(hold_seconds=hold)),
        silo.silo.Countersign.future(
            silo_pb2.CountersignRequest(place=codec.to_wire(place), statement=codec.to_wire(mine), hold_seconds=hold)
        ),
    ]
    for bells in (server.engine.bells, server._cosigning.requests, server._cosigning.answers):
        wait_for(lambda bells=bells: silo.name in bells._listening)
    with authority.revoked(f"fedward://silo/{silo.name}"):
        for call in waiting:
            with refused(Code.PERMISSION_DENIED, "was revoked as of"):
                call.result(timeout=300)


def test_an_operator_is_no_silo_and_a_silo_no_operator(operator, scene):
    with refused(Code.PERMISSION_DENIED, "fedward://operator/ops, but a silo is needed; give the right party's"):
        operator.silo.Poll(silo_pb2.PollRequest(session="one"))
    messages = first(scene).messages(first(scene).header(Place("a" * 64, 0, 1), b"x", Note.KEYS), b"x")
    with refused(Code.PERMISSION_DENIED, "but a silo is needed"):
        operator.silo.Upload(messages)
    calls = first(scene).operator
    for call, request in (
        (calls.CreateStudy, operator_pb2.CreateStudyRequest()),
        (calls.StartStudy, operator_pb2.StudyRequest()),
        (calls.AbortStudy, operator_pb2.AbortStudyRequest()),
        (calls.PauseStudy, operator_pb2.StudyRequest()),
        (calls.ResumeStudy, operator_pb2.StudyRequest()),
        (calls.GetStudyStatus, operator_pb2.StudyRequest()),
        (calls.ListStudies, operator_pb2.ListStudiesRequest()),
    ):
        with refused(Code.PERMISSION_DENIED, "but an operator, an author or a viewer is needed"):
            call(request)
    with refused(Code.PERMISSION_DENIED, "an operator, an author or a viewer is needed"):
        next(calls.GetResults(operator_pb2.StudyRequest()))


def test_another_protocol_is_refused_by_number(scene):
    with refused(
        Code.INVALID_ARGUMENT, f"speaks protocol {PROTOCOL}, the agent speaks 99; update the older of the two"
    ):
        first(scene).join(protocol=99)


def test_nobody_answers_for_another(scene):
    silo, other = list(scene.silos.values())[:2]
    with refused(Code.UNAUTHENTICATED, f"{silo.name} may not answer in the name of {other.name}"):
        silo.answer(silo.poll().place, silo=other.name)


def test_nobody_answers_with_anothers_certificate(scene):
    """The roster would refuse it only when all have begun."""
    silo, other = list(scene.silos.values())[:2]
    place = silo.poll().place
    member = Member(silo.name, other.credential.certificate_pem, b"k" * 32, b"k" * 1184, b"signature")
    for pem, code, says in (
        (
            member.certificate_pem,
            Code.UNAUTHENTICATED,
            f"{silo.name} may not answer with the certificate of {other.name}",
        ),
        (b"no certificate", Code.PERMISSION_DENIED, ""),
    ):
        answer = Answer(place, silo.session, member=replace(member, certificate_pem=pem))
        with refused(code, says):
            silo.silo.Answer(codec.to_wire(answer))


def test_a_study_is_shown_only_to_those_whom_it_invites(scene, make_scene):
    outsider = first(make_scene(begin=False))
    with refused(Code.NOT_FOUND, scene.study.digest):
        outsider.silo.GetStudy(silo_pb2.GetStudyRequest(study=scene.study.digest))
    place = first(scene).poll().place
    with refused(Code.FAILED_PRECONDITION, "is not invited to this attempt"):
        outsider.answer(place)
    with refused(Code.NOT_FOUND, ""):
        outsider.confirm(place, Task.FINISH)


def test_nobody_is_told_of_an_end_that_has_not_come(scene):
    silo = first(scene)
    with refused(Code.FAILED_PRECONDITION, "the study is running"):
        silo.confirm(silo.poll().place, Task.FINISH)


# --- cosigning -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hold", [math.nan, 5.0])
def test_a_ledger_is_cosigned_by_the_coordinator_and_another_silo(scene, authority, hold):
    place, silos = scene.gathering(Tensor.COUNTS), list(scene.silos.values())
    mine = signed(stated(silos[0], 3), silos[0].credential)
    assert latest(silos[0]) == []
    alone = cosign(silos[0], place, mine)
    assert (alone.coordinator.stated.checkpoint, alone.peer) == (mine.checkpoint, None)
    handed = witness(silos[1], hold=hold)
    assert handed == mine
    assert witness(silos[1], witnessed(mine, silos[1].credential)) is None
    both = cosign(silos[0], place, mine, hold)
    trust = Trust(authority.pem)
    signers = [trust.verify(one.certificate_pem, one.stated.checkpoint, one.signature).uri for one in latest(silos[0])]
    assert signers == ["fedward://coordinator/hub", f"fedward://silo/{silos[1].name}"]
    assert both.peer == latest(silos[0])[1]
    assert latest(silos[1]) == []


def test_a_ledger_s_statement_waits_for_another_silo_and_not_longer(scene):
    place, (silo, other, _) = scene.gathering(Tensor.COUNTS), scene.silos.values()
    mine = signed(stated(silo, 3), silo.credential)
    alone = cosign(silo, place, mine, 0.2)
    assert (alone.coordinator.stated.checkpoint, alone.peer) == (mine.checkpoint, None)
    request = silo_pb2.CountersignRequest(place=codec.to_wire(place), statement=codec.to_wire(mine), hold_seconds=20)
    waiting = silo.silo.Countersign.future(request)
    assert witness(other) == mine
    witness(other, word := witnessed(mine, other.credential))
    both = codec.from_wire(Cosigned, waiting.result(timeout=300))
    assert (both.coordinator.stated, both.peer) == (mine, word)


def test_a_ledger_that_goes_back_is_refused_by_its_code(scene):
    place, silo = scene.gathering(Tensor.COUNTS), first(scene)
    cosign(silo, place, signed(stated(silo, 5), silo.credential))
    for older in (stated(silo, 4), stated(silo, 6, branch="other")):
        with refused(Code.DATA_LOSS, "does not contain entry 5"):
            cosign(silo, place, signed(older, silo.credential))


def test_who_may_not_state_or_sign_is_refused_by_its_code(scene):
    place, (silo, other, _) = scene.gathering(Tensor.COUNTS), scene.silos.values()
    mine = signed(stated(silo, 1), silo.credential)
    with refused(Code.UNAUTHENTICATED, f"{other.name} may not hand in a checkpoint that {silo.name} has signed"):
        cosign(other, place, mine)
    with refused(Code.UNAUTHENTICATED, f"{other.name} may not sign a checkpoint"):
        cosign(other, place, signed(stated(silo, 1), other.credential))
    with refused(Code.INVALID_ARGUMENT, "nobody asked"):
        witness(other, witnessed(mine, other.credential))
    with refused(Code.INVALID_ARGUMENT, "checkpoint.signature: is empty"):
        silo.silo.Countersign(unsigned(place, mine))
    with refused(Code.FAILED_PRECONDITION, "is not the current one"):
        cosign(silo, replace(place, attempt=9), mine)


def unsigned(place, made):
    wire = silo_pb2.SignedStatement(statement=made.checkpoint, certificate_pem=made.certificate_pem)
    return silo_pb2.CountersignRequest(place=codec.to_wire(place), statement=wire)


# --- what is uploaded -----------------------------------------------------------------------------------------------
@pytest.fixture
def gathering(scene):
    """A silo that is asked for its counts, the place, and its content."""
    place = scene.gathering(Tensor.COUNTS)
    silo = first(scene)
    return silo, place, silo.contribution(place, Tensor.COUNTS)


def test_a_reply_is_encoded_anew_where_work_or_roster_differ_and_only_there():
    replies, place = WorkReplies(), Place("5" * 64, 1, 1)
    members = tuple(Member(name, b"pem", bytes(32), bytes(1184), b"signature") for name in ("north", "south"))
    work = Work(Task.EXCHANGE, place, roster=members)
    first = replies.of(work, "")
    assert replies.of(Work(Task.EXCHANGE, place, roster=members), "") is first
    held = digest_of_roster(members)
    for other, known, whole in (
        (work, held, False),
        (work, "", True),
        (Work(Task.EXCHANGE, replace(place, attempt=2), roster=members), "", True),
        (Work(Task.EXCHANGE, place, roster=members), "f" * 64, True),
    ):
        sent = replies.of(other, known)
        assert codec.from_wire(Work, sent) == (other if whole else replace(other, roster=(), roster_sha256=held))


def test_what_many_have_sent_comes_in_few_messages(scene):
    scene.play(lambda status: status.phase == "take")
    silo = next(iter(scene.silos.values()))
    work = silo.poll()
    sizes = {one.silo: one.bytes for one in scene.status().uploads if one.kind == "greeting"}
    request = silo_pb2.DownloadRequest(place=codec.to_wire(work.place), kind="greeting", silos=list(sizes))
    (message,) = silo.silo.Download(request)
    assert len(message.more) == len(sizes) - 1 == 2
    assert [len(one.data) for one in (message, *message.more)] == list(sizes.values())
    request.about.append(silo.name)
    (message,) = silo.silo.Download(request)
    assert [len(one.data) for one in (message, *message.more)] == list(sizes.values()), "what is none is not cut"


def test_the_roster_is_sent_once_and_then_named(scene, gathering):
    silo, _, _ = gathering
    asked = silo_pb2.PollRequest(session=silo.session)
    whole = silo.silo.Poll(asked)
    asked.roster_sha256 = digest_of_roster(codec.from_wire(Work, whole).roster)
    short = silo.silo.Poll(asked)
    assert (len(whole.roster), len(short.roster), short.roster_sha256) == (3, 0, asked.roster_sha256)
    assert silo.poll() == silo.poll() == codec.from_wire(Work, whole)
    asked.roster_sha256 = "0" * 64
    assert silo.silo.Poll(asked) == whole
    asked.roster_sha256 = "x" * 65
    with refused(Code.INVALID_ARGUMENT, "poll.roster_sha256: has 65 characters"):
        silo.silo.Poll(asked)


def test_an_upload_in_another_s_name(scene, gathering):
    silo, place, content = gathering
    other = list(scene.silos)[1]
    header = silo.header(place, content, Tensor.COUNTS, silo=other)
    with refused(Code.UNAUTHENTICATED, f"{silo.name} may not upload in the name of {other}"):
        silo.upload(header, content)
    with refused(Code.UNAUTHENTICATED, f"{silo.name} may not ask about an upload of {other}"):
        silo.stored(header)
    assert other in scene.status().waiting_for


def test_a_name_that_is_too_long_is_refused_in_a_list_of_them(gathering):
    silo, place, _ = gathering
    with refused(Code.INVALID_ARGUMENT, "download.silos: has"):
        silo.download_all(place, Note.SHARES, None, [silo.name, "x" * 1001])


def test_a_signature_over_something_else(scene, gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    for signature in (
        b"nothing",
        silo.credential.sign(b"other"),
        list(scene.silos.values())[1].credential.sign(header.canonical()),
    ):
        with refused(Code.UNAUTHENTICATED, "does not fit the signed bytes; have it sent again"):
            silo.upload(header, content, signature=signature)
    assert silo.stored(header) == (0, False)


def test_an_upload_without_header(gathering):
    silo, _, content = gathering
    for messages in ([], [silo_pb2.UploadChunk(offset=0, data=content[:10])]):
        with refused(Code.INVALID_ARGUMENT, "upload: the first message must carry the header"):
            silo.silo.Upload(iter(messages))


@pytest.mark.usefixtures("small_chunks")
def test_more_bytes_than_announced(gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    longer = [silo_pb2.UploadChunk(offset=at, data=content[at : at + CHUNK]) for at in range(0, COUNT_BYTES, CHUNK)]
    call, go_on = begin_upload(silo, header, content, [*longer, silo_pb2.UploadChunk(offset=COUNT_BYTES, data=b"x")])
    with refused(Code.INVALID_ARGUMENT, f"the 1 bytes at offset {COUNT_BYTES} are not chunk 7 of 7"):
        call.result(timeout=300)
    go_on.set()
    silo.upload(header, content, offset=COUNT_BYTES)
    assert silo.stored(header) == (COUNT_BYTES, True)


@pytest.mark.usefixtures("small_chunks")
def test_fewer_bytes_than_announced_may_be_resumed(gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    with refused(Code.ABORTED, f"ended at {5 * CHUNK} of {COUNT_BYTES} bytes; resume at {5 * CHUNK}"):
        silo.upload(header, content[: 5 * CHUNK], hashes=listed(content).hashes)
    silo.upload(header, content, offset=5 * CHUNK)
    assert silo.stored(header) == (COUNT_BYTES, True)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("offset", [1, CHUNK, COUNT_BYTES])
def test_a_chunk_that_cannot_follow(gathering, offset):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    call, go_on = begin_upload(silo, header, content, [silo_pb2.UploadChunk(offset=offset, data=content[:CHUNK])])
    with refused(Code.ABORTED, f"a chunk at {offset} cannot follow 0 stored bytes; resume at 0"):
        call.result(timeout=300)
    go_on.set()
    assert silo.stored(header) == (0, False)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("change", ["altered", "cut", "longer", "empty", "another"])
@pytest.mark.parametrize("at", [0, 3, 6])
def test_a_wrong_chunk_is_refused_by_number_and_what_came_before_it_stands(gathering, at, change):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    piece = content[at * CHUNK : (at + 1) * CHUNK]
    wrong = {
        "altered": piece[:100] + bytes([piece[100] ^ 1]) + piece[101:],
        "cut": piece[:-1],
        "longer": piece + b"x",
        "empty": b"",
        "another": content[CHUNK : 2 * CHUNK],
    }[change]
    right = [silo_pb2.UploadChunk(offset=n * CHUNK, data=content[n * CHUNK : (n + 1) * CHUNK]) for n in range(at)]
    call, go_on = begin_upload(silo, header, content, [*right, silo_pb2.UploadChunk(offset=at * CHUNK, data=wrong)])
    told = f"the {len(wrong)} bytes at offset {at * CHUNK} are not chunk {at + 1} of 7 as it was announced"
    with refused(Code.INVALID_ARGUMENT, told):
        call.result(timeout=300)
    go_on.set()
    assert silo.stored(header) == (at * CHUNK, False)
    silo.upload(header, content, offset=at * CHUNK)
    assert silo.stored(header) == (COUNT_BYTES, True)


@pytest.mark.usefixtures("small_chunks")
def test_a_list_that_is_not_the_header_s_is_refused_before_anything_is_kept(server, gathering):
    silo, place, content = gathering
    header, hashes = silo.header(place, content, Tensor.COUNTS), listed(content).hashes
    altered = bytes([hashes[0] ^ 1]) + hashes[1:]
    with refused(Code.INVALID_ARGUMENT, "the list is not that of the announced content"):
        silo.upload(header, content, hashes=altered)
    for wrong in (b"", hashes[:-1], hashes[:-32], hashes + hashes[:32], hashes + b"x", bytes(MAX_MESSAGE // 2)):
        told = f"{len(wrong)} bytes do not list the chunks of {COUNT_BYTES} bytes"
        with refused(Code.INVALID_ARGUMENT, told):
            silo.upload(header, content, hashes=wrong)
    assert not server.engine._spool.chunks(place, "counts", silo.name).parent.exists()


def test_no_message_is_taken_that_could_be_a_bomb(gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    with refused(Code.RESOURCE_EXHAUSTED, "larger than max"):
        silo.upload(header, content, hashes=bytes(MAX_MESSAGE))


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_no_compressed_message_is_unpacked(gathering, compression):
    silo, *_ = gathering
    request = silo_pb2.HeartbeatRequest()
    silo.silo.Heartbeat(request)
    with refused(Code.UNIMPLEMENTED, "is disabled"):
        silo.silo.Heartbeat(request, compression=compression)


def test_a_size_that_the_study_does_not_imply(gathering):
    silo, place, content = gathering
    values = sealed_values(2, 3)
    wrong = (
        {"values": 2},
        {"size": len(content) - 8},
        {"size": 1 << 33},
        {"values": 5000, "size": 3 * COUNT_BYTES},
        {"kind": "ring32"},
    )
    for changes in wrong:
        header = silo.header(place, content, Tensor.COUNTS, **changes)
        told = f"counts of this study has {values} values in {COUNT_BYTES} bytes of ckks, but the header announces"
        with refused(Code.INVALID_ARGUMENT, told):
            silo.upload(header, content)


def test_a_tensor_that_is_not_gathered(gathering):
    silo, place, _ = gathering
    content = silo.contribution(place, Tensor.ENCODER)
    with refused(Code.FAILED_PRECONDITION, "the phase gather does not gather encoder"):
        silo.upload(silo.header(place, content, Tensor.ENCODER), content)
    with refused(Code.FAILED_PRECONDITION, "waits for no such note"):
        silo.upload(silo.header(place, b"keys", Note.KEYS), b"keys")
    with refused(Code.FAILED_PRECONDITION, "round 0, attempt 2 is not the current one"):
        there = Place(place.study, 0, 2)
        silo.upload(silo.header(there, content, Tensor.ENCODER), content)


def test_a_note_from_another_than_the_dealer_or_too_large_a_one(scene):
    status = scene.play(lambda status: status.phase == "deal")
    place = Place(scene.study.digest, 0, 1)
    (dealer,) = status.waiting_for
    other = next(silo for name, silo in scene.silos.items() if name != dealer)
    with refused(Code.FAILED_PRECONDITION, f"the phase deal waits for no such note from {other.name}"):
        other.upload(other.header(place, b"keys", Note.KEYS), b"keys")
    silo = scene.silos[dealer]
    with refused(Code.INVALID_ARGUMENT, "at most 4194304 are relayed"):
        silo.upload(silo.header(place, b"keys", Note.KEYS, size=(4 << 20) + 1), b"keys")
    with refused(Code.FAILED_PRECONDITION, "in the phase deal there is no keys"):
        silo.download(place, "keys", of_silo=dealer)
    greeting = other.download(place, "greeting", of_silo=dealer)
    assert greeting == f"greeting of {dealer} at {place}".encode()


def test_somebody_outside_the_roster(scene, gathering, make_scene):
    _, place, content = gathering
    outsider = first(make_scene(begin=False))
    with refused(Code.FAILED_PRECONDITION, f"{outsider.name} is not in the roster"):
        outsider.upload(outsider.header(place, content, Tensor.COUNTS), content)
    scene.play(lambda status: status.phase == "open")
    with refused(Code.FAILED_PRECONDITION, f"{outsider.name} is not in the roster"):
        outsider.download(place, "sum", Tensor.COUNTS)


@pytest.mark.usefixtures("small_chunks")
def test_what_the_disk_has_altered_comes_again(server, gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    with refused(Code.ABORTED, "resume at "):
        silo.upload(header, content[: 5 * CHUNK], hashes=listed(content).hashes)
    path = server.engine._spool.partial(place, "counts", silo.name)
    kept = bytearray(path.read_bytes())
    kept[2 * CHUNK + 7] ^= 1
    path.write_bytes(kept)
    assert silo.stored(header) == (5 * CHUNK, False)
    with refused(Code.ABORTED, f"a chunk at {5 * CHUNK} cannot follow {2 * CHUNK} stored bytes; resume at {2 * CHUNK}"):
        silo.upload(header, content, offset=5 * CHUNK)
    assert silo.stored(header) == (2 * CHUNK, False)
    silo.upload(header, content, offset=2 * CHUNK)
    assert silo.stored(header) == (COUNT_BYTES, True)


def test_a_shares_note_that_its_sender_has_not_signed_reaches_nobody_and_the_right_one_does(scene):
    status = scene.play(lambda s: s.phase == "exchange" and len(s.waiting_for) == len(s.members))
    silo, other = list(scene.silos.values())[:2]
    place, note = Place(scene.study.digest, status.round, status.attempt), silo.shares(silo.poll())
    theirs = other.shares(other.poll())
    for bad, code, why in (
        (note[:-1] + bytes([note[-1] ^ 1]), Code.INVALID_ARGUMENT, f"'{silo.name}' did not sign its shares note"),
        (note[:900] + bytes([note[900] ^ 1]) + note[901:], Code.INVALID_ARGUMENT, "did not sign its shares note"),
        (note[:20] + bytes([note[20] ^ 1]) + note[21:], Code.UNAUTHENTICATED, "does not fit the signed bytes"),
        (theirs, Code.UNAUTHENTICATED, "does not fit the signed bytes"),
        (b"shares", Code.INVALID_ARGUMENT, f"the shares note of '{silo.name}' is cut or of another version"),
    ):
        header = silo.header(place, bad, Note.SHARES)
        for _ in range(2):
            with refused(code, why):
                silo.upload(header, bad)
        assert silo.name in scene.status().waiting_for
        with refused(Code.FAILED_PRECONDITION, ""):
            other.download(place, Note.SHARES, of_silo=silo.name)
    silo.upload(silo.header(place, note, Note.SHARES), note)
    assert silo.name not in scene.status().waiting_for


def test_a_residue_that_is_not_reduced(scene, gathering):
    silo, place, content = gathering
    bad = b"\xff" * 27 + content[27:]
    with refused(Code.INVALID_ARGUMENT, "is not reduced"):
        silo.upload(silo.header(place, bad, Tensor.COUNTS), bad)
    assert silo.stored(silo.header(place, bad, Tensor.COUNTS)) == (0, False)
    assert silo.name in scene.status().waiting_for


def test_other_bytes_for_a_slot_that_is_filled_leave_no_trace(scene, gathering):
    silo, place, content = gathering
    silo.upload(silo.header(place, content, Tensor.COUNTS), content)
    other = ckks_public.write_frame(ckks_public.read_frame(content)[::-1].copy())
    header = silo.header(place, other, Tensor.COUNTS)
    told = "has already sent other bytes for counts of round 0; send the stored bytes again"
    with refused(Code.ALREADY_EXISTS, told):
        silo.upload(header, other)
    with refused(Code.ALREADY_EXISTS, told):
        silo.stored(header)
    sent = [s.contribution(place, Tensor.COUNTS) for s in scene.silos.values()]
    scene.play(lambda status: status.phase == "open")
    assert silo.download(place, "sum", Tensor.COUNTS) == summed("ckks", sent)


@pytest.mark.usefixtures("small_chunks")
def test_a_full_disk_says_so_and_the_upload_goes_on_when_there_is_room(server, gathering, monkeypatch):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    spool = server.engine._spool
    path = spool.partial(place, "counts", silo.name)
    opened = type(path).open

    def full(self, mode="r", *rest, **named):
        if self == path and "a" in mode and path.exists() and path.stat().st_size >= 20_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(self, mode, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "open", full)
        with refused(Code.RESOURCE_EXHAUSTED, "has no room; free space below its data folder, then resume"):
            silo.upload(header, content)
    assert silo.stored(header) == (20_000, False)
    silo.upload(header, content, offset=20_000)
    assert silo.stored(header) == (COUNT_BYTES, True)


def test_a_database_that_is_full_is_told_to_operators_alone_and_fills_no_log(server, scene, monkeypatch):
    """A silo is asked to try again. No name of a file is for it, and no traceback for the log."""
    silo = next(iter(scene.silos.values()))
    place, told = silo.poll().place, "/data/coordinator.sqlite3: database or disk is full; make room on its disk"

    def full(*_):
        raise DatabaseShortError(told)

    wait_for(lambda: not server.engine.shortages.standing(scene.study.digest))  # what another test has left
    with monkeypatch.context() as patch, capture_logs() as said:
        for name in ("save", "probe", "times"):
            patch.setattr(server.engine._store, name, full)
        for _ in range(30):
            with refused(Code.RESOURCE_EXHAUSTED, "^the coordinator's machine has no usable database now; its"):
                silo.answer(place)
        with refused(Code.RESOURCE_EXHAUSTED, told):
            scene.status()
    assert len([line for line in said if line["event"] == "the machine is short"]) == 1
    assert not any("exc_info" in line or line["event"] == "failed" for line in said)
    wait_for(lambda: not server.engine.shortages.standing(scene.study.digest))
    silo.answer(place)


@pytest.mark.usefixtures("small_chunks")
def test_two_streams_for_one_slot(gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    beginning, chunk, *rest = silo.messages(header, content)
    go_on = threading.Event()

    def slow():
        yield beginning
        yield chunk
        go_on.wait(300)
        yield from rest

    call = silo.silo.Upload.future(slow())
    wait_for(lambda: silo.stored(header)[0] == CHUNK)
    with refused(Code.ABORTED, "another stream is filling this slot; wait for it and resume"):
        silo.upload(header, content, offset=CHUNK)
    go_on.set()
    call.result(timeout=300)
    assert silo.stored(header) == (COUNT_BYTES, True)


@pytest.mark.usefixtures("small_chunks")
def test_many_streams_at_once_are_counted_once(scene, gathering):
    silo, place, content = gathering
    header = silo.header(place, content, Tensor.COUNTS)
    calls = [silo.silo.Upload.future(silo.messages(header, content)) for _ in range(8)]
    codes = {call.exception(timeout=300).code() if call.exception(timeout=300) else Code.OK for call in calls}
    # Who came second is turned away, finds bytes that it did not send, or finds the slot filled already. Who came
    # third had no seat.
    assert codes <= {Code.OK, Code.ABORTED, Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
    assert silo.stored(header) == (COUNT_BYTES, True)
    assert [u.silo for u in scene.status().uploads if u.tensor is Tensor.COUNTS] == [silo.name]


# --- how attempts end -----------------------------------------------------------------------------------------------
def test_a_restarted_silo_aborts_the_attempt(server, scene, gathering):
    silo, place, content = gathering
    silo.upload(silo.header(place, content, Tensor.COUNTS), content)
    assert server.engine._spool.complete(place, "counts", silo.name).exists()
    silo.session = "two"
    assert silo.poll().task is Task.DECIDE
    status = scene.status()
    assert (status.round, status.attempt, status.phase) == (0, 2, "offer")
    assert not server.engine._spool._folder(place).exists(), "nobody needs the sealed bytes any more"
    scene.play(lambda status: status.round == 1)


@pytest.mark.usefixtures("small_chunks")
def test_an_upload_to_an_attempt_that_is_over_is_stopped_and_leaves_nothing(server, scene, gathering):
    silo, place, content = gathering
    other = list(scene.silos.values())[1]
    header = silo.header(place, content, Tensor.COUNTS)
    go_on = threading.Event()

    beginning, chunk, *rest = silo.messages(header, content)

    def slow():
        yield beginning
        yield chunk
        go_on.wait(300)
        yield from rest

    call = silo.silo.Upload.future(slow())
    wait_for(lambda: silo.stored(header)[0] == CHUNK)
    other.session = "two"
    other.poll()
    go_on.set()
    with refused(Code.FAILED_PRECONDITION, "round 0, attempt 1 is not the current one"):
        call.result(timeout=300)
    assert not server.engine._spool._folder(place).exists()


def test_a_dispute_ends_the_attempt_by_name(scene, gathering):
    silo, place, _ = gathering
    silo.confirm(place, Task.CONTRIBUTE, Tensor.COUNTS, dispute="data", explanation="a row does not fit")
    assert scene.status().attempt == 2
    with refused(Code.FAILED_PRECONDITION, "round 0, attempt 1 is not the current one"):
        silo.confirm(place, Task.CONTRIBUTE, Tensor.COUNTS, dispute="data")


def test_who_complains_with_a_key_that_opens_nothing_is_the_one_who_lied(scene):
    scene.play(lambda status: status.phase == "check")
    silo, other, third = scene.silos.values()
    work = silo.poll()
    own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in work.roster)
    place = work.place
    attempt = AttemptRef(place.study, roster_digest(place.study, own), place.round, place.attempt)
    complaint = ShareComplaint(attempt, other.name, silo.name, bytes(32))
    said = {"dispute": "recovery", "explanation": "x", "culprit": other.name, "evidence": complaint.evidence}
    with refused(Code.UNAUTHENTICATED, "does not fit the signed bytes"):
        silo.confirm(place, Task.CHECK, **said, signature=silo.credential.sign(b"something else"))
    silo.confirm(place, Task.CHECK, **said, signature=silo.credential.sign(complaint.to_sign()))
    shown = third.poll()
    assert (shown.task, shown.complaint.evidence) == (Task.EXAMINE, complaint.evidence)
    third.confirm(place, Task.EXAMINE, culprit=silo.name)
    told = (
        f"{silo.name} complained falsely about {other.name}, as the key of that note shows to everybody; {third.name}"
    )
    assert told in scene.status().why


def test_an_offer_without_enough_silos_waits_and_goes_on_when_one_calls(make_scene):
    scene = make_scene(max_attempts=1)
    late = first(scene)
    status = scene.play(lambda status: status.state != "running", silent=(late.name,))
    why = f"2 silos take part, the study needs 3; the round waits for {late.name}"
    assert (status.state, status.why, status.waiting_for) == ("waiting", why, (late.name,))
    assert [member.state for member in status.members] == ["away", "active", "active"]
    late.silo.Heartbeat(silo_pb2.HeartbeatRequest())
    assert scene.status().state == "waiting", "only who asks for work is present"
    late.do(late.poll())
    status = scene.play(lambda status: status.phase == "gather")
    assert (status.state, status.attempt) == ("running", 1)


TOO_FEW = "2 silos are left, but 3 are needed to open the sums"


def test_deadlines_end_attempts_and_attempts_the_study(make_scene):
    scene = make_scene(max_attempts=2)
    late = first(scene)
    for attempt in (1, 2):
        assert scene.gathering().attempt == attempt
        status = scene.play(
            lambda status, n=attempt: status.attempt > n or status.state == "ended", silent=(late.name,)
        )
    why = f"attempt 2 of round 0: no gather from {late.name} within {LIMIT} s; {TOO_FEW}"
    assert (status.state, status.why) == ("ended", why)


def test_a_silo_that_stops_in_the_middle(make_scene):
    scene = make_scene(max_attempts=1)
    scene.gathering()
    late = first(scene).name
    status = scene.play(lambda status: status.state != "running", silent=(late,))
    why = f"attempt 1 of round 0: no gather from {late} within {LIMIT} s; {TOO_FEW}"
    assert (status.state, status.why) == ("ended", why)
    work = scene.silos[late].poll()
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "ended", status.why)


def test_a_refusal_is_told_by_name(make_scene):
    scene = make_scene(silos=4, min_silos=3)
    silo = first(scene)
    silo.answer(silo.poll().place, refusal="budget_spent")
    scene.play(lambda status: status.round == 1, silent=(silo.name,))
    member = scene.status().members[0]
    assert (member.silo, member.state, member.why) == (silo.name, "left", "budget_spent: because")
    assert (silo.poll().task, silo.poll().outcome) == (Task.FINISH, "left")


# --- who is lost ----------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("small_chunks")
def test_a_study_goes_on_without_who_is_late_and_it_catches_up(make_scene):
    scene = make_scene(silos=5, min_silos=4)
    late = first(scene)
    place = scene.gathering(Tensor.COUNTS)
    content = late.contribution(place, Tensor.COUNTS)
    header = late.header(place, content, Tensor.COUNTS)
    with refused(Code.ABORTED, "resume at "):
        late.upload(header, content[:CHUNK], hashes=listed(content).hashes)
    status = scene.play(lambda status: status.phase == "open", silent=(late.name,))
    assert (status.members[0].state, status.members[0].why) == ("lost", f"no gather from {late.name} within {LIMIT} s")
    for call in (
        lambda: late.upload(header, content, offset=CHUNK),
        lambda: late.download(place, "sum", Tensor.COUNTS),
    ):
        with refused(Code.FAILED_PRECONDITION, f"{late.name} was set aside in this attempt"):
            call()
    with refused(Code.FAILED_PRECONDITION, "was set aside in this attempt"):
        late.confirm(place, Task.OPEN, Tensor.COUNTS)
    assert late.poll().task is Task.WAIT
    others = list(scene.silos.values())[1:]
    sent = [silo.contribution(place, Tensor.COUNTS) for silo in others]
    work = others[0].poll()
    assert work.survivors == tuple(silo.name for silo in others)
    assert len(work.participants) == len(work.roster) == 5
    assert others[0].download(place, "sum", Tensor.COUNTS) == summed("ckks", sent), "without what came in part"
    status = scene.play(lambda status: status.state != "running")
    assert (status.state, status.attempt) == ("finished", 1)
    assert len({silo.model for silo in scene.silos.values()}) == 1


def test_the_signatures_of_the_survivors_are_relayed_as_they_came(scene, authority):
    scene.play(lambda status: status.phase == "reveal")
    work = first(scene).poll()
    assert work.task is Task.REVEAL
    assert [one.silo for one in work.signatures] == list(work.survivors) == list(scene.silos)
    trust = Trust(first(scene).credential.authority_pem)
    for one in work.signatures:
        pem = scene.silos[one.silo].credential.certificate_pem
        assert trust.verify(pem, repr(work.survivors).encode(), one.signature, role=Role.SILO).name == one.silo


def test_with_distributed_noise_a_dropout_ends_the_attempt(make_scene):
    scene = make_scene(silos=5, privacy={"mode": "distributed"}, max_attempts=1)
    scene.play(lambda status: status.phase == "gather")
    silo = first(scene)
    silo.session = "two"
    silo.poll()
    status = scene.status()
    lost = f"{silo.name} was restarted and has lost its keys; with distributed noise a dropout aborts the attempt"
    assert (status.state, status.why) == ("ended", f"attempt 1 of round 0: {lost}")


# --- the operator ---------------------------------------------------------------------------------------------------
def test_the_operator_stops_a_study_for_good(scene, operator):
    scene.gathering()
    scene.abort("wrong columns")
    status = scene.status()
    assert (status.state, status.why, status.waiting_for) == ("aborted", "stopped by operator ops: wrong columns", ())
    work = first(scene).poll()
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "aborted", "stopped by operator ops: wrong columns")
    with refused(Code.FAILED_PRECONDITION, "the study is aborted already"):
        scene.abort("again")
    with refused(Code.FAILED_PRECONDITION, "only a created study can be started"):
        scene.start()


def test_a_paused_study_hands_out_nothing_and_takes_what_comes(scene):
    place = scene.gathering(Tensor.COUNTS)
    scene.pause()
    assert (scene.status().state, scene.status().why) == ("paused", "paused by operator ops")
    with refused(Code.FAILED_PRECONDITION, "the study is paused; only a running or waiting study can be paused"):
        scene.pause()
    for silo in scene.silos.values():
        assert silo.poll().task is Task.WAIT
        content = silo.contribution(place, Tensor.COUNTS)
        silo.upload(silo.header(place, content, Tensor.COUNTS), content)
    wait_for(lambda: scene.status().phase == "sign")
    assert (scene.status().state, scene.status().attempt) == ("paused", 1)
    scene.resume()
    with refused(Code.FAILED_PRECONDITION, "the study is running; only a paused or waiting study can be resumed"):
        scene.resume()
    assert scene.play(lambda status: status.round == 1).state == "running"


# --- catching up ----------------------------------------------------------------------------------------------------
@pytest.fixture
def behind(make_scene):
    """Round 1 is offered; one silo of three was silent in round 0. Returns the scene and that silo."""
    scene = make_scene(min_silos=2, privacy={"colluders": 0})
    late = first(scene)
    scene.play(lambda status: status.round == 1, silent=(late.name,))
    return scene, late


def test_who_missed_a_round_catches_up_and_takes_part(behind):
    scene, late = behind
    late.do(late.poll())
    status = scene.play(lambda status: status.phase == "share")
    (name,) = status.waiting_for
    sharer = scene.silos[name]
    place = Place(scene.study.digest, 1, 1)
    assert name != late.name
    with refused(Code.FAILED_PRECONDITION, f"waits for no such note from {late.name}"):
        late.upload(late.header(place, b"model", Note.MODEL), b"model")
    sharer.do(sharer.poll())
    work = late.poll()
    (part,) = work.parts
    assert (work.task, work.actor, part.silo, part.size) == (
        Task.CATCH_UP,
        sharer.name,
        sharer.name,
        len(sharer.model),
    )
    assert late.download(place, "model", of_silo=sharer.name) == sharer.model.encode()
    content = late.contribution(place, Tensor.HEADS)
    with refused(Code.FAILED_PRECONDITION, "the phase catch_up does not gather heads"):
        late.upload(late.header(place, content, Tensor.HEADS), content)
    status = scene.play(lambda status: status.state != "running")
    assert (status.state, status.attempt) == ("finished", 1)
    assert len({silo.model for silo in scene.silos.values()}) == 1
    assert [u.silo for u in status.uploads if u.kind == "model"] == [sharer.name]


def test_a_shared_model_has_a_bound_that_grows_with_the_study(behind):
    scene, late = behind
    late.do(late.poll())
    status = scene.play(lambda status: status.phase == "share")
    sharer = scene.silos[status.waiting_for[0]]
    limit = note_limit(scene.study, 1, Note.MODEL)
    with refused(Code.INVALID_ARGUMENT, f"at most {limit} are relayed"):
        sharer.upload(sharer.header(Place(scene.study.digest, 1, 1), b"model", Note.MODEL, size=limit + 1), b"model")


def test_another_model_than_the_last_committed_one_ends_the_attempt(behind):
    scene, late = behind
    late.do(late.poll())
    scene.play(lambda status: status.phase == "catch_up")
    late.confirm(Place(scene.study.digest, 1, 1), Task.CATCH_UP, model="another")
    assert (scene.status().attempt, scene.status().phase) == (1, "judge")
    scene.play(lambda status: status.phase != "judge")
    assert (scene.status().attempt, scene.status().state) == (2, "running")
    assert scene.play(lambda status: status.state != "running").state == "finished"


def test_a_signature_over_another_content_than_was_stated_is_refused(behind):
    scene, late = behind
    late.do(late.poll())
    scene.play(lambda status: status.phase == "catch_up")
    place = Place(scene.study.digest, 1, 1)
    other = late.vouched(0) | {"content": "e" * 64}
    for fields in (other, late.vouched(1)):
        with refused(Code.UNAUTHENTICATED, "does not fit"):
            late.confirm(place, Task.CATCH_UP, **fields)


# --- publishing -----------------------------------------------------------------------------------------------------
PUBLISH = ["auc", "patients"]


def to_metrics(scene):
    """The metrics are summed; nobody has opened them yet."""
    scene.play(lambda status: status.phase == "open" and status.tensor is Tensor.METRICS)


@pytest.fixture
def publishing(make_scene):
    """The metrics are to be opened by everybody. Returns the scene and a silo that is to publish."""
    scene = make_scene(publish=PUBLISH, min_silos=2, privacy={"colluders": 0})
    to_metrics(scene)
    return scene, first(scene)


def confirm_metrics(scene, silo, **fields):
    place = Place(scene.study.digest, plan(scene.study).last, 1)
    silo.confirm(place, Task.OPEN, Tensor.METRICS, **{"model": "the last", **fields})


def test_what_all_have_signed_is_shown_and_can_be_verified(make_scene, authority):
    scene = make_scene(publish=PUBLISH)
    scene.play(lambda status: status.state == "finished")
    results = scene.results()
    assert (results.study, results.name, results.needed) == (scene.study.digest, scene.study.name, 3)
    assert [(one.figure.domain, one.figure.metric, one.silos) for one in results.agreed] == [
        (domain, metric, 3) for domain in ("a", "b") for metric in PUBLISH
    ]
    assert results.agreed[0].figure == Figure("a", "auc", 0.5, 0.25, 0.75)
    assert [one.silo for one in results.publications] == sorted(scene.silos)
    trust = Trust(authority.pem)
    for one in results.publications:
        signer = trust.verify(one.certificate_pem, Publication.to_sign(one.blob), one.signature)
        assert (signer.name, Publication.parse(one.blob).study) == (one.silo, scene.study.digest)


def test_only_what_enough_agree_on_is_shown(publishing):
    scene, liar = publishing
    one, two, three = scene.silos.values()
    confirm_metrics(scene, liar, **liar.signed(liar.publication(auc=0.99)))
    confirm_metrics(scene, two, **two.signed(two.publication(patients=7.0)))
    with refused(Code.FAILED_PRECONDITION, "only a finished study has results"):
        scene.results()
    confirm_metrics(scene, three, **three.signed(three.publication(auc=0.6)))
    results = scene.results()
    assert [(f.figure.metric, f.figure.domain, f.figure.value, f.silos) for f in results.agreed] == [
        ("patients", "a", 0.5, 2),
        ("patients", "b", 0.5, 2),
    ]
    assert len(results.publications) == 3
    assert one is liar


OUTSIDE = {
    "another metric": (lambda p: (*p, Figure("a", "accuracy", 0.5, 0.0, 1.0)), "does not publish accuracy of 'a'"),
    "another domain": (lambda p: (*p, Figure("c", "auc", 0.5, 0.0, 1.0)), "the study does not publish auc of 'c'"),
    "free text": (lambda p: (replace(p[0], domain="the name of a patient"), *p[1:]), "does not publish auc of 'the"),
    "less than all": (lambda p: p[1:], "it lacks auc of 'a'"),
}
"""Changes of the figures, and the refusal's sentence."""


def test_nothing_is_published_that_the_study_does_not_list_and_nothing_less(publishing):
    """Another's signature, other figures, another study, what is too large or no publication: each is refused."""
    scene, silo = publishing
    other = list(scene.silos.values())[1]
    publication = silo.publication()
    fields = silo.signed(publication)
    for signature in (other.signed(publication)["signature"], silo.credential.sign(fields["publication"]), b"x"):
        with refused(Code.UNAUTHENTICATED, "does not fit the signed bytes"):
            confirm_metrics(scene, silo, publication=fields["publication"], signature=signature)
    for change, sentence in OUTSIDE.values():
        with refused(Code.INVALID_ARGUMENT, sentence):
            confirm_metrics(scene, silo, **silo.signed(replace(publication, figures=change(publication.figures))))
    with refused(Code.INVALID_ARGUMENT, "confirm.publication: is about the study ffffffffffff"):
        confirm_metrics(scene, silo, **silo.signed(replace(publication, study="f" * 64)))
    place = codec.to_wire(Place(scene.study.digest, plan(scene.study).last, 1))
    blob = b" " * (MAX_PUBLICATION + 1)
    request = silo_pb2.ConfirmRequest(
        place=place,
        task=silo_pb2.TASK_OPEN,
        tensor=common_pb2.TENSOR_METRICS,
        publication=blob,
        signature=silo.credential.sign(Publication.to_sign(blob)),
    )
    with refused(Code.INVALID_ARGUMENT, "confirm.publication: is above 1048576 bytes"):
        silo.silo.Confirm(request)
    with refused(Code.INVALID_ARGUMENT, "publication: is not a publication in canonical JSON"):
        blob = b'{"patient": 17}'
        confirm_metrics(scene, silo, publication=blob, signature=silo.credential.sign(Publication.to_sign(blob)))
    assert silo.name in scene.status().waiting_for
    confirm_metrics(scene, silo, **fields)
    assert silo.name not in scene.status().waiting_for


def test_a_confirmation_that_publishes_nothing_is_refused_where_the_study_asks(publishing):
    scene, silo = publishing
    with refused(Code.INVALID_ARGUMENT, "confirm.publication: is missing; the study publishes auc, patients"):
        confirm_metrics(scene, silo)
    confirm_metrics(scene, silo, dispute="data", explanation="a row does not fit")
    assert silo.name not in scene.status().waiting_for, "a dispute needs no publication"


def test_a_study_that_publishes_nothing_takes_nothing_and_shows_nothing(make_scene):
    scene = make_scene()
    to_metrics(scene)
    silo = first(scene)
    with refused(Code.INVALID_ARGUMENT, "confirm.publication: the study publishes nothing"):
        confirm_metrics(scene, silo, **silo.signed(Publication(scene.study.digest, ())))
    scene.play(lambda status: status.state == "finished")
    with refused(Code.FAILED_PRECONDITION, "publishes nothing: its `publish` lists no metric"):
        scene.results()


def test_what_an_attempt_published_that_failed_is_not_shown(publishing):
    scene, silo = publishing
    confirm_metrics(scene, silo, **silo.signed(silo.publication(auc=0.9)))
    other = list(scene.silos.values())[1]
    confirm_metrics(scene, other, dispute="data")
    scene.play(lambda status: status.state == "finished")
    assert {one.figure.value for one in scene.results().agreed} == {0.5}
    assert len(scene.results().publications) == 3


def test_a_study_is_not_stopped_without_a_reason(make_scene):
    scene = make_scene(begin=False)
    for reason in ("", "  "):
        with refused(Code.PERMISSION_DENIED, "aborted for a reason, which every silo reads; give --reason"):
            scene.abort(reason)
    assert scene.status().state == "created"


def test_a_study_is_found_by_name_digest_or_the_beginning_of_one(scene, operator):
    for wanted in (scene.study.name, scene.study.digest, scene.study.digest[:20]):
        status = operator.operator.GetStudyStatus(operator_pb2.StudyRequest(study=wanted))
        assert status.study == scene.study.digest
    for wanted in ("", "f" * 64, "nothing"):
        with refused(
            Code.NOT_FOUND, "0 studies match|studies match ''; give the whole name, or at least 12 digits of the digest"
        ):
            operator.operator.GetStudyStatus(operator_pb2.StudyRequest(study=wanted))
    listed = operator.operator.ListStudies(operator_pb2.ListStudiesRequest()).studies
    assert scene.study.digest in {status.study for status in listed}


def test_a_study_is_created_once(scene, operator, authority):
    exists = f"named '{scene.study.name}' exists already"
    for study, says in (
        (scene.study, "; give the new one another name"),
        (tiny_study(name=scene.study.name), " and is running; abort it, or wait until it is over, or give the new one"),
    ):
        with refused(Code.ALREADY_EXISTS, f"{exists}{says}"):
            operator.operator.CreateStudy(create_request(authority, study))
    for canonical in (b"", b"{}", b"\xff", b'{"version": 1}'):
        with refused(Code.INVALID_ARGUMENT, ""):
            operator.operator.CreateStudy(operator_pb2.CreateStudyRequest(canonical=canonical))
    coupled = json.dumps(tiny_document(encoder={"mmd": 0.1})).encode()
    with refused(Code.INVALID_ARGUMENT, "batch_statistics: study.encoder.mmd"):
        operator.operator.CreateStudy(operator_pb2.CreateStudyRequest(canonical=coupled))


# --- what is malformed ----------------------------------------------------------------------------------------------
def test_numbers_from_another_version_are_refused(scene):
    silo = first(scene)
    place = codec.to_wire(silo.poll().place)
    with refused(Code.INVALID_ARGUMENT, "task: the number 77 is unknown to this version"):
        silo.silo.Confirm(silo_pb2.ConfirmRequest(place=place, task=77))
    with refused(Code.INVALID_ARGUMENT, "tensor: the number 77 is unknown to this version"):
        silo.silo.Download(silo_pb2.DownloadRequest(place=place, tensor=77, kind="sum")).next()
    with refused(Code.INVALID_ARGUMENT, "study: is not a SHA-256"):
        silo.silo.Answer(silo_pb2.AnswerRequest(place=common_pb2.Place(study="../..")))
    unknown = Place("f" * 64, 0, 1)
    with refused(Code.NOT_FOUND, "f" * 64):
        silo.answer(unknown)


def test_an_unforeseen_fault_tells_the_peer_nothing(scene, server, monkeypatch):
    def fail(*_):
        raise RuntimeError("/secret/path")  # noqa: EM101

    monkeypatch.setattr(server.engine, "text", fail)
    with refused(Code.INTERNAL, "^the coordinator failed; its log says why$"):
        first(scene).silo.GetStudy(silo_pb2.GetStudyRequest(study=scene.study.digest))


def test_a_silo_named_like_the_sum_is_counted_like_any_other(server, authority, operator, make_scene):
    scene = make_scene(silos=3, begin=False)
    assert not SUM_FILE.isalnum()
    names = ("sum", *list(scene.silos)[:1])
    study = tiny_study(name="with-sum", silos=names, min_silos=2, privacy={"colluders": 0})
    operator.operator.CreateStudy(create_request(authority, study))
    operator.operator.StartStudy(operator_pb2.StudyRequest(study=study.digest))
    silos = [
        Silo(server.port, authority.credential("silo", "sum"), study),
        Silo(server.port, scene.folders[names[1]], study),
    ]
    place = Place(study.digest, 0, 1)
    sent = [silo.contribution(place, Tensor.COUNTS) for silo in silos]
    while (work := silos[0].poll(hold=2)).task is not Task.OPEN:
        for silo, mine in ((silos[0], work), (silos[1], silos[1].poll())):
            if mine.task is not Task.WAIT:
                silo.do(mine)
    assert silos[0].download(place, "sum", Tensor.COUNTS) == summed("ckks", sent)
    assert server.engine._spool.complete(place, "counts", "sum").read_bytes() == sent[0]
    operator.operator.AbortStudy(operator_pb2.AbortStudyRequest(study=study.digest, reason="over"))
    for silo in silos:
        silo.close()


def test_a_caller_without_a_certificate_in_its_context_is_refused(server):
    class Context:
        def auth_context(self):
            return {}

    with pytest.raises(CertificateError, match="no client certificate was presented; enrol this machine"):
        certificate_of(Context())


def test_shapes_and_rings_agree(scene):
    for number in range(plan(scene.study).last + 1):
        for name in plan(scene.study).tensors(number):
            assert content_size(scene.study, number, Tensor(name)) == len(
                first(scene).contribution(Place("a" * 64, number, 1), Tensor(name))
            )


# --- the lease --------------------------------------------------------------------------------------------------------
class Left:
    """A service whose coordinator was replaced after so many looks at its lease."""

    def __init__(self, looks):
        self.looks, self.refusals = looks, self
        self.ended = []

    def require_lease(self):
        self.looks -= 1
        if self.looks < 0:
            raise LeaseLostError

    def end(self, context, error, call):
        self.ended.append((type(error), call))
        raise AssertionError

    @service.mapped
    def One(self, request, context):
        return request

    @service.mapped
    def Waits(self, request, context):
        return Later(None, "north", 1.0, lambda last: request if last else None)

    @service.mapped_stream
    def Many(self, request, context):
        yield from request


def test_no_answer_leaves_after_another_coordinator_has_taken_over():
    here = Left(2)
    assert (here.One("a", None), here.One("b", None)) == ("a", "b")
    with pytest.raises(AssertionError):
        here.One("c", None)
    assert here.ended == [(LeaseLostError, "One")]

    here = Left(1)
    later = here.Waits("a", None)
    assert (later.ask(False), here.looks) == (None, 1), "where nothing is said, nothing is looked at"
    assert later.ask(True) == "a"
    with pytest.raises(AssertionError):
        later.ask(True)
    assert here.ended == [(LeaseLostError, "Waits")]

    here = Left(2)
    stream = here.Many("abc", None)
    assert (next(stream), next(stream)) == ("a", "b"), "each message of a stream is an answer"
    with pytest.raises(AssertionError):
        next(stream)
    assert here.ended == [(LeaseLostError, "Many")]


@pytest.mark.parametrize("asked", ["lost", "cannot be asked", "held"])
def test_a_refusal_is_an_answer_too(asked):
    def look():
        if asked == "lost":
            raise LeaseLostError
        if asked == "cannot be asked":
            raise DatabaseShortError(asked)

    refusals = service.Refusals(None, None, None, None, look)
    error = service.ResumeError("resume at 5")
    found = refusals._unless_left_behind(error)
    assert found is error if asked != "lost" else isinstance(found, LeaseLostError)
