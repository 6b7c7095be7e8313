"""An upload is checked, published and recorded once, wherever a crash comes between."""

from __future__ import annotations

import pytest

from coordinator.metrics import CoordinatorMetrics
from coordinator.relay.intake import Intake
from coordinator.storage.spool import Spool
from coordinator.storage.store import ContentConflictError
from crypto.errors import FrameError
from crypto.rings.ckks_public import FRAME_BYTES
from protos import chunks
from protos.messages import MessageError, Place, Tensor, UploadHeader
from protos.steps import Note
from support.contents import digest_of, listed, pieces
from support.databases import EPOCH, store_in
from support.silos import sealed

PLACE = Place("5" * 64, 1, 1)
CONTENT = sealed("ckks", 9)
SIZE = 1000
"""Of a chunk here: the content has 28."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "MAX_CHUNK", SIZE)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool", EPOCH)


@pytest.fixture
def store(tmp_path):
    made = store_in(tmp_path)
    yield made
    made.engine.dispose()


@pytest.fixture
def intake(store, spool):
    return Intake(store, spool, CoordinatorMetrics())


def header(content=CONTENT, tensor=Tensor.HEADS):
    digest = digest_of(content)
    if tensor is None:
        return UploadHeader(PLACE, str(Note.MODEL), None, "north", 0, len(content), digest)
    return UploadHeader(PLACE, "ckks", tensor, "north", 9, len(content), digest)


def partial(spool, head):
    return spool.partial(head.place, head.slot, head.silo)


def complete(spool, head):
    return spool.complete(head.place, head.slot, head.silo)


def take(intake, head, content, upto=None):
    """A stream of an upload, up to a chunk; returns where it began."""
    listing = listed(content)
    begin = offset = intake.begin(head, listing)
    for piece in pieces(content[:upto])[begin // SIZE :]:
        intake.take(head, listing, offset, piece)
        offset += len(piece)
    return begin


def test_an_upload_is_published_recorded_and_measured(intake, spool):
    head = header()
    assert take(intake, head, CONTENT, 3 * SIZE) == 0
    assert (intake.recorded(head), intake.offset(head)) == (False, 3 * SIZE)
    assert take(intake, head, CONTENT) == 3 * SIZE
    assert (intake.recorded(head), intake.offset(head)) == (False, len(CONTENT))
    intake.settle(head, b"signature")
    assert intake.recorded(head)
    assert complete(spool, head).read_bytes() == CONTENT
    value = intake._metrics.registry.get_sample_value
    assert value("fedward_coordinator_received_bytes_total", {"kind": "ckks"}) == len(CONTENT)


def test_what_a_crash_left_complete_is_used(intake, spool):
    """The file has its final name; the process died before the record."""
    head = header()
    spool.append(partial(spool, head), 0, CONTENT)
    spool.publish(partial(spool, head), complete(spool, head))
    assert (intake.recorded(head), intake.offset(head)) == (False, len(CONTENT))
    assert intake.begin(head, listed(CONTENT)) == len(CONTENT)
    intake.settle(head, b"signature")
    assert intake.recorded(head)
    assert complete(spool, head).read_bytes() == CONTENT
    assert spool.chunk_list(spool.chunks(PLACE, head.slot, "north")) == listed(CONTENT)


def test_the_list_beside_what_a_crash_left_is_its_own(intake, spool):
    """Another upload was begun between the crash and the record."""
    head, other = header(), sealed("ckks", 9, seed=1)
    spool.append(partial(spool, head), 0, CONTENT)
    spool.publish(partial(spool, head), complete(spool, head))
    take(intake, header(other), other, SIZE)
    intake.settle(head, b"signature")
    assert spool.chunk_list(spool.chunks(PLACE, head.slot, "north")) == listed(CONTENT)


@pytest.mark.parametrize("left", [CONTENT[:-8], CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])], ids=["size", "digest"])
def test_what_a_crash_left_is_not_used_for_other_bytes(intake, spool, left):
    head = header()
    complete(spool, head).parent.mkdir(parents=True)
    complete(spool, head).write_bytes(left)
    assert intake.offset(head) == 0
    assert take(intake, head, CONTENT) == 0
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == CONTENT


def test_other_bytes_than_the_recorded_ones_are_refused(intake, spool):
    head = header()
    take(intake, head, CONTENT)
    intake.settle(head, b"signature")
    with pytest.raises(ContentConflictError):
        intake.recorded(header(sealed("ckks", 9, seed=1)))


def test_bytes_that_are_no_frames_are_forgotten(intake, spool):
    content = b"\xff" * FRAME_BYTES
    head = header(content)
    take(intake, head, content)
    with pytest.raises(FrameError):
        intake.settle(head, b"signature")
    assert (intake.offset(head), intake.recorded(head), complete(spool, head).exists()) == (0, False, False)


# --- chunks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [0, 13, 27], ids=["first", "middle", "last"])
def test_a_chunk_that_was_altered_is_refused_by_number_and_nothing_else_lost(intake, spool, at):
    head, listing, right = header(), listed(CONTENT), pieces(CONTENT)
    take(intake, head, CONTENT, at * SIZE)
    altered = right[at][:-1] + bytes([right[at][-1] ^ 1])
    for wrong in (altered, right[at][:-1], right[at] + b"x", b"", right[at - 1]):
        with pytest.raises(MessageError, match=f"are not chunk {at + 1} of 28 as it was announced"):
            intake.take(head, listing, at * SIZE, wrong)
    assert spool.length(partial(spool, head)) == at * SIZE
    assert take(intake, head, CONTENT) == at * SIZE
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == CONTENT


@pytest.mark.parametrize("length", [1, SIZE - 1, SIZE + 1, 5 * SIZE + 500, len(CONTENT) - 1])
def test_a_chunk_that_a_crash_has_cut_comes_again(intake, spool, length):
    head = header()
    take(intake, head, CONTENT)
    spool.cut(partial(spool, head), length)
    whole = length - length % SIZE
    assert intake.offset(head) == whole
    assert take(intake, head, CONTENT) == whole
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == CONTENT


@pytest.mark.parametrize(("altered", "stands"), [(0, 0), (5 * SIZE + 7, 5 * SIZE), (len(CONTENT) - 1, 27 * SIZE)])
def test_what_the_disk_has_altered_is_found_when_the_upload_goes_on(intake, spool, altered, stands):
    head = header()
    take(intake, head, CONTENT)
    content = bytearray(CONTENT)
    content[altered] ^= 1
    partial(spool, head).write_bytes(content)
    assert intake.begin(head, listed(CONTENT)) == stands
    assert partial(spool, head).read_bytes() == CONTENT[:stands]
    assert intake.offset(head) == stands
    take(intake, head, CONTENT)
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [None, b"", b"cut"])
def test_a_list_that_a_power_cut_took_begins_the_upload_anew(intake, spool, left):
    head = header()
    take(intake, head, CONTENT, 3 * SIZE)
    path = spool.chunks(PLACE, head.slot, "north")
    path.unlink() if left is None else path.write_bytes(left)
    assert intake.offset(head) == 0
    assert take(intake, head, CONTENT) == 0
    assert (intake.offset(head), spool.chunk_list(path)) == (len(CONTENT), listed(CONTENT))


def test_bytes_of_another_upload_are_not_gone_on_with(intake, spool):
    other = sealed("ckks", 9, seed=1)
    take(intake, header(), CONTENT, 3 * SIZE)
    assert intake.offset(header(other)) == 0
    assert take(intake, header(other), other) == 0
    intake.settle(header(other), b"signature")
    assert complete(spool, header(other)).read_bytes() == other


def test_a_restarted_coordinator_goes_on_at_the_same_chunk(intake, store, spool):
    take(intake, header(), CONTENT, 9 * SIZE)
    again = Intake(store, spool, CoordinatorMetrics())
    assert again.offset(header()) == 9 * SIZE
    assert take(again, header(), CONTENT) == 9 * SIZE
    again.settle(header(), b"signature")
    assert complete(spool, header()).read_bytes() == CONTENT


# --- what is uploaded -------------------------------------------------------------------------------------------------
def test_a_note_is_relayed_unread(intake, spool):
    head = header(b"\xff" * 100, tensor=None)
    take(intake, head, b"\xff" * 100)
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == b"\xff" * 100


@pytest.mark.parametrize(
    ("kind", "length", "fits"), [("ring32", 36, True), ("ring32", 37, False), ("ring64", 36, False)]
)
def test_a_contribution_is_checked_in_the_ring_that_it_names(intake, spool, kind, length, fits):
    content = sealed("ring32", 10)[:length]
    digest = digest_of(content)
    head = UploadHeader(PLACE, kind, Tensor.ENCODER, "north", 9, length, digest)
    take(intake, head, content)
    if fits:
        intake.settle(head, b"signature")
    else:
        with pytest.raises(FrameError):
            intake.settle(head, b"signature")
    assert intake.recorded(head) is fits


def test_what_reveals_a_tensor_is_a_note_and_no_contribution_to_it(intake, spool):
    content = b"\xff" * 101
    head = UploadHeader(PLACE, "reveal", Tensor.HEADS, "north", 0, 101, digest_of(content))
    take(intake, head, content)
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == content
    assert complete(spool, head) != complete(spool, header()), "it has a slot of its own"


def test_bytes_that_are_gone_are_the_coordinator_s_fault(intake):
    with pytest.raises(FileNotFoundError):
        intake.settle(header(), b"signature")
