"""The rows of a CSV file, told from each other whatever is wrong with one of them.

Guarantees that a row that cannot be read costs itself alone: where quotes do not close, the line on which the row
begins is left behind and reading goes on with the next one. A cell may have several lines, so a quote that a later row
happens to close makes one row of all between; it is seldom as wide as it must be, which is `table`'s matter.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from silo_agent.data.errors import Unfit


class _Lines:
    """Lines for `csv.reader`, which reads ahead of what it understands; `place` may be put back."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines, self.place = lines, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.place == len(self._lines):
            raise StopIteration
        self.place += 1
        return self._lines[self.place - 1]


def split_rows(lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str] | Unfit]]:
    """Every row with its last line, from 1: its cells (none of a blank line), or what is wrong with it.

    `lines` are decoded with `surrogateescape`. What is wrong is said without any text of the file.
    """
    source = _Lines(lines)
    # strict: a reader that is not takes an open quote's rest of the file for one cell.
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while source.place < len(lines):
        first = source.place
        try:
            cells = next(reader)
        except csv.Error as error:
            # The reader begins anew at its next call. A cell's largest size limits how far one row looks ahead.
            source.place = first + 1
            yield source.place, Unfit(f"cells parted by {delimiter!r}, quotes closed", str(error))
        else:
            if all(map(_is_utf8, lines[first : source.place])):
                yield source.place, cells
            else:
                yield source.place, Unfit("a CSV file saved as UTF-8", "bytes that are not UTF-8")


def _is_utf8(line: str) -> bool:
    """Whether nothing in it was escaped."""
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
