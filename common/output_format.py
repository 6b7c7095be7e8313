"""How a command prints facts: for people or for programs."""

from collections.abc import Sequence
from enum import StrEnum


class OutputFormat(StrEnum):
    """What `--format` takes. The names of fields in JSON are stable within a version."""

    TABLE = "table"
    JSON = "json"


def without_old_words(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return a command's words with `--format json` for `--json`, as versions up to 0.6 called it, and if one was."""
    found = "--json" in words
    return ["--format=json" if word == "--json" else word for word in words], found
