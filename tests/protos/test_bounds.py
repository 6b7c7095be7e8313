"""Every text, blob and list of every message has a bound, and no message is made that breaks one."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum

import pytest

from protos import audit, bounds, checkpoints, chunks, messages, status
from protos.bounds import MAX_NAME, MAX_SENTENCE, Count, Hex, Text, bounds_of, sentence
from protos.messages import (
    AgreedFigure,
    Answer,
    Complaint,
    Confirm,
    Figure,
    Member,
    Message,
    MessageError,
    Part,
    Place,
    Publication,
    Signature,
    SignedPublication,
    Spoilt,
    StudyResults,
    Tensor,
    Upload,
    UploadHeader,
    Void,
    Vouch,
    Work,
)
from protos.status import MemberStatus, PhaseTime, StudyStatus, UploadSize
from protos.steps import Task

MESSAGES = sorted(
    {
        kind
        for module in (messages, audit, checkpoints, chunks, status)
        for kind in vars(module).values()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
    },
    key=lambda kind: kind.__name__,
)
SHA = "a" * 64
PLACE = Place(SHA, 1, 2)
FIGURE = Figure("old men", "auc", 0.75, 0.7, 0.8)
STATED = checkpoints.SignedCheckpoint(b"{}", b"pem", b"s")
COSIGNED = checkpoints.CosignedCheckpoint(STATED, b"pem", b"s")
MEMBER = MemberStatus("north", "active", "", 1.0)
SAMPLES = [
    PLACE,
    Member("north", b"pem", b"k" * 32, b"k" * 1184, b"signature"),
    Part("keys", "north", 1, SHA),
    Signature("north", b"s"),
    Vouch("north", b"pem", b"s"),
    Void(1, (Signature("north", b"s"),), (b"pem",)),
    Work(Task.DECIDE, PLACE),
    Upload(Part("ckks", "north", 1, SHA), b"s"),
    Spoilt(1, Tensor.HEADS, ("north", "south"), SHA, "", (Signature("north", b"s"),), (b"pem",)),
    UploadHeader(PLACE, "ckks", Tensor.HEADS, "north", 9, 65536, SHA),
    Answer(PLACE, "s", refusal="clip"),
    Confirm(PLACE, Task.TAKE),
    FIGURE,
    Complaint("north", "south", bytes(64), b"s"),
    Publication(SHA, (FIGURE,)),
    SignedPublication("north", b"{}", b"s", b"pem"),
    AgreedFigure(FIGURE, 2),
    StudyResults(SHA, "tiny", 2, (), ()),
    MEMBER,
    PhaseTime(0, 1, "offer", None, 1.0),
    UploadSize(0, 1, None, "keys", "north", 1),
    StudyStatus(SHA, "tiny", "running", "", 0, 2, 1, "offer", None, (), (MEMBER,)),
    STATED,
    COSIGNED,
    checkpoints.Cosigned(COSIGNED),
    checkpoints.Handed(STATED),
    chunks.ChunkList(1, b"h" * 32),
    audit.AuditEntry(1, "2026", "fedward://author/ada", "", "start", SHA, "tiny", "", "", "done", ""),
    audit.AuditTrail(2, bytes(64)),
    messages.AuthorSignature(b"pem", b"s"),
    messages.StudyText(b"{}", messages.AuthorSignature(b"pem", b"s")),
    audit.CosignedAudit("north", 1, bytes(32), 0, bytes(32), b"pem", b"s"),
]


def needs_bound(hint):
    """Whether a field of this type holds a text, a blob or a list; a union does if one of its types does."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(needs_bound(one) for one in typing.get_args(hint))
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, str | bytes | tuple | list | dict) and not issubclass(kind, Enum)


def test_the_samples_are_all_messages():
    assert {type(sample) for sample in SAMPLES} == set(MESSAGES)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_every_field_that_can_grow_has_a_bound(kind):
    assert issubclass(kind, Message)
    growing = {name for name, hint in typing.get_type_hints(kind).items() if needs_bound(hint)}
    assert growing <= set(bounds_of(kind)), "write it as Annotated, with a bound of protos.bounds"


BROKEN = {
    Text: lambda bound: ("x" * (bound.most + 1), "red \x1b[31m", "a\nb", "\u202etxt", 7),
    Hex: lambda _: ("A" * 64, "a" * 63, ""),
    Count: lambda bound: (b"x" * (bound.most + 1), 7),
}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_no_message_is_made_that_breaks_a_bound(sample):
    for name, bound in bounds_of(type(sample)).items():
        for value in BROKEN[type(bound)](bound):
            with pytest.raises(MessageError, match=rf"^([a-z]+\.)?{name}: "):
                dataclasses.replace(sample, **{name: value})


def test_a_list_has_a_length_and_its_texts_are_names():
    base = {"task": Task.CONTRIBUTE, "place": PLACE, "tensor": Tensor.HEADS}
    for names in (tuple(f"n{i:03}" for i in range(257)), ("x" * 65,), ("\x1b",)):
        with pytest.raises(MessageError, match=r"work\.participants: "):
            Work(**base, participants=names)


@pytest.mark.parametrize(
    ("said", "handed_on"),
    [
        ("", ""),
        ("the budget is spent: 3 < 4 [bold]", "the budget is spent: 3 < 4 [bold]"),
        ("65 à 70 ans, ≥ 2 séjours", "65 à 70 ans, ≥ 2 séjours"),
        ("line\nbreak\ttab \x1b[2J\x9b2J", "line break tab  [2J 2J"),
        ("\u202egnp.exe\u2069", " gnp.exe "),
        ("half \ud800", "half  "),
        ("x" * MAX_SENTENCE, "x" * MAX_SENTENCE),
        ("x" * (MAX_SENTENCE + 1), "x" * (MAX_SENTENCE - 6) + " [...]"),
    ],
)
def test_a_sentence_is_short_and_plain(said, handed_on):
    assert sentence(said) == handed_on
    assert sentence(handed_on) == handed_on
    assert Answer(PLACE, "s", refusal="clip", explanation=sentence(said)).explanation == handed_on


def test_a_list_with_too_few_items_is_told_from_one_with_too_many():
    assert Count(1, 2).fault(()) == "has 0 items, below 1"
    assert Count(1, 2).fault(("a", "b", "c")) == "has 3 items, above 2"


def test_names_are_as_long_as_a_digest():
    assert Text(MAX_NAME).fault(SHA) == ""
    assert bounds.fault(PLACE) is None
