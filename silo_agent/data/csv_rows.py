"""Splits a CSV file into rows: one line is one row, whatever stands in the others.

Guarantees: a row follows from the bytes of its own line alone. A line that cannot be decoded or split, or whose quote
is still open at its end, is a fault of that line. So no cell has several lines: a reader that went on to the next line
would let one patient's quote swallow the records of others.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Final

from silo_agent.data.errors import Unfit

MARK: Final = b"\xef\xbb\xbf"
"""Of UTF-8, as some programs write it before the first line."""
_OPEN: Final = "unexpected end of data"
"""What `csv` says of a quote that does not close."""
_DECODABLE: Final = "a CSV file saved as UTF-8, or as data_set.file.encoding of the policy says"
_ONE_LINE: Final = "quotes that close in their own line; keep cells of several lines in a Parquet file or a database"


def split_rows(content: bytes, delimiter: str) -> Iterator[tuple[int, list[str] | Unfit]]:
    """Yield every line's number, from 1, and its cells (none for a blank line) or its fault.

    A line ends with LF, CR, or both. A mark of UTF-8 at its beginning is no part of it: files may have been joined, and
    the first line is read as any other. A fault quotes no text of the file.
    """
    for number, line in enumerate(content.splitlines(), 1):
        yield number, split_line(line, delimiter)


def split_line(line: bytes, delimiter: str) -> list[str] | Unfit:
    """The cells of one line without its end, or its fault."""
    line = line.removeprefix(MARK)
    try:
        # strict, because otherwise an open quote would be closed by the line's end.
        return next(csv.reader([line.decode()], delimiter=delimiter, strict=True), [])
    except UnicodeDecodeError:
        return Unfit(_DECODABLE, "bytes that are not in the file's encoding")
    except csv.Error as error:
        if str(error) == _OPEN:
            return Unfit(_ONE_LINE, "a quote that is open at the line's end")
        return Unfit(f"cells separated by {delimiter!r} and closed quotes", str(error))
    except Exception as error:  # noqa: BLE001  # whatever a line raises leaves out that line
        return Unfit("a row that can be split", type(error).__name__)
