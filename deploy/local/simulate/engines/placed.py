"""Values that several processes of this machine read and none writes: their arrays are in memory once.

A value is pickled, and its arrays lie beside (protocol 5, "out of band") in one file, which every process maps. The
files are for processes of one run, in a folder of its user alone.
"""

from __future__ import annotations

import json
import mmap
import pickle
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

_VALUE, _ARRAYS, _WHERE = "value.pickle", "arrays", "where.json"
_ALIGNED: Final = 64
"""Bytes: where an array may begin, so that it can be read as fast as one of the process's own."""


def place(folder: Path, value: object) -> None:
    """Write a value to an empty folder."""
    buffers: list[pickle.PickleBuffer] = []
    (folder / _VALUE).write_bytes(pickle.dumps(value, protocol=5, buffer_callback=buffers.append))
    arrays = [buffer.raw() for buffer in buffers]
    begins = list(accumulate((_rounded(array.nbytes) for array in arrays), initial=0))
    with (folder / _ARRAYS).open("wb") as file:
        for array, (begin, end) in zip(arrays, pairwise(begins), strict=True):
            file.write(array)
            file.write(bytes(end - begin - array.nbytes))
    where = [(begin, array.nbytes) for begin, array in zip(begins, arrays, strict=False)]
    (folder / _WHERE).write_text(json.dumps(where), encoding="ascii")


def taken(folder: Path) -> Any:
    """The value that lies in this folder. Its arrays are read-only, and mapped."""
    where = json.loads((folder / _WHERE).read_bytes())
    with (folder / _ARRAYS).open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if where else b"")
    arrays = [mapped[begin : begin + size] for begin, size in where]
    return pickle.loads((folder / _VALUE).read_bytes(), buffers=arrays)  # noqa: S301  # of this run and this user


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED
