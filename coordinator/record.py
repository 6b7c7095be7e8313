"""A study's state as JSON and back: the form in which `store` keeps it. Every type in `core` survives unchanged."""

from __future__ import annotations

import base64
import dataclasses
import json
from enum import Enum

from dacite import Config, from_dict

from coordinator.core.study import Progress

_CONFIG = Config(type_hooks={bytes: base64.b64decode}, cast=[Enum, tuple, frozenset], strict=True)


def dump(progress: Progress) -> str:
    """Canonical JSON (sorted keys)."""
    return json.dumps(dataclasses.asdict(progress), default=_plain, sort_keys=True)


def load(text: str) -> Progress:
    """The inverse of `dump`."""
    return from_dict(Progress, json.loads(text), _CONFIG)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, frozenset):
        return sorted(value)
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)
