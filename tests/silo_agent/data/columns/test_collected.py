import io
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.columns import collected as collected_module
from silo_agent.data.columns.collected import Collected


@given(st.lists(st.integers(0, 5), max_size=6), st.sampled_from([(), (3,)]), st.sampled_from([0, 40, 1 << 20]))
def test_rows_come_back_in_their_order_from_memory_and_from_a_file(sizes, row, in_memory):
    collected, parts = Collected(np.float32, row, in_memory), []
    for place, size in enumerate(sizes):
        parts.append(np.arange(size * max(1, len(row) * 3), dtype=np.float32).reshape(size, *row) + 100 * place)
        collected.add(parts[-1])
    found = collected.whole()
    expected = np.concatenate([np.zeros((0, *row), np.float32), *parts])
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    assert np.array_equal(found, expected)
    assert isinstance(found, np.memmap) == (expected.nbytes > in_memory)


def test_rows_of_another_type_become_rows_of_this_type():
    collected = Collected(np.int64)
    collected.add(np.array([1, 2], np.int32)[::-1])
    assert collected.whole().tolist() == [2, 1]


def test_the_file_has_no_name(tmp_path, monkeypatch):
    """Nobody else can open it, and nothing of it is left after a kill."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    collected = Collected(np.int64, in_memory=0)
    collected.add(np.arange(1000))
    whole = collected.whole()
    assert list(tmp_path.iterdir()) == []
    assert whole.sum() == 499500


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of a process")
def test_the_whole_never_lies_in_memory_twice():
    script = """
import resource
import numpy as np
from silo_agent.data.columns import collected as collected_module
from silo_agent.data.columns.collected import Collected
collected, part = Collected(np.float32, (64,)), np.ones((4096, 64), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(128):
    collected.add(part)
whole = collected.whole()
assert whole.sum() == 128 * 4096 * 64
assert not isinstance(whole, np.memmap), "in memory"
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >> 10 < 128 * 1.3, "MiB, of an array of 128"


class Full(io.BytesIO):
    """A file on a disk that has room for so many bytes, and takes a few at a time."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def write(self, content):
        taken = min(len(content), 7, self.room - self.tell())
        if not taken:
            raise OSError(28, "No space left on device")
        return super().write(content[:taken])


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 60), st.sampled_from([0, 20]))
def test_where_no_room_is_rows_lie_in_memory(sizes, room, in_memory):
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collected_module.tempfile, "TemporaryFile", lambda **_: made.append(Full(room)) or made[-1])
        collected, parts = Collected(np.float32, (), in_memory), []
        for place, size in enumerate(sizes):
            parts.append(np.arange(size, dtype=np.float32) + 100 * place)
            collected.add(parts[-1])
    expected = np.concatenate([np.zeros(0, np.float32), *parts])
    if expected.nbytes > room:
        assert np.array_equal(collected.whole(), expected)
        assert all(file.closed for file in made)
    assert len(made) <= 1, "once it is known, nothing is tried again"


def test_without_a_folder_for_temporary_files_rows_lie_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    collected = Collected(np.int64, in_memory=0)
    for begin in (0, 10):
        collected.add(np.arange(begin, begin + 10))
    assert collected.whole().tolist() == list(range(20))
