"""Changes messages as somebody hostile would: any field, to anything that the wire can carry."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), -1, 0, 1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), -1, 0, 1, 2**40, 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 7, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 7, 2**40, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 5, 99, -1, 2**31 - 1),
}
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308)
_TEXTS = ("", "x", "../../etc/passwd", "a\x00b\x1b[2J", "\u202e\ufeff", "0" * 64, "x" * 100_000)
MUCH = 300_000


def mutated(message: Message, random: Random) -> bytes:
    """The message on the wire, with one to three changes."""
    changed = type(message)()
    changed.CopyFrom(message)
    for _ in range(random.randint(1, 3)):
        _change_a_field(changed, random)
    data = changed.SerializeToString()
    return _damaged(data, random) if random.random() < 0.2 else data


def _change_a_field(message: Message, random: Random) -> None:
    fields = list(_fields(message))
    if not fields:
        return
    owner, field = random.choice(fields)
    if field.is_repeated:
        _change_list(getattr(owner, field.name), field, random)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if random.random() < 0.5:
            owner.ClearField(field.name)
        else:
            getattr(owner, field.name).SetInParent()
    else:
        setattr(owner, field.name, _value(field, getattr(owner, field.name), random))


def _change_list(values: Any, field: FieldDescriptor, random: Random) -> None:
    kept = list(values)
    what = random.randrange(4)
    if what == 0:
        kept = []
    elif what == 1:
        kept *= random.choice((2, 100))
    elif what == 2:
        random.shuffle(kept)
    elif field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        empty = b"" if field.type == FieldDescriptor.TYPE_BYTES else ""
        kept.append(_value(field, kept[0] if kept else empty, random))
    del values[:]
    values.extend(kept)


def _fields(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    for field in message.DESCRIPTOR.fields:
        yield message, field
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _fields(inner)


def _value(field: FieldDescriptor, old: Any, random: Random) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return random.choice(_INTEGERS[kind])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not old
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random.choice(_FLOATS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice((*_TEXTS, old[:-1]))
    return random.choice((b"", b"\xff", old[:-1], _damaged(old, random), random.randbytes(64), bytes(MUCH)))


def _damaged(data: bytes, random: Random) -> bytes:
    """Bytes with one flipped, some cut off or put in: where they are text, it is no UTF-8 any more."""
    place = random.randrange(len(data) + 1)
    what = random.randrange(3)
    if what == 0:
        return data[:place]
    if what == 1:
        return data[:place] + random.randbytes(3) + data[place:]
    return (
        data[:place] + bytes(byte ^ (1 << random.randrange(8)) for byte in data[place : place + 1]) + data[place + 1 :]
    )
