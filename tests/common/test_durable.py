import os
import resource
from pathlib import Path

import pytest

from common.durable import put_in_place, sync_file, sync_folder, write_new, write_over, write_pieces, write_whole

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
    path = tmp_path / "new" / "file"
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
    write_new(tmp_path / "new" / "file", b"content")
    assert synced[1:] == ["new"]
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "new").iterdir()] == [("file", b"content")]


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


def test_no_other_module_syncs_a_file():
    found = {
        str(path.relative_to(ROOT))
        for package in ("common", "protos", "crypto", "policies", "coordinator", "silo_agent", "deploy", "bench")
        for path in (ROOT / package).rglob("*.py")
        if "fsync" in path.read_text()
    }
    assert found == SYNCING


@pytest.mark.parametrize("write", [write_whole, write_new, write_over])
def test_a_write_that_fails_names_the_file_its_size_and_the_room(tmp_path, write):
    """A real limit of the system on a file's size stands in for a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=rf"while 50000 bytes were written; \d+ bytes are free there: '{tmp_path}/f'"):
            write(tmp_path / "f", bytes(50_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert write is write_over or list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator writes into folders of others")
def test_what_the_administrator_writes_into_a_users_folder_is_the_users(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 4711, 4712)
    write_whole(folder / "file", b"content")
    found = (folder / "file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (4711, 4712, 0o600)
