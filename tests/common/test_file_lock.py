from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common.file_lock import lock, lock_at_once, one_at_a_time

HOLD = """
import sys, time
from pathlib import Path
from common.file_lock import one_at_a_time
with one_at_a_time(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_who_does_not_wait_is_refused_until_the_file_is_closed(tmp_path):
    with (tmp_path / "lock").open("a") as first, (tmp_path / "lock").open("a") as second:
        lock_at_once(first)
        with pytest.raises(BlockingIOError):
            lock_at_once(second)
        first.close()
        lock_at_once(second)


def test_a_lock_is_of_the_file_whatever_holds_it_open(tmp_path):
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    lock(handle)
    with (tmp_path / "lock").open("rb") as other, pytest.raises(BlockingIOError):
        lock_at_once(other)
    os.close(handle)


def test_who_waits_comes_after_who_holds(tmp_path):
    done, waiting = [], threading.Event()

    def second():
        waiting.set()
        with one_at_a_time(tmp_path / "lock"):
            done.append("second")

    other = threading.Thread(target=second)
    with one_at_a_time(tmp_path / "lock"):
        other.start()
        waiting.wait()
        other.join(0.1)
        done.append("first")
    other.join()
    assert done == ["first", "second"]


def test_death_frees_a_lock(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "lock"], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with (tmp_path / "lock").open("rb") as file, pytest.raises(BlockingIOError):
            lock_at_once(file)
        other.send_signal(signal.SIGKILL)
        other.wait()
    with one_at_a_time(tmp_path / "lock"):
        pass


def test_a_lock_file_and_its_folder_are_their_owners_alone_and_stay(tmp_path):
    path = tmp_path / "deeper" / "new" / "lock"
    with one_at_a_time(path):
        pass
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_no_other_module_locks_files():
    root = Path(__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for package in ("common", "protos", "crypto", "policies", "coordinator", "silo_agent", "deploy", "bench")
        for path in (root / package).rglob("*.py")
        if "fcntl" in path.read_text() and "learning" not in path.parts  # the personal model's process locks its log
    }
    assert found == {"common/file_lock.py"}
