import os
import re
import resource
from pathlib import Path

import pytest

from common.durable import (
    put_in_place,
    sync_file,
    sync_folder,
    write_folder,
    write_new,
    write_over,
    write_pieces,
    write_whole,
)

ROOT = Path(__file__).parents[2]
SYNCING = {
    "common/durable.py",
    "bench/mutants/operators.py",  # takes one away, to see whether a test misses it
}


@pytest.fixture
def synced(monkeypatch):
    """Names of what was synced, in order, and of what was put in place."""
    done = []

    def fsync(handle, real=os.fsync):
        done.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    def replace(path, target, real=Path.replace):
        done.append(f"{path.name} -> {target.name}")
        return real(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    return done


def test_content_is_synced_before_it_has_its_name_and_the_folder_after(tmp_path, synced):
    path = tmp_path / "deeper" / "new" / "file"
    write_whole(path, b"content")
    assert synced == ["file.new", "file.new -> file", "new"]
    assert path.read_bytes() == b"content"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_finished_file_of_another_name_is_put_in_place_the_same_way(tmp_path, synced):
    (tmp_path / "grown").write_bytes(b"content")
    put_in_place(tmp_path / "grown", tmp_path / "whole")
    assert synced == ["grown", "grown -> whole", tmp_path.name]
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_new_file_takes_a_free_name_whole(tmp_path, synced):
    folder = tmp_path / "deeper" / "new"
    write_new(folder / "file", b"content")
    assert synced[1:] == ["new"]
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("file", b"content")]
    assert ((folder / "file").stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_what_is_written_over_may_be_read_by_whom_the_user_lets(tmp_path):
    mask = os.umask(0)
    try:
        write_over(tmp_path / "file", b"longer")
        write_over(tmp_path / "file", b"content")
    finally:
        os.umask(mask)
    assert ((tmp_path / "file").read_bytes(), (tmp_path / "file").stat().st_mode & 0o777) == (b"content", 0o666)


def test_a_new_file_never_takes_a_name_that_is_taken(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "file", b"content")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_what_was_appended_has_left_the_program_when_it_is_synced(tmp_path, synced):
    (tmp_path / "log").write_bytes(b"old ")
    with (tmp_path / "log").open("ab") as file:
        file.write(b"new")
        sync_file(file)
        assert (tmp_path / "log").read_bytes() == b"old new"
    assert synced == ["log"]


def test_a_folder_is_synced_alone(tmp_path, synced):
    sync_folder(tmp_path)
    assert synced == [tmp_path.name]
    with pytest.raises(NotADirectoryError):
        sync_folder(Path(__file__))


@pytest.mark.parametrize("step", ["open", "piece", "sync", "rename"])
def test_what_fails_on_the_way_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_whole(path, b"old")

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    def pieces():
        yield b"new"
        if step == "piece":
            fail()

    with monkeypatch.context() as patch:
        if step == "open":
            patch.setattr(os, "open", fail)
        elif step == "sync":
            patch.setattr(os, "fsync", fail)
        elif step == "rename":
            patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="No space"):
            write_pieces(path, pieces())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_a_folder_that_cannot_be_synced_is_what_is_told_though_the_file_has_its_name(tmp_path, monkeypatch):
    real = os.fsync

    def fsync(handle):
        if Path(f"/proc/self/fd/{handle}").readlink() == tmp_path:
            raise OSError(5, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        write_whole(tmp_path / "file", b"content")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"content")]


def test_no_other_module_syncs_a_file():
    found = {
        str(path.relative_to(ROOT))
        for package in ("common", "protos", "crypto", "policies", "coordinator", "silo_agent", "deploy", "bench")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"os\.fsync|fdatasync|import .*fsync|fsync\(", path.read_text())
    }
    assert found == SYNCING


@pytest.fixture
def full():
    """A real limit of the system on a file's size, which stands in for a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("size", [50_000, 500], ids=["at_once", "at_the_end"])
@pytest.mark.parametrize("write", [write_whole, write_new, write_over])
def test_a_write_that_fails_names_the_file_its_size_and_the_room(tmp_path, write, size):
    """A small content waits in the program's buffer until the file is closed."""
    with pytest.raises(OSError, match=rf"while {size} bytes were written; \d+ bytes are free there: '{tmp_path}/f'"):
        write(tmp_path / "f", bytes(size))
    assert write is write_over or list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("full")
def test_a_piece_that_fails_is_told_and_not_the_full_disk_that_follows(tmp_path):
    def pieces():
        yield bytes(500)
        msg = "the piece"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="the piece"):
        write_pieces(tmp_path / "f", pieces())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator writes into folders of others")
def test_what_the_administrator_writes_into_a_users_folder_is_the_users(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 4711, 4712)
    write_whole(folder / "file", b"content")
    found = (folder / "file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o600)
    os.chown(folder, 0, 4712)
    write_whole(folder / "own", b"content")
    assert (folder / "own").stat().st_gid == os.getegid()


def test_a_folder_appears_whole_and_for_its_owner_alone(tmp_path):
    out = tmp_path / "new" / "made"
    assert write_folder(out, {"b": b"2", "a": b"1"}) == (out / "a", out / "b")
    assert [path.read_bytes() for path in sorted(out.iterdir())] == [b"1", b"2"]
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    (tmp_path / "empty").mkdir()
    write_folder(tmp_path / "empty", {"a": b"1"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_a_folder_or_file_that_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_bytes(b"mine")
    (tmp_path / "file").write_bytes(b"mine")
    for taken in ("full", "file"):
        with pytest.raises(FileExistsError, match="never overwritten; give a new folder"):
            write_folder(tmp_path / taken, {"a": b"1"})
    assert (tmp_path / "full" / "mine").read_bytes() == (tmp_path / "file").read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


@pytest.mark.usefixtures("full")
def test_a_folder_that_does_not_fit_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="500 bytes were written"):
        write_folder(tmp_path / "made", {"a": b"1", "b": bytes(500)})
    assert list(tmp_path.iterdir()) == []


def test_a_folders_name_is_synced_too(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("common.durable.sync_folder", synced.append)
    write_folder(tmp_path / "made", {"a": b"1"})
    assert synced[-1] == tmp_path
