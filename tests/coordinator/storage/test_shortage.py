"""Which errors say only that the machine lacks something, and what its operator reads of them."""

from __future__ import annotations

import errno
import os
import sqlite3

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError

from coordinator.storage.shortage import DatabaseShortError, shortage_of
from coordinator.storage.spool import SpoolFullError

PATH = "/var/lib/fedward/spool/a"


@pytest.mark.parametrize(
    ("number", "lack", "fix"),
    [
        (errno.EMFILE, "files", "LimitNOFILE"),
        (errno.ENFILE, "files", "LimitNOFILE"),
        (errno.ENOSPC, "disk", "make room"),
        (errno.EDQUOT, "disk", "make room"),
        (errno.EIO, "disk", "check the disk"),
        (errno.EROFS, "disk", "read-only"),
        (errno.ENOMEM, "memory", "free memory"),
        (errno.EACCES, "other", "fix the owner"),
    ],
)
def test_an_error_of_the_system_names_file_cause_and_fix(number, lack, fix):
    shortage = shortage_of(OSError(number, os.strerror(number), PATH))
    assert shortage.lack == lack
    assert PATH in shortage.told
    assert os.strerror(number) in shortage.told
    assert fix in shortage.told
    assert PATH not in shortage.outside


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "gone", PATH),
        FileExistsError(errno.EEXIST, "there", PATH),
        NotADirectoryError(errno.ENOTDIR, "a file", PATH),
        IsADirectoryError(errno.EISDIR, "a folder", PATH),
        OSError("a sentence of the program's own"),
        ValueError("wrong"),
        RuntimeError("wrong"),
        IntegrityError("INSERT", {}, sqlite3.IntegrityError("UNIQUE")),
        StatementError("wrong", "SELECT", {}, ValueError("wrong")),
    ],
)
def test_how_things_are_is_no_shortage(error):
    assert shortage_of(error) is None


@pytest.mark.parametrize(
    ("cause", "fix"),
    [
        ("database or disk is full", "make room on its disk"),
        ("database is locked", "a faster disk"),
        ("unable to open database file", "limit of open files"),
        ("attempt to write a readonly database", "mode of the file"),
        ("disk I/O error", "check the disk"),
        ("server closed the connection\nunexpectedly", "its server"),
    ],
)
def test_a_database_says_in_a_sentence_what_is_wrong(cause, fix):
    shortage = shortage_of(OperationalError("UPDATE secret", {"secret": 1}, sqlite3.OperationalError(cause)))
    assert shortage.lack == "database"
    assert cause.partition("\n")[0] in shortage.told
    assert fix in shortage.told
    assert "secret" not in shortage.told
    assert "\n" not in shortage.told


def test_memory_and_what_was_named_before():
    assert shortage_of(MemoryError()).lack == "memory"
    assert shortage_of(DatabaseShortError("it is full")).told == "it is full"
    full = shortage_of(SpoolFullError(OSError(errno.ENOSPC, "No space", PATH)))
    assert (full.lack, PATH in full.told) == ("disk", True)
