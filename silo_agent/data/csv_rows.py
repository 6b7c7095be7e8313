"""Splits a CSV file into rows, even if some of them are broken.

Guarantees: a row that cannot be read does not affect other rows. If its quotes do not close, its first line is skipped
and reading goes on with the next line. A cell may have several lines, so if a later row happens to close an open quote,
everything between becomes one row. Such a row rarely has the right width; `table` checks this.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from silo_agent.data.errors import Unfit


class _Lines:
    """Lines for `csv.reader`, which reads further than it can parse. So `place` can be set back."""

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
    """Yield every row as the number of its last line, from 1, and its cells (none for a blank line) or its fault.

    `lines` are decoded with `surrogateescape`. A fault quotes no text of the file.
    """
    source = _Lines(lines)
    # strict, because otherwise the reader takes the rest of the file after an open quote for one cell.
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    while source.place < len(lines):
        first = source.place
        try:
            cells = next(reader)
            decoded = all(map(_is_utf8, lines[first : source.place]))
        except csv.Error as error:
            # The reader begins again at its next call. The largest size of a cell limits how far a row can look ahead.
            source.place = first + 1
            yield source.place, Unfit(f"cells separated by {delimiter!r} and closed quotes", str(error))
        except Exception as error:  # noqa: BLE001  # whatever a row raises leaves out that row
            source.place = first + 1
            yield source.place, Unfit("a row that can be split", type(error).__name__)
        else:
            if decoded:
                yield source.place, cells
            else:
                yield source.place, Unfit("a CSV file saved as UTF-8", "bytes that are not UTF-8")


def _is_utf8(line: str) -> bool:
    """Whether the line is valid UTF-8, so that nothing in it was escaped."""
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
