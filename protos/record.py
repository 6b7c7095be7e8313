"""Frozen dataclasses as JSON and back: the form in which both programs keep the state of their state machines.

Guarantees that a value survives unchanged, bytes, enumerations, tuples and sets included, and that an older record
without a field that has a default still loads. What the state means is its owner's.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from dacite import Config, from_dict

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
_CONFIG = Config(type_hooks={bytes: base64.b64decode}, cast=[Enum, tuple, frozenset], strict=True)


def dump(value: DataclassInstance) -> str:
    """Canonical JSON (sorted keys)."""
    return json.dumps(dataclasses.asdict(value), default=_plain, sort_keys=True)


def load(kind: type[T], text: str) -> T:
    """The inverse of `dump`. Raises `dacite.DaciteError` or ValueError for what is no record of this kind."""
    return from_dict(kind, json.loads(text), _CONFIG)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, frozenset):
        return sorted(value)
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)
