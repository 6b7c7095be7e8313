"""A study as YAML with a comment for each field, for people who read it before they approve.

Guarantees: what is written is read as the same study, with the same digest. All fields of all sections are written,
those with a default included, so that a reader needs no other page; in lists what is left out has its default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import yaml

from policies.documents.about import described
from policies.documents.document import MAX_BYTES, DocumentError, parse_document
from policies.documents.fields import StudyFields
from policies.documents.study import Study

WIDTH: Final = 110
_COMMENTS: Final[Mapping[str, str]] = {
    one.path: one.about.comment for one in described(StudyFields) if one.about is not None and one.about.comment
}
"""What is said beside a field. A field without an entry is written without a comment."""
_SECTIONS: Final = frozenset(one.path for one in described(StudyFields) if one.is_section)


def write_study(study: Study, *, head: Iterable[str] = (), notes: Mapping[str, str] | None = None) -> str:
    """The study as commented YAML.

    Args:
        study: what is written.
        head: comment lines above everything.
        notes: a short text by column, beside the feature that reads it. Texts are plain, of one line.

    Raises `DocumentError` if the text would be larger than a document may be.
    """
    document = study.model_dump(mode="json")
    lines = [f"# {line}".rstrip() for line in head]
    for field, value in document.items():
        if field not in _SECTIONS and not isinstance(value, dict):
            lines += _text(field, value) if isinstance(value, str) else [_line(field, value, 0)]
    for field, value in document.items():
        if isinstance(value, dict):
            lines += ["", *_section(field)]
            lines += _data(study, notes or {}) if field == "data" else _fields(field, value)
    text = "\n".join(lines) + "\n"
    size = len(text.encode())
    if size > MAX_BYTES:
        fault = f"its text would have {size} bytes, and at most {MAX_BYTES} are read; list fewer columns or codes"
        raise DocumentError(_UNWRITTEN, [fault])
    if parse_document(text, Study, _UNWRITTEN).digest != study.digest:
        msg = "a study must be read as it was written"
        raise AssertionError(msg)
    return text


def _section(name: str) -> list[str]:
    return [f"{name}:{' ' * 2}# {_COMMENTS[name]}" if name in _COMMENTS else f"{name}:"]


def _fields(section: str, fields: Mapping[str, object]) -> Iterator[str]:
    return (_line(f"{section}.{name}", value, 2) for name, value in fields.items())


def _data(study: Study, notes: Mapping[str, str]) -> Iterator[str]:
    data = study.data.model_dump(mode="json", exclude_defaults=True)
    label = data.pop("label")
    domain, features = data.pop("domain"), data.pop("features", [])
    for name, value in data.items():
        yield f"  {name}: {_flow(value)}"
    yield f"  label: {_flow(label)}"
    yield "  domain:  # each combination gets a head of its own"
    yield from (f"    - {_flow(factor)}" for factor in domain)
    yield f"  features:{'' if features else ' []'}"
    for feature in features:
        note = notes.get(feature["column"])
        shown = {name: feature[name] for name in ("kind", "column")} | feature
        yield f"    - {_flow(shown)}" + (f"  # {note}" if note else "")


def _line(path: str, value: object, indent: int) -> str:
    text = f"{' ' * indent}{path.rpartition('.')[2]}: {_flow(value)}"
    comment = _COMMENTS.get(path)
    return f"{text}  # {comment}" if comment else text


def _text(field: str, value: str) -> list[str]:
    dumped: str = yaml.safe_dump({field: value}, width=WIDTH, allow_unicode=True)
    lines = dumped.rstrip("\n").split("\n")
    comment = _COMMENTS.get(field)
    return [f"{lines[0]}  # {comment}"] if comment and len(lines) == 1 else lines


def _flow(value: object) -> str:
    """A value on one line, numbers without a needless fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _PLAIN:
        return str(int(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(name)}: {_flow(one)}" for name, one in value.items()) + "}"
    dumped: str = yaml.safe_dump([value], default_flow_style=True, width=_ENDLESS, allow_unicode=True)
    return dumped.strip()[1:-1]


_UNWRITTEN: Final = "the study as it would be written"
_PLAIN: Final = 1e6
_ENDLESS: Final = 1 << 30
