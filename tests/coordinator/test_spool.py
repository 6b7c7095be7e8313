"""Sealed bytes on disk: grown, published whole, cleared; a full disk has a name."""

from __future__ import annotations

import errno
import hashlib

import pytest

from coordinator import spool as spools
from coordinator.spool import SUM, Spool, SpoolFullError, digest, read_chunks
from protos.messages import MessageError, Place, require_name
from support.rounds import STUDY

PLACE, NEXT = Place(STUDY, 1, 1), Place(STUDY, 1, 2)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


def fill(spool, place, content=b"abc"):
    partial, complete = spool.partial(place, "heads", "north"), spool.complete(place, "heads", "north")
    spool.append(partial, 0, content)
    spool.publish(partial, complete)
    return complete


def test_an_upload_grows_and_is_published(spool):
    partial, complete = spool.partial(PLACE, "heads", "north"), spool.complete(PLACE, "heads", "north")
    assert spool.length(partial) == 0
    spool.append(partial, 0, b"abc")
    spool.append(partial, 3, b"de")
    assert (spool.length(partial), complete.exists()) == (5, False)
    spool.publish(partial, complete)
    assert (complete.read_bytes(), partial.exists()) == (b"abcde", False)
    assert digest(complete) == hashlib.sha256(b"abcde").hexdigest()


@pytest.mark.parametrize("offset", [0, 2, 4])
def test_bytes_follow_the_bytes_that_are_there(spool, offset):
    partial = spool.partial(PLACE, "heads", "north")
    spool.append(partial, 0, b"abc")
    with pytest.raises(ValueError, match=f"offset {offset} is not the length 3"):
        spool.append(partial, offset, b"x")
    assert partial.read_bytes() == b"abc"


def test_every_place_slot_and_silo_has_its_own_files(spool):
    paths = {
        way(place, slot, silo)
        for way in (spool.partial, spool.complete)
        for place in (PLACE, NEXT)
        for slot in ("heads", "note-heads")
        for silo in ("north", "south", SUM)
    }
    assert len(paths) == 24


def test_no_silo_bears_the_sum_s_name():
    with pytest.raises(MessageError):
        require_name(SUM, "silo")


def test_clear_forgets_one_attempt(spool):
    mine, other = fill(spool, PLACE), fill(spool, NEXT)
    spool.clear(PLACE)
    spool.clear(PLACE)
    assert (mine.exists(), other.exists()) == (False, True)


def test_sweep_forgets_all_but_the_current(spool):
    mine, other, foreign = fill(spool, PLACE), fill(spool, NEXT), fill(spool, Place("6" * 64, 1, 2))
    spool.sweep([NEXT])
    assert [path.exists() for path in (mine, other, foreign)] == [False, True, False]


def test_discard(spool):
    partial = spool.partial(PLACE, "heads", "north")
    spool.append(partial, 0, b"abc")
    spool.discard(partial)
    spool.discard(partial)
    assert spool.length(partial) == 0


def test_chunks_from_an_offset(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(10)))
    assert list(read_chunks(path, size=4)) == [bytes(range(4)), bytes(range(4, 8)), bytes((8, 9))]
    assert b"".join(read_chunks(path, 7)) == bytes((7, 8, 9))
    assert list(read_chunks(path, 10)) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["mkdir", "open"])
def test_a_full_disk_is_named_and_what_is_there_stays(spool, monkeypatch, number, call):
    partial = spool.partial(PLACE, "heads", "north")
    spool.append(partial, 0, b"abc")

    def fail(*_, **__):
        raise OSError(number, "full")

    with monkeypatch.context() as patch:
        patch.setattr(type(partial), call, fail)
        with pytest.raises(SpoolFullError, match="free space below its data folder, then resume"):
            spool.append(partial, 3, b"de")
    assert partial.read_bytes() == b"abc"
    spool.append(partial, 3, b"de")


def test_a_full_disk_at_publishing(spool, monkeypatch):
    partial = spool.partial(PLACE, "heads", "north")
    spool.append(partial, 0, b"abc")

    def fail(_):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(spools.os, "fsync", fail)
        with pytest.raises(SpoolFullError):
            spool.publish(partial, spool.complete(PLACE, "heads", "north"))
    assert not spool.complete(PLACE, "heads", "north").exists()


def test_another_fault_keeps_its_name(spool, monkeypatch):
    partial = spool.partial(PLACE, "heads", "north")

    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(type(partial), "open", fail)
    with pytest.raises(PermissionError):
        spool.append(partial, 0, b"abc")
