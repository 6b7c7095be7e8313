"""Frozen dataclasses as JSON and back. Both programs keep the state of their state machines in this form.

Guarantees: a value survives unchanged, including bytes, enumerations, tuples and sets. An older record that lacks a
field with a default still loads. The owner of the state knows what it means.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from dacite import Config, from_dict

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
_CONFIG = Config(type_hooks={bytes: base64.b64decode}, cast=[Enum, tuple, frozenset], strict=True)


def dump(value: DataclassInstance) -> str:
    """Return a value as canonical JSON (sorted keys)."""
    return json.dumps(plain(value), sort_keys=True)


def plain(value: object) -> Any:  # any JSON
    """Return a value of a record as it stands in `dump`: a number, text, list or dictionary."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return [plain(item) for item in sorted(value)]
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, str | int | float):
        return value
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


def load(kind: type[T], text: str) -> T:
    """The inverse of `dump`. Raises `dacite.DaciteError` or ValueError if the text is no record of this kind."""
    return from_dict(kind, json.loads(text), _CONFIG)
