"""Strict YAML documents: what is not understood is refused.

Guarantees: no unknown or duplicate keys, no anchors, aliases, tags or merge keys, no NaN or infinity, no document
above a size limit, and every error names the file, the field and what to write instead. The schemas
(`Closed` subclasses) say which fields there are; this module only reads.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from policies.errors import PolicyError

MAX_BYTES = 1 << 20


class DocumentError(PolicyError):
    """A document cannot be used. `str()` is one line per fault: file, field, fault."""

    def __init__(self, path: Path | str, faults: list[str]) -> None:
        self.path = str(path)
        self.faults = faults
        super().__init__("\n".join(f"{path}: {fault}" for fault in faults))


class Closed(BaseModel):
    """Base of every schema: closed to unknown fields, immutable, NaN and infinity refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


C = TypeVar("C", bound=Closed)


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader without what makes YAML surprising."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.constructor.ConstructorError(
                None, None, "anchors and aliases are not allowed; write the value out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, "merge keys (<<) are not allowed; write the fields out", key_node.start_mark
                )
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key!r} stands twice; keep one", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        value = super().construct_yaml_float(node)
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(
                None, None, f"{node.value} is not a number that can be compared; write a finite one", node.start_mark
            )
        return value


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_yaml_float)
# Dates and binaries would silently turn a string into another type.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_document(text: str, schema: type[C], origin: Path | str) -> C:
    """Validate YAML text against a schema. Raises `DocumentError`."""
    try:
        loader = _StrictLoader(text)
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise DocumentError(origin, [f"{where}{problem}"]) from None
    if not isinstance(content, dict):
        raise DocumentError(origin, ["the document must be a mapping of fields to values"])
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise DocumentError(origin, [_fault(e) for e in error.errors()]) from None


def _fault(error: object) -> str:
    details: dict[str, object] = dict(error)  # type: ignore[call-overload]  # pydantic's ErrorDetails is a TypedDict
    location = details["loc"]
    field = ".".join(str(part) for part in location) if isinstance(location, tuple) else ""
    message = str(details["msg"])
    if details["type"] == "extra_forbidden":
        message = "unknown field; remove it or mend its spelling"
    elif details["type"] == "missing":
        message = "this field is missing; add it"
    return f"field {field or '(document)'}: {message}"


def read_document(path: Path, schema: type[C]) -> C:
    """Read a YAML file of at most 1 MiB against a schema. Raises `DocumentError`, also for a file that is absent."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DocumentError(path, [f"larger than {MAX_BYTES} bytes; a policy or study is a page of text"])
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DocumentError(path, ["there is no such file; create it or give its path"]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(path, [f"cannot be read: {error}"]) from None
    return parse_document(text, schema, path)
