"""An upload is checked, published and recorded once, wherever a crash comes between."""

from __future__ import annotations

import hashlib

import pytest

from coordinator.intake import Intake
from coordinator.metrics import Metrics
from coordinator.spool import Spool
from coordinator.store import ContentConflictError, Store
from crypto.errors import FrameError
from protos.messages import Note, Place, Tensor, UploadHeader
from support.silos import sealed

PLACE = Place("5" * 64, 1, 1)
CONTENT = sealed(Tensor.HEADS, 9)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


@pytest.fixture
def store(tmp_path):
    made = Store.in_folder(tmp_path)
    yield made
    made.engine.dispose()


@pytest.fixture
def intake(store, spool):
    return Intake(store, spool, Metrics())


def header(content=CONTENT, tensor=Tensor.HEADS):
    digest = hashlib.sha256(content).hexdigest()
    if tensor is None:
        return UploadHeader(PLACE, str(Note.MODEL), None, "north", 0, len(content), digest)
    return UploadHeader(PLACE, tensor.ring, tensor, "north", 9, len(content), digest)


def partial(spool, head):
    return spool.partial(head.place, head.slot, head.silo)


def complete(spool, head):
    return spool.complete(head.place, head.slot, head.silo)


def test_an_upload_is_published_recorded_and_measured(intake, spool):
    head = header()
    spool.append(partial(spool, head), 0, CONTENT[:1000])
    assert (intake.recorded(head), intake.offset(head)) == (False, 1000)
    spool.append(partial(spool, head), 1000, CONTENT[1000:])
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
    intake.settle(head, b"signature")
    assert intake.recorded(head)
    assert complete(spool, head).read_bytes() == CONTENT


@pytest.mark.parametrize("left", [CONTENT[:-8], CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])], ids=["size", "digest"])
def test_what_a_crash_left_is_not_used_for_other_bytes(intake, spool, left):
    head = header()
    complete(spool, head).parent.mkdir(parents=True)
    complete(spool, head).write_bytes(left)
    assert intake.offset(head) == 0
    spool.append(partial(spool, head), 0, CONTENT)
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == CONTENT


def test_other_bytes_than_the_recorded_ones_are_refused(intake, spool):
    head = header()
    spool.append(partial(spool, head), 0, CONTENT)
    intake.settle(head, b"signature")
    with pytest.raises(ContentConflictError):
        intake.recorded(header(sealed(Tensor.HEADS, 9, seed=1)))


@pytest.mark.parametrize(
    ("head", "content", "error"),
    [
        (header(), CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), ValueError),
        (header(b"\xff" * 65536), b"\xff" * 65536, FrameError),
    ],
    ids=["another digest", "no frames"],
)
def test_bytes_that_are_not_what_they_should_be_are_forgotten(intake, spool, head, content, error):
    spool.append(partial(spool, head), 0, content)
    with pytest.raises(error):
        intake.settle(head, b"signature")
    assert (intake.offset(head), intake.recorded(head), complete(spool, head).exists()) == (0, False, False)


def test_a_note_is_relayed_unread(intake, spool):
    head = header(b"\xff" * 100, tensor=None)
    spool.append(partial(spool, head), 0, b"\xff" * 100)
    intake.settle(head, b"signature")
    assert complete(spool, head).read_bytes() == b"\xff" * 100


def test_bytes_that_are_gone_are_the_coordinator_s_fault(intake):
    with pytest.raises(FileNotFoundError):
        intake.settle(header(), b"signature")
