"""Sealed bytes on disk: grown, published whole, cleared; a full disk has a name."""

from __future__ import annotations

import errno
import os

import pytest

from coordinator.storage.spool import SUM_FILE, Spool, SpoolError, SpoolFullError
from protos.messages import MessageError, Place, require_name
from support.contents import listed
from support.databases import EPOCH
from support.rounds import STUDY

PLACE, NEXT = Place(STUDY, 1, 1), Place(STUDY, 1, 2)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool", EPOCH)


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


def test_a_probe_says_whether_a_file_can_be_written_and_leaves_none(spool, tmp_path, monkeypatch):
    spool.probe()
    assert not list((tmp_path / "spool" / str(EPOCH)).iterdir())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("coordinator.storage.spool.put_in_place", full)
    with pytest.raises(SpoolFullError):
        spool.probe()
    assert not list((tmp_path / "spool" / str(EPOCH)).iterdir())


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
        for way in (spool.partial, spool.complete, spool.chunks)
        for place in (PLACE, NEXT)
        for slot in ("heads", "note-heads")
        for silo in ("north", "south", SUM_FILE)
    }
    assert len(paths) == 36


def test_no_silo_bears_the_sum_s_name():
    with pytest.raises(MessageError):
        require_name(SUM_FILE, "silo")


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


def test_what_lies_behind_a_length_is_cut_off(spool):
    partial = spool.partial(PLACE, "heads", "north")
    spool.cut(partial, 0)
    spool.append(partial, 0, b"abcde")
    for length, left in ((9, b"abcde"), (5, b"abcde"), (3, b"abc"), (0, b"")):
        spool.cut(partial, length)
        assert partial.read_bytes() == left


def test_a_list_is_kept_in_place_of_another(spool):
    path = spool.chunks(PLACE, "heads", "north")
    assert spool.chunk_list(path) is None
    for content in (b"abc", b"other"):
        spool.keep_chunk_list(path, listed(content))
        assert spool.chunk_list(path) == listed(content)
    assert [found.name for found in path.parent.iterdir()] == ["north.chunks"]


@pytest.mark.parametrize("left", [b"", b"abc", bytes(40)])
def test_a_list_that_was_cut_is_none(spool, left):
    path = spool.chunks(PLACE, "heads", "north")
    spool.keep_chunk_list(path, listed(b"abc"))
    path.write_bytes(left)
    assert spool.chunk_list(path) is None


def test_a_full_disk_at_keeping_a_list(spool, monkeypatch):
    path = spool.chunks(PLACE, "heads", "north")
    spool.keep_chunk_list(path, listed(b"abc"))

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "write_bytes", fail)
        with pytest.raises(SpoolFullError):
            spool.keep_chunk_list(path, listed(b"other"))
    assert spool.chunk_list(path) == listed(b"abc")


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
        patch.setattr(os, "fsync", fail)
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


# --- another coordinator takes over -----------------------------------------------------------------------------------
def test_who_takes_over_has_the_files_and_who_is_left_behind_has_none(tmp_path):
    former = Spool(tmp_path / "spool", 3)
    complete = fill(former, PLACE)
    partial = former.partial(PLACE, "counts", "south")
    former.append(partial, 0, b"abc")
    later = Spool(tmp_path / "spool", 7)
    assert later.complete(PLACE, "heads", "north").read_bytes() == b"abc"
    assert later.length(later.partial(PLACE, "counts", "south")) == 3
    assert not complete.exists()
    with pytest.raises(ValueError, match="offset 3 is not the length 0"):
        former.append(partial, 3, b"de")
    former.clear(PLACE)
    former.sweep([])
    fill(former, NEXT, b"late")
    assert later.complete(PLACE, "heads", "north").read_bytes() == b"abc"
    assert not later.complete(NEXT, "heads", "north").exists()
    again = Spool(tmp_path / "spool", 8)
    assert again.complete(PLACE, "heads", "north").read_bytes() == b"abc", "of the last one, and not what was late"
    assert not again.complete(NEXT, "heads", "north").exists()
    assert [one.name for one in (tmp_path / "spool").iterdir()] == ["8"]


def test_a_file_that_a_former_coordinator_has_open_is_not_the_one_that_grows(tmp_path):
    former = Spool(tmp_path / "spool", 3)
    partial = former.partial(PLACE, "counts", "south")
    former.append(partial, 0, b"abc")
    with partial.open("ab") as late:
        later = Spool(tmp_path / "spool", 7)
        mine = later.partial(PLACE, "counts", "south")
        later.claim(mine)
        later.append(mine, 3, b"de")
        late.write(b"of the former")
    assert mine.read_bytes() == b"abcde"
    later.claim(mine)
    with mine.open("rb") as same:
        later.claim(mine)
        assert os.fstat(same.fileno()).st_ino == mine.stat().st_ino, "once is enough"
    later.claim(later.partial(PLACE, "heads", "north"))  # there is none


def test_a_spool_of_an_earlier_version_or_of_no_coordinator_is_taken_over(tmp_path):
    old = tmp_path / "spool" / STUDY / "1-1" / "heads"
    old.mkdir(parents=True)
    (old / "north.sealed").write_bytes(b"abc")
    assert Spool(tmp_path / "spool", 7).complete(PLACE, "heads", "north").read_bytes() == b"abc"
    assert Spool(tmp_path / "spool", 7).complete(PLACE, "heads", "north").read_bytes() == b"abc"
    Spool(tmp_path / "new", 1)
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["1"]


def test_a_spool_of_a_later_epoch_is_refused(tmp_path):
    complete = fill(Spool(tmp_path / "spool", 10), PLACE)
    with pytest.raises(SpoolError, match="was used under epoch 10, and the lease of the database has 9"):
        Spool(tmp_path / "spool", 9)
    assert complete.exists()
