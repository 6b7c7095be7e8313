"""The tables of a study's fields in docs/study-fields.md, which `python -m policies.documents.table` writes.

`--check` compares the written ones. A table stands below a line that says which fields it has, up to the next empty
line. Everything in it is said at the field: type, range, default, and `about.About`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from policies.documents.about import described
from policies.documents.fields import StudyFields
from policies.documents.recipes import RECIPES

PAGE: Final = Path(__file__).parents[2] / "docs" / "study-fields.md"
MARK: Final = re.compile(r"^<!-- fields: (.*) -->\n(?:\|.*\n)*", re.MULTILINE)
RECIPES_READ: Final = "by recipe"
"""Stands in a mark in place of names: which fields a recipe reads that others do not."""
STUDY: Final = "study"
"""Stands in a mark for the fields outside of all sections."""
REQUIRED: Final = "-"
_HEAD: Final = ("field", "unit or values", "default", "since", "effect", "change it if")


def written(page: str) -> str:
    """The page with all of its tables as the fields say now."""
    return MARK.sub(lambda mark: f"<!-- fields: {mark[1]} -->\n{_table(mark[1])}", page)


def _table(mark: str) -> str:
    if mark == RECIPES_READ:
        return _lines(("recipe", "of the fields that not all recipes read, it reads"), _by_recipe())
    return _lines(_HEAD, (row for name in mark.split(", ") for row in rows(name)))


def rows(section: str) -> Iterator[tuple[str, ...]]:
    """A row for each field of a section, or for each field that stands in none (`STUDY`)."""
    schema = StudyFields.model_json_schema()
    for one in described(StudyFields):
        first, inner, _ = one.path.partition(".")
        is_whole = one.is_section and not inner and one.field.get_default() is not None
        if one.about is None or is_whole or section != (re.sub(r"\[.*", "", first) if inner else STUDY):
            continue
        part = schema if one.owner is StudyFields else schema["$defs"][one.owner.__name__]
        stated = part["properties"][one.name]
        default = REQUIRED if one.field.is_required() else f"`{json.dumps(stated['default'])}`"
        effect, change = _linked(one.about.effect), _linked(one.about.change)
        yield f"`{one.path}`", _values(one.about.unit, stated), default, one.about.since, effect, change


def _linked(text: str) -> str:
    """Links of the code start at the repository, those of a page at its own folder."""
    return text.replace("(docs/", "(").replace("[docs/", "[")


def _by_recipe() -> Iterator[tuple[str, ...]]:
    """A row for each recipe."""
    chosen = [(one.path, one.about.read_by) for one in described(StudyFields) if one.about and one.about.read_by]
    for name, recipe in RECIPES.items():
        read = [f"`{path}`" for path, property_ in chosen if getattr(recipe, property_)]
        yield f"`{name}`", ", ".join(read) or "none"


def _values(unit: str, stated: Mapping[str, Any]) -> str:
    """What may stand in a field: its unit and range, or the values to choose from."""
    plain = next((one for one in stated.get("anyOf", ()) if one.get("type") != "null"), stated)
    if plain.get("type") == "boolean":
        return "`true`, `false`"
    choice = plain.get("enum") or ([plain["const"]] if "const" in plain else plain.get("items", {}).get("enum"))
    if choice:
        return f"{f'{unit}: ' if unit else ''}{', '.join(f'`{one}`' for one in choice)}"
    return ", ".join(filter(None, (unit, _range(plain), _entries(plain))))


def _entries(plain: Mapping[str, Any]) -> str:
    """How many entries a list may have, and the range of each."""
    if plain.get("type") != "array":
        return ""
    least, most, each = plain.get("minItems", 0), plain.get("maxItems"), _range(plain["items"])
    count = (
        "" if most is None else f"{_number(least)} to {_number(most)} of them" if least else f"at most {_number(most)}"
    )
    return ", each ".join(filter(None, (count, each)))


def _range(plain: Mapping[str, Any]) -> str:
    """The least and the most of a number, or the most characters of a text."""
    if plain.get("type") == "string":
        return (
            f"at most {plain['maxLength']} characters"
            if plain.get("maxLength", 1) > 1 and "pattern" not in plain
            else ""
        )
    above, least = plain.get("exclusiveMinimum"), plain.get("minimum")
    below, most = plain.get("exclusiveMaximum"), plain.get("maximum")
    if most is not None and below is not None and most < below:
        below = None
    start = (
        f"above {_number(above)}" if least is None and above is not None else "" if least is None else _number(least)
    )
    end = f"below {_number(below)}" if below is not None else "" if most is None else _number(most)
    return f"{start}, {end}" if "above" in start and "below" in end else " to ".join(filter(None, (start, end)))


def _number(value: float) -> str:
    """A number as a page writes it: whole ones with commas, very large and very small ones by their power of ten."""
    if float(value).is_integer() and abs(value) < _PLAIN:
        return f"{int(value):,}"
    return f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


_PLAIN: Final = 1e9


def _lines(head: tuple[str, ...], table: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *table]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def main(arguments: list[str]) -> int:
    """Write the page. With `--check`, return 1 if its tables are not what this version says."""
    page = PAGE.read_text(encoding="utf-8")
    if "--check" not in arguments:
        PAGE.write_text(written(page), encoding="utf-8")
        return 0
    if written(page) == page:
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date; run python -m policies.documents.table\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
