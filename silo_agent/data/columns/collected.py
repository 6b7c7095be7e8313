"""An array whose rows come a few at a time: in memory, or beyond a size in a file without a name, mapped into memory.

Guarantees: the whole never lies in memory twice. The file has no name from its beginning, so nobody else can open it,
and its room is free again as soon as nothing uses the array, also after a kill. Where there is no room for it, the
array lies in memory, whatever its size.
"""

from __future__ import annotations

import mmap
import sys
import tempfile
from typing import IO, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)
IN_MEMORY: Final = 192 << 20
"""Bytes of an array from which on it lies in a file."""
_FIRST: Final = 1 << 16
_AT_ONCE: Final = 1 << 24


class Collected(Generic[S]):
    """Rows of the shape `row` and of one type. `whole` gives them all; nothing is added after it."""

    def __init__(self, kind: type[S], row: tuple[int, ...] = (), in_memory: int = IN_MEMORY) -> None:
        self._kind, self._row, self._in_memory = kind, row, in_memory
        self._rows = self._end = 0
        self._memory: mmap.mmap | None = None
        self._file: IO[bytes] | None = None

    def add(self, rows: NDArray[S]) -> None:
        """Add rows, (n, *row)."""
        part = np.ascontiguousarray(rows, self._kind).reshape(len(rows), *self._row)
        begin, self._end = self._end, self._end + part.nbytes
        self._rows += len(part)
        if self._end > self._in_memory:
            try:
                self._to_file(part.tobytes(), begin)
            except OSError:  # no room, or no folder for temporary files
                self._back_to_memory(begin)
        if self._file is None and part.nbytes:
            self._of_size(self._end)[begin : self._end] = part.tobytes()

    def _to_file(self, part: bytes, begin: int) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # the array closes it
            if self._memory is not None:
                _write(self._file, self._memory[:begin])
        _write(self._file, part)
        self._memory = None

    def _back_to_memory(self, size: int) -> None:
        """Take back what was written, if memory has it no more, and stay in memory."""
        file, self._file, self._in_memory = self._file, None, sys.maxsize
        if file is None:
            return
        if self._memory is None and size:
            file.seek(0)
            memory, begin = self._of_size(size), 0
            while part := file.read(min(_AT_ONCE, size - begin)):
                memory[begin : begin + len(part)] = part
                begin += len(part)
        file.close()

    def whole(self) -> NDArray[S]:
        """All rows, (n, *row), in the order in which they came."""
        shape = (self._rows, *self._row)
        if self._file is not None:
            return np.memmap(self._file, self._kind, "r", shape=shape)
        if self._memory is None:
            return np.zeros(shape, self._kind)
        return np.frombuffer(memoryview(self._memory)[: self._end], self._kind).reshape(shape)

    def _of_size(self, size: int) -> mmap.mmap:
        """The memory, grown to hold so many bytes: the system moves its pages and copies none."""
        if self._memory is None:
            self._memory = mmap.mmap(-1, max(size, _FIRST), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        elif len(self._memory) < size:
            self._memory.resize(max(size, len(self._memory) + len(self._memory) // 2))
        return self._memory


def _write(file: IO[bytes], content: bytes) -> None:
    """Write all of it; a raw file may take a part at a time."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
