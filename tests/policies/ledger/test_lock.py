from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from policies.errors import LedgerBusyError, LedgerWriteError
from policies.ledger.lock import WriterLock

HOLD = """
import sys, time
from pathlib import Path
from policies.ledger.lock import WriterLock
seat = WriterLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_the_seat_is_taken_once_in_a_process(tmp_path):
    seat = WriterLock(tmp_path / "seat")
    with pytest.raises(LedgerBusyError, match="another process"):
        WriterLock(tmp_path / "seat")
    assert opened(tmp_path / "seat") == 1, "whoever was refused keeps nothing open"
    seat.leave()
    seat.leave()
    WriterLock(tmp_path / "seat").leave()
    assert opened(tmp_path / "seat") == 0


def opened(path):
    """How many descriptors of this process lead to a file."""
    return [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()].count(str(path.resolve()))


def test_the_seat_is_taken_once_on_a_machine_and_freed_by_death(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "seat"], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(LedgerBusyError):
            WriterLock(tmp_path / "seat")
        other.send_signal(signal.SIGKILL)
        other.wait()
    WriterLock(tmp_path / "seat").leave()


def test_a_seat_that_cannot_be_made_is_named(tmp_path):
    with pytest.raises(LedgerWriteError, match="lock file"):
        WriterLock(tmp_path / "absent" / "seat")
