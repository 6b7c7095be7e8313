"""What differs between two values of a record, as JSON: a small part of a large state is stored as that part alone.

Guarantees: `applied` to a value's document (`record.plain`), what `difference` found makes the other value's
document, exactly. Parts that both values share are not looked into, so the time follows from what differs and from how
many parts stand beside it. A difference is read without the classes that it came from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protos import record

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Change = dict[str, Any]
"""One of three: {"value": whole}, {"fields": {name: Change}}, {"at": index, "without": count, "with": [items]}."""


def difference(before: DataclassInstance, after: DataclassInstance) -> Change:
    """What makes `after` of `before`, a value of the same class. {"fields": {}} if they are equal."""
    return _between(before, after) or {"fields": {}}


def applied(document: Any, change: Change) -> Any:  # any JSON
    """The document after a change; the one before stays as it is. Raises ValueError if they do not fit."""
    match change:
        case {"value": value}:
            return value
        case {"fields": fields} if isinstance(document, dict) and fields.keys() <= document.keys():
            return document | {name: applied(document[name], own) for name, own in fields.items()}
        case {"at": at, "without": count, "with": items} if isinstance(document, list) and at + count <= len(document):
            return [*document[:at], *items, *document[at + count :]]
    msg = "a change does not fit the record that it was made for"
    raise ValueError(msg)


def _between(before: object, after: object) -> Change | None:
    """None if both are equal."""
    if before is after:
        return None
    if isinstance(before, frozenset) and isinstance(after, frozenset):
        return None if before == after else _in_sequence(sorted(before), sorted(after))
    if type(before) is not type(after):
        return {"value": record.plain(after)}
    if isinstance(before, tuple) and isinstance(after, tuple):
        return None if before == after else _in_sequence(before, after)
    if dataclasses.is_dataclass(before):
        names = [field.name for field in dataclasses.fields(before)]
        found = {name: _between(getattr(before, name), getattr(after, name)) for name in names}
        fields = {name: change for name, change in found.items() if change is not None}
        return {"fields": fields} if fields else None
    return None if before == after else {"value": record.plain(after)}


def _in_sequence(before: Sequence[object], after: Sequence[object]) -> Change:
    """What stands between the items that both begin with and those that both end with."""
    shorter = min(len(before), len(after))
    first = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    last = next((i for i in range(shorter - first) if before[-1 - i] != after[-1 - i]), shorter - first)
    items = [record.plain(item) for item in after[first : len(after) - last]]
    return {"at": first, "without": len(before) - first - last, "with": items}
