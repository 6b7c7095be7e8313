"""The agent's own files: a passing error of the system has a kind of its own there, and nowhere else."""

from __future__ import annotations

import errno
import os

import pytest

from silo_agent.storage.durable import sync_folder, write_pieces, write_whole
from silo_agent.storage.errors import ShortageError
from silo_agent.storage.own_files import own_files

PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.ENOMEM)
LASTING = (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)


@pytest.mark.parametrize("number", PASSING)
def test_a_passing_error_says_file_cause_and_fix(number):
    with pytest.raises(ShortageError, match=r"/state/keys.*; \w+") as raised, own_files():
        raise OSError(number, os.strerror(number), "/state/keys")
    assert os.strerror(number) in str(raised.value)


@pytest.mark.parametrize(
    "error", [OSError(number, "so", "/a") for number in LASTING] + [OSError("so"), ValueError("a")]
)
def test_every_other_error_stays_what_it_is(error):
    with pytest.raises(type(error)) as raised, own_files():
        raise error
    assert raised.value is error


def test_what_is_marked_already_stays_as_it_is():
    first = ShortageError("first")
    with pytest.raises(ShortageError) as raised, own_files(), own_files():
        raise first
    assert raised.value is first


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_whole(folder / "a", b"new"),
        lambda folder: write_pieces(folder / "a", [b"n", b"ew"]),
        sync_folder,
    ],
)
def test_every_durable_write_is_marked_and_leaves_what_was_there(write, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ShortageError, match="No space left on device"):
            write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"
