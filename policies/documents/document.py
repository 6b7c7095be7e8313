"""Strict YAML documents: anything that is not understood is refused.

Guarantees: an accepted document has no unknown or duplicate keys, no anchors, aliases, tags or merge keys, no NaN or
infinity, and no value that YAML 1.1 reads in another way than a person (010, 1:30, no). It is a regular file below a
size limit (reading a pipe could block). Every error names the file, the field and what to write instead, in characters
that a console shows unchanged. The schemas (`Closed` subclasses) define the fields; this module only reads.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final, NoReturn, TypeVar, cast, get_args, get_origin

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from common.fault_words import in_words
from policies.errors import PolicyError
from policies.file_kinds import kind_of

MAX_BYTES = 1 << 20
_SHOWN = 60
"""Most characters of a document's content that an error repeats."""


class DocumentError(PolicyError):
    """A document cannot be used. `str()` has one line for each fault: file, field, fault."""

    def __init__(self, path: Path | str, faults: list[str]) -> None:
        self.path = str(path)
        self.faults = faults
        super().__init__("\n".join(f"{path}: {fault}" for fault in faults))


def _listed(given: object) -> object:
    return [given] if isinstance(given, str) else given


ADDRESS: Final = r"^[^\s:]+:\d+$"
"""A coordinator's address as host:port."""
Addresses = Annotated[
    tuple[Annotated[str, Field(pattern=ADDRESS)], ...],
    Field(min_length=1, max_length=8),
    BeforeValidator(_listed),
]
"""A coordinator's address, or a list: its machines, of which one is active."""
COLLECTOR: Final = r"^https?://[^\s/@?#]+$"
"""A collector of OpenTelemetry, as http://host:4318."""


class Closed(BaseModel):
    """Base of every schema. It refuses unknown fields, NaN, infinity and truth values as numbers, and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    KIND: ClassVar[str] = ""
    """What a whole file of this schema is (`file_kinds`); empty of parts, and of what is no file of its own."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truth_as_number(cls, content: object) -> object:
        for name, value in content.items() if isinstance(content, dict) else ():
            field = cls.model_fields.get(name) if isinstance(value, bool) else None
            if field is None:
                continue
            kinds = _kinds(field.annotation)
            if kinds & {int, float} and bool not in kinds:
                msg = f"{name}: {str(value).lower()} is not a number; write one"
                raise ValueError(msg)
        return content


def _kinds(annotation: object) -> set[object]:
    """Return the plain types that an annotation allows, through unions and `Annotated`."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return set().union(*map(_kinds, inner)) if inner else {annotation}


C = TypeVar("C", bound=Closed)


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader without the features of YAML that surprise people."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            _refuse("anchors and aliases are not allowed; write the value out", event)
        if getattr(event, "tag", None):
            _refuse("tags (!) are not allowed; remove it, or quote the text", event)
        return super().compose_node(parent, index)

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - the loader's own signature
    ) -> dict[Hashable, object]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                _refuse("merge keys (<<) are not allowed; write the fields out", key_node)
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                _refuse("a field's name must be a text; a list or mapping stands there", key_node)
            if key in seen:
                _refuse(f"the field {_shown(key)!r} stands twice; keep one", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        if not _PLAIN_FLOAT.fullmatch(node.value):
            # This refuses .nan, .inf, and 1:30.5, which YAML 1.1 reads in base 60.
            _refuse(f"{_shown(node.value)} is not a finite decimal number; write one, or quote the text", node)
        value = super().construct_yaml_float(node)
        if not math.isfinite(value):
            _refuse(f"{_shown(node.value)} is not a finite number; write one", node)
        return value

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if not _PLAIN_INT.fullmatch(node.value):
            # YAML 1.1 reads 010 as eight and 1:30 as ninety.
            _refuse(f"{_shown(node.value)} is not a plain decimal number; write one, or quote the text", node)
        if len(node.value) > _SHOWN:
            _refuse(f"a number of {len(node.value)} digits is no value of any field; write a smaller one", node)
        return super().construct_yaml_int(node)

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        if node.value.lower() not in ("true", "false"):
            # YAML 1.1 reads no, the code of Norway, as false.
            _refuse(f"{_shown(node.value)} may mean a truth value; write true or false, or quote the text", node)
        return super().construct_yaml_bool(node)


_PLAIN_INT: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_PLAIN_FLOAT: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def _shown(value: object) -> str:
    """Return a value of a document for an error: cut, and with control characters spelled out for a console's sake."""
    text = str(value)
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:_SHOWN])
    return plain if len(text) <= _SHOWN else f"{plain}..."


