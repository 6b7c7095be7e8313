"""The rows of a CSV file, a block of lines at a time.

Guarantees: a row is what `csv_rows` makes of its line alone. Lines that leave no doubt (cells without quotes, or within
quotes that open and close at the cell's ends) are split by Arrow all at once; every other line is split by itself. So
no line's quote or fault has any effect on another line. Memory follows from the size of a block, and from the longest
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from policies.documents.sections.spelling import UTF_8
from silo_agent.data.cells import MAX_TEXT
from silo_agent.data.columns.arrow_cells import ArrowCells
from silo_agent.data.csv_rows import MARK, split_line
from silo_agent.data.errors import Unfit

BLOCK_BYTES: Final = 4 << 20
_END, _QUOTE = ord("\n"), ord('"')
_BEYOND_ASCII: Final = 128
_TEXT: Final = pa.string()
_NO_UTF_8: Final = b"\xff"


@dataclass(frozen=True, repr=False, eq=False)
class BrokenLine:
    """A line that is no row: its number from 1, what it holds, and what it should hold."""

    line: int
    found: str
    expected: str

    def __repr__(self) -> str:
        return "BrokenLine(<private>)"


@dataclass(frozen=True, repr=False, eq=False)
class CsvRows:
    """Rows of one block: the `lines` they stand in, (n,), and the cells of each column that was asked for."""

    lines: NDArray[np.int64]
    columns: tuple[ArrowCells, ...]
    broken: tuple[BrokenLine, ...]

    def __repr__(self) -> str:
        return "CsvRows(<private>)"


def line_blocks(file: BinaryIO, size: int = BLOCK_BYTES, *, encoding: str = UTF_8) -> Iterator[bytes]:
    """Yield a file as blocks of whole lines in UTF-8, each of which ends with LF.

    In the file they end with LF, CR, or both. A line that is not of the `encoding` (one of
    `policies.documents.sections.spelling`, in which no character has the byte of a line's end) is no UTF-8 either.
    """
    for block in _whole_lines(file, size):
        yield block if encoding == UTF_8 else _in_utf_8(block, encoding)


def _in_utf_8(block: bytes, encoding: str) -> bytes:
    try:
        return block.decode(encoding).encode()
    except UnicodeError:
        return b"".join(_line_in_utf_8(line, encoding) for line in block.splitlines(keepends=True))


def _line_in_utf_8(line: bytes, encoding: str) -> bytes:
    try:
        return line.decode(encoding).encode()
    except UnicodeError:
        return _NO_UTF_8 + b"\n"


def _whole_lines(file: BinaryIO, size: int) -> Iterator[bytes]:
    rest = b""
    # A line that is longer than a block is read in larger and larger steps, so that it is not copied too often.
    while chunk := file.read(max(size, len(rest))):
        content = rest + chunk
        # A CR at the very end may be the first half of CR LF.
        end = max(content.rfind(b"\n"), content.rfind(b"\r", 0, len(content) - 1)) + 1
        rest = content[end:]
        if end:
            yield _ended(content[:end])
    if rest:
        yield _ended(rest)


def _ended(content: bytes) -> bytes:
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return content if content.endswith(b"\n") else content + b"\n"


def rows_of_block(block: bytes, first: int, delimiter: str, width: int, places: Sequence[int]) -> CsvRows:
    """Split a block (of `line_blocks`) whose first line is the file's line `first`, from 1.

    Every row has `width` cells, of which those at `places` are returned. Blank lines are no rows.
    """
    lines = _Lines(block, delimiter, width)
    columns = lines.split_at_once(places)
    numbers, rows, broken = [], [], []
    for place in np.flatnonzero(lines.by_itself).tolist():
        cells = split_line(lines[place], delimiter)
        if isinstance(cells, Unfit):
            broken.append(BrokenLine(first + place, cells.found, cells.expected))
        elif cells and len(cells) != width:
            broken.append(BrokenLine(first + place, f"{len(cells)} cells", f"{width} cells"))
        elif cells:
            numbers.append(place)
            rows.append([cells[column] for column in places])
    found = np.flatnonzero(lines.clear)
    if rows:
        found = np.concatenate([found, np.array(numbers, np.int64)])
        order = np.argsort(found)
        found = found[order]
        apart = (pa.array(cells, _TEXT) for cells in zip(*rows, strict=True))
        columns = tuple(pa.concat_arrays([own, more]).take(order) for own, more in zip(columns, apart, strict=True))
    return CsvRows(first + found, tuple(map(ArrowCells, columns)), tuple(broken))


class _Lines:
    """The lines of a block. `clear` (lines,) marks those with `width` cells beyond doubt, `by_itself` the others.

    A blank line is neither.
    """

    def __init__(self, block: bytes, delimiter: str, width: int) -> None:
        self._block, self._delimiter, self._width = block, delimiter, width
        self._seen = np.frombuffer(block, np.uint8)
        self._ends = np.flatnonzero(self._seen == _END)
        self._lengths = np.diff(self._ends, prepend=-1) - 1
        blank = self._lengths == 0
        self.clear = ~blank & (self._lengths <= MAX_TEXT)
        parting = delimiter.encode()
        if len(parting) == 1:
            self._spoil_undecodable()
            self._spoil_by_cells(parting[0])
        else:
            self.clear[:] = False
        self.by_itself = ~self.clear & ~blank

    def __getitem__(self, place: int) -> bytes:
        """A line without its end."""
        return self._block[self._ends[place] - self._lengths[place] : self._ends[place]]

    def split_at_once(self, places: Sequence[int]) -> tuple[pa.Array, ...]:
        """The columns of the lines that are clear. If Arrow finds other rows in them than lines, none is clear."""
        found = self._split(places) if self.clear.any() else None
        if found is None:
            self.by_itself |= self.clear
            self.clear[:] = False
            return tuple(pa.array([], _TEXT) for _ in places)
        return found

    def _split(self, places: Sequence[int]) -> tuple[pa.Array, ...] | None:
        block = self._block
        if self.by_itself.any():
            block = self._seen[np.repeat(self.clear, self._lengths + 1)].tobytes()
        names = [str(place) for place in range(self._width)]
        asked = [str(place) for place in places]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(block),
                pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
                pyarrow.csv.ParseOptions(delimiter=self._delimiter, quote_char='"' if b'"' in block else False),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, _TEXT), include_columns=asked, strings_can_be_null=False
                ),
            )
        except ValueError:  # Arrow's own, or of a delimiter that it does not take
            return None
        if table.num_rows != self.clear.sum():
            return None
        return tuple(pa.concat_arrays(table.column(name).chunks) for name in asked)

    def _spoil_undecodable(self) -> None:
        """Take out lines that begin with a mark of UTF-8, hold a zero byte, or may not be UTF-8."""
        if MARK in self._block:
            starts = (self._ends - self._lengths).tolist()
            self.clear[[self._block.startswith(MARK, start) for start in starts]] = False
        if b"\0" in self._block:
            self.clear[self._lines_of(self._seen == 0)] = False
        try:
            self._block.decode()
        except UnicodeDecodeError:
            self.clear[self._lines_of(self._seen >= _BEYOND_ASCII)] = False

    def _spoil_by_cells(self, parting: int) -> None:
        """Take out lines of another width, and those in which a quote stands elsewhere than at a cell's ends."""
        cuts = np.flatnonzero(self._seen == parting)
        if b'"' in self._block:
            marks = self._seen == _QUOTE
            quotes = np.flatnonzero(marks)
            counts = np.diff(np.searchsorted(quotes, self._ends), prepend=0)
            of_line = np.repeat(np.arange(len(counts)), counts)
            even = counts % 2 == 0
            if not even.all():
                self.clear &= even
                marks[quotes[~even[of_line]]] = False
                quotes, of_line = quotes[even[of_line]], of_line[even[of_line]]
            # Of every line the quotes open and close by turns. Before the first byte stands the last: an end of line.
            opened, closed = quotes[0::2], quotes[1::2]
            outside = np.zeros(256, np.bool_)
            outside[[parting, _END]] = True
            at_ends = outside[self._seen[opened - 1]] & outside[self._seen[closed + 1]]
            self.clear[of_line[0::2][~at_ends]] = False
            cuts = cuts[~_odd(marks)[cuts]]
        counts = np.diff(np.searchsorted(cuts, self._ends), prepend=0)
        self.clear &= counts == self._width - 1

    def _lines_of(self, bytes_: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.unique(np.searchsorted(self._ends, np.flatnonzero(bytes_)))


def _odd(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether an odd number of marks stands at a place or before it, (n,): 64 places at once."""
    bits = np.packbits(marks, bitorder="little")
    words = np.zeros(-(-len(bits) // 8), "<u8")
    words.view(np.uint8)[: len(bits)] = bits
    for step in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(step)
    turned = np.logical_xor.accumulate(words >> np.uint64(63) != 0)
    words[1:][turned[:-1]] ^= np.uint64(2**64 - 1)
    return np.unpackbits(words.view(np.uint8), count=len(marks), bitorder="little").view(np.bool_)
