"""What the C library is told of memory, seen in a process of its own."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from common.memory import give_back_freed

PROGRAM = """
import ctypes, sys, tempfile, threading
from common.memory import give_back_freed

if sys.argv[1] == "told":
    assert give_back_freed() is True
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.free.argtypes = libc.fclose.argtypes = [ctypes.c_void_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
ready, go = threading.Barrier(9), threading.Event()

def work():
    blocks = [libc.malloc(1000) for _ in range(50)]
    ready.wait()
    go.wait()
    for block in blocks:
        libc.free(block)

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
ready.wait()
with tempfile.NamedTemporaryFile() as file:
    told = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, told)
    libc.fclose(told)
    said = file.read().decode()
go.set()
arenas = said.count("<heap ")
large = [libc.malloc(8 << 20) for _ in range(8)]
for block in large:
    libc.free(block)  # glibc learns from these that such blocks are usual, unless it was told
kept = [libc.malloc(size) for size in (8 << 20, 100 << 10)]
with open("/proc/self/maps") as maps:
    starts = {int(line.split("-")[0], 16) for line in maps}
print(arenas, *(block & ~0xFFF in starts for block in kept))
"""


def seen(how: str) -> tuple[int, str]:
    """How many arenas eight threads have, and whether a large block and a smaller one have mappings of their own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    arenas, mapped = done.stdout.strip().split(" ", 1)
    return int(arenas), mapped


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc alone can be told")
def test_threads_share_two_arenas_and_large_blocks_go_back_at_once():
    assert seen("told") == (2, "True False")
    arenas, mapped = seen("untold")
    assert arenas > 2
    assert mapped == "False False"


def test_another_library_is_told_nothing(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert not give_back_freed()