def _refuse(problem: str, where: yaml.Node | yaml.Event) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, cast("yaml.error.Mark | None", where.start_mark))


_StrictLoader.add_constructor("tag:yaml.org,2002:float", _StrictLoader.construct_yaml_float)
_StrictLoader.add_constructor("tag:yaml.org,2002:int", _StrictLoader.construct_yaml_int)
_StrictLoader.add_constructor("tag:yaml.org,2002:bool", _StrictLoader.construct_yaml_bool)
# Dates would silently turn a string into another type.
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_document(text: str, schema: type[C], origin: Path | str) -> C:
    """Validate YAML text against a schema. Raises `DocumentError`, with one line if it is a file of another kind."""
    content = _content(text, origin)
    found = kind_of(content) if schema.KIND else None
    if found is not None and found != schema.KIND:
        msg = f"this is {found}; give the path of {schema.KIND} in its place, and leave this file as it is"
        raise DocumentError(origin, [msg])
    return check_document(content, schema, origin)


def check_document(content: object, schema: type[C], origin: Path | str) -> C:
    """Validate what a document says against a schema. Raises `DocumentError`."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise DocumentError(origin, list(faults_of(error))) from None


def faults_of(error: ValidationError) -> Iterator[str]:
    """Give a sentence for each fault that a validation found: the field, what is wrong with it, and the fix."""
    return map(_fault, error.errors(include_url=False, include_input=False))


def _content(text: str, origin: Path | str) -> dict[Hashable, object]:
    try:
        loader = _StrictLoader(text)
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise DocumentError(origin, ["lists or mappings are nested too deeply; nest them less"]) from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        # What this module refuses says itself what to write instead.
        mend = "; correct the YAML there or above" if isinstance(error, (ParserError, ScannerError)) else ""
        raise DocumentError(origin, [f"{where}{problem}{mend}"]) from None
    if not isinstance(content, dict):
        raise DocumentError(origin, ["the document must be a mapping of fields to values"])
    return content


def _fault(error: object) -> str:
    details: dict[str, object] = dict(error)  # type: ignore[call-overload]  # pydantic's ErrorDetails is a TypedDict
    location = details["loc"]
    field = ".".join(_shown(part) for part in location) if isinstance(location, tuple) else ""
    context = details.get("ctx")
    message = in_words(str(details["type"]), str(details["msg"]), context if isinstance(context, dict) else {})
    return f"field {field or '(document)'}: {message}"


def read_document(path: Path, schema: type[C]) -> C:
    """Read a YAML file of at most 1 MiB against a schema. Raises `DocumentError`, also if the file is absent."""
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise DocumentError(path, ["is a pipe or a device; save the text as a file"])
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise DocumentError(path, ["there is no such file; create it or give its path"]) from None
    except OSError as error:
        raise DocumentError(path, [f"cannot be read: {error.strerror}; fix the path or the file's rights"]) from error
    return parse_content(content, schema, path)


def parse_content(content: bytes, schema: type[C], origin: Path | str) -> C:
    """Validate what a YAML file of at most 1 MiB holds; `origin` is its name in messages. Raises `DocumentError`."""
    if len(content) > MAX_BYTES:
        raise DocumentError(
            origin, [f"is larger than {MAX_BYTES} bytes, but a policy or study is a page of text; check the path"]
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise DocumentError(origin, ["cannot be read: it is not UTF-8 text; save it as UTF-8"]) from None
    return parse_document(text, schema, origin)
