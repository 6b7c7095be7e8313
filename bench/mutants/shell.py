"""Faults of a shell script: a command that is not carried out, a test that is inverted, the other of two words.

No tree is read. A line's text is enough for a script that has one command on a line, as those of this repository have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

SUFFIX: Final = ".sh"
_FUNCTION: Final = re.compile(r"^(\w+)\(\)")
_TELLS: Final = re.compile(r"^\s*(#|say |usage|printf )")
"""Comments, and lines that only tell something."""
CHANGES: Final[dict[str, tuple[re.Pattern[str], str]]] = {
    "DropCommand": (re.compile(r"(?:^|(?<=\s))(?=act |point |add |fail |shift|umask|export )"), ": "),
    "ReplaceOrWithAnd": (re.compile(r" \|\|"), " &&"),
    "ReplaceAndWithOr": (re.compile(r" &&"), " ||"),
    "InvertEquality": (re.compile(r" = "), " != "),
    "DropInversion": (re.compile(r" != "), " = "),
    "InvertCondition": (re.compile(r"(?<=\bif )(?!!)"), "! "),
    "InvertEmptiness": (re.compile(r"\[ -n "), "[ -z "),
    "InvertFullness": (re.compile(r"\[ -z "), "[ -n "),
    "DropNot": (re.compile(r"! (?=\[|cmp|\")"), ""),
    "ReplaceNoWithYes": (re.compile(r"(?<==)no\b|(?<== )no\b"), "yes"),
    "ReplaceYesWithNo": (re.compile(r"(?<==)yes\b|(?<== )yes\b"), "no"),
    "ReplaceMode": (re.compile(r"\b0[67][0-7]{2}\b"), "0777"),
    "ReplaceOption": (re.compile(r" (?:-T|-D|-f|-sfn|--quiet|--strict|--require-hashes|--system)(?= )"), ""),
    "DropValue": (re.compile(r"(?<==)\$\d\b"), "''"),
    "NumberReplacer": (re.compile(r"(?<= )(\d{1,2})(?= |\)| \])"), "1\\1"),
}


def lines(source: str) -> list[int]:
    """Return the numbers, from 0, of the lines that do something."""
    return [at for at, line in enumerate(source.splitlines()) if line.strip() and not _TELLS.search(line)]


def sites(source: str) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """(operator, occurrence, start) of everything that can be changed."""
    for name in CHANGES:
        yield from ((name, number, place) for number, place in enumerate(_places(source, name)))


def changed(source: str, operator: str, occurrence: int) -> str:
    """The source with the fault."""
    at, column = _places(source, operator)[occurrence]
    held = source.splitlines(keepends=True)
    pattern, other = CHANGES[operator]
    match = pattern.search(held[at], column)
    if match is None:
        msg = f"{operator} has nothing to change there"
        raise ValueError(msg)
    held[at] = held[at][:column] + match.expand(other) + held[at][match.end() :]
    return "".join(held)


def place(source: str, line: int) -> str:
    """The name of the function around a line, which counts from 1; empty outside of all."""
    name = ""
    for text in source.splitlines()[:line]:
        if match := _FUNCTION.search(text):
            name = match[1]
        elif text == "}":
            name = ""
    return name


def _places(source: str, operator: str) -> list[tuple[int, int]]:
    held = source.splitlines()
    pattern, _ = CHANGES[operator]
    return [(at, match.start()) for at in lines(source) for match in pattern.finditer(held[at])]
