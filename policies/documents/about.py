"""What a field of a study says of itself: what it does, when to change it, since when it is there, who reads it.

Everything that is told of a field is made of it: the comments of a written study (`writing`), the tables of fields in
docs/study-fields.md (`table`), the questions of `fedward-silo study new`, the descriptions in the JSON Schema
(`schema`), and what a study of an earlier version leaves out of its digest (`study`).
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

FIRST: Final = "0.1"
"""The version whose studies had the fields that say no other one."""
ENTRIES: Final = "[]"
"""Follows the name of a list whose entries have fields; for entries of several kinds the kind stands in it."""


@dataclass(frozen=True)
class About:
    """What a field says beside its type, its range and its default, which are the field's own.

    Attributes:
        effect: what the field does, for the table in docs/study-fields.md, in Markdown.
        comment: the same in a few words, for the line of a written study; empty: no comment.
        unit: what its value counts or names; empty if its type lists its values.
        question: what `fedward-silo study new` asks for it; empty: it has a default there.
        change: when to choose another value; empty: nothing follows from the field alone.
        since: the version of FedWard whose studies had the field first.
        read_by: a property of `recipes.Composition`; a recipe without it does not read the field. Empty: all read it.
    """

    effect: str
    comment: str = ""
    unit: str = ""
    question: str = ""
    change: str = ""
    since: str = FIRST
    read_by: str = ""


def about(field: FieldInfo) -> About | None:
    """What a field says of itself; None for a section, which its class describes."""
    return next((one for one in field.metadata if isinstance(one, About)), None)


@dataclass(frozen=True)
class Described:
    """A field of a document.

    Attributes:
        path: the names on the way to it, as `part.field`; of a list's entries as `list[].field` or `list[kind].field`.
        owner: the class that has it.
        name: its name there.
        field: its type and default.
        about: what it says of itself.
    """

    path: str
    owner: type[BaseModel]
    name: str
    field: FieldInfo
    about: About | None

    @property
    def is_section(self) -> bool:
        """Whether its value has fields of its own."""
        return any(mark == "" for mark, _ in _sections(self.field.annotation))


def described(document: type[BaseModel], start: str = "") -> Iterator[Described]:
    """Every field of a document and of all its sections, in the order of the document."""
    for name, field in document.model_fields.items():
        path = f"{start}{name}"
        yield Described(path, document, name, field, about(field))
        for mark, section in _sections(field.annotation):
            yield from described(section, f"{path}{mark}.")


def _sections(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections that a field's value is made of, each with what stands behind the field's name on the way to it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif get_origin(annotation) is Annotated:
        yield from _sections(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from _sections(one)
    elif get_origin(annotation) is tuple:
        entries = list(_sections(get_args(annotation)[0]))
        for _, entry in entries:
            yield (ENTRIES if len(entries) == 1 else f"[{_kind(entry)}]"), entry


def _kind(entry: type[BaseModel]) -> str:
    """The word by which an entry says which of several kinds it is."""
    return str(get_args(entry.model_fields["kind"].annotation)[0])
