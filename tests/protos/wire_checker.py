"""The check of the wire's vectors by a second implementation: `python -I tests/protos/wire_checker.py [file]`.

It imports nothing of FedWard and no protobuf. It reads the `.proto` files as text and encodes each message's fields
anew, as the encoding of proto3 says: fields by number; numbers, texts and blobs that are zero or empty are left out
unless they are `optional`; a message is written if it is given. Vectors that do not hold are named, and the exit status
is then 1.

In `wire.json`, the fields of a message have the names of the `.proto` files. Blobs are hexadecimal, enums are names. A
field that is not there is not set.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "protos" / "v1"
VARINT, EIGHT_BYTES, LENGTH = 0, 1, 2
BLOCK = re.compile(r"^(message|enum) (\w+) \{(.*?)\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"(?:(repeated|optional) )?(\w+) (\w+) = (\d+);")
NUMBER = re.compile(r"(\w+) = (\d+);")


def read_sources():
    """Messages, name -> field -> (label, type, number), and enums, name -> name -> number."""
    messages, enums = {}, {}
    for path in sorted(SOURCES.glob("*.proto")):
        for what, name, body in BLOCK.findall(re.sub(r"//.*", "", path.read_text(encoding="utf-8"))):
            if what == "enum":
                enums[name] = {member: int(number) for member, number in NUMBER.findall(body)}
            else:
                messages[name] = {field: (label, kind, int(n)) for label, kind, field, n in FIELD.findall(body)}
    return messages, enums


MESSAGES, ENUMS = read_sources()


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def one(kind, value):
    """One value without its tag: how it is written, and its bytes."""
    if kind in MESSAGES:
        content = encoded(kind, value)
    elif kind in ENUMS:
        return VARINT, varint(ENUMS[kind][value])
    elif kind in ("uint32", "uint64", "bool"):
        return VARINT, varint(int(value))
    elif kind == "double":
        return EIGHT_BYTES, struct.pack("<d", value)
    else:
        content = {"string": str.encode, "bytes": bytes.fromhex}[kind](value)
    return LENGTH, varint(len(content)) + content


def encoded(message, fields):
    """The bytes of a message."""
    known, out = MESSAGES[message], b""
    for name in sorted(fields, key=lambda name: known[name][2]):
        label, kind, number = known[name]
        for value in fields[name] if label == "repeated" else [fields[name]]:
            wired, content = one(kind, value)
            empty = content == bytes(8 if wired == EIGHT_BYTES else 1)
            if label or kind in MESSAGES or not empty:
                out += varint(number << 3 | wired) + content
    return out


def check(path):
    """The names of the vectors that do not hold."""
    cases = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    return [case["name"] for case in cases if encoded(case["message"], case["fields"]).hex() != case["bytes"]]


def main():
    wrong = check(Path(sys.argv[1]) if sys.argv[1:] else HERE / "wire.json")
    for name in wrong:
        sys.stdout.write(f"{name} has other bytes\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
