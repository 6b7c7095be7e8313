"""What goes over the wire comes back the same; what this version does not know is refused, never guessed."""

from __future__ import annotations

import typing
from dataclasses import fields
from types import NoneType

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from protos import codec
from protos.checkpoints import Cosigned, CosignedCheckpoint, SignedCheckpoint
from protos.chunks import ChunkList
from protos.messages import (
    AgreedFigure,
    Answer,
    Confirm,
    Figure,
    Member,
    Message,
    MessageError,
    Place,
    Publication,
    StudyResults,
    Tensor,
    UploadHeader,
    Work,
)
from protos.status import StudyStatus
from protos.steps import Task
from protos.v1 import common_pb2, silo_pb2
from support.wire import (
    answers,
    checkpoints,
    confirms,
    cosignatures,
    headers,
    members,
    places,
    results,
    statuses,
    works,
)

SHA = "a" * 64
PLACE = common_pb2.Place(study=SHA, round=1, attempt=1)


NATURES = {
    FieldDescriptor.TYPE_STRING: str,
    FieldDescriptor.TYPE_BYTES: bytes,
    FieldDescriptor.TYPE_BOOL: bool,
    FieldDescriptor.TYPE_UINT32: int,
    FieldDescriptor.TYPE_UINT64: int,
    FieldDescriptor.TYPE_DOUBLE: float,
}


def through_bytes(wire):
    """As the peer parses it."""
    return type(wire).FromString(wire.SerializeToString())


@given(places)
def test_place(place):
    assert codec.from_wire(Place, through_bytes(codec.to_wire(place))) == place


@given(members)
def test_member(member):
    assert codec.from_wire(Member, through_bytes(codec.to_wire(member))) == member


@given(works())
def test_work(work):
    assert codec.from_wire(Work, through_bytes(codec.to_wire(work))) == work


@given(headers())
def test_header(header):
    assert codec.from_wire(UploadHeader, through_bytes(codec.to_wire(header))) == header


@given(answers)
def test_answer(answer):
    assert codec.from_wire(Answer, through_bytes(codec.to_wire(answer))) == answer


@given(confirms)
def test_confirm(confirm):
    assert codec.from_wire(Confirm, through_bytes(codec.to_wire(confirm))) == confirm


@given(checkpoints)
def test_signed_checkpoint(signed):
    assert codec.from_wire(SignedCheckpoint, through_bytes(codec.to_wire(signed))) == signed


@given(cosignatures)
def test_cosignature(word):
    assert codec.from_wire(CosignedCheckpoint, through_bytes(codec.to_wire(word))) == word


@given(cosignatures, st.none() | cosignatures)
def test_cosigned(coordinator, peer):
    cosigned = Cosigned(coordinator, peer)
    assert codec.from_wire(Cosigned, through_bytes(codec.to_wire(cosigned))) == cosigned


@given(statuses)
def test_status(status):
    assert codec.from_wire(StudyStatus, through_bytes(codec.to_wire(status))) == status


@given(results)
def test_results(found):
    assert codec.results_from_wire(through_bytes(part) for part in codec.results_to_wire(found)) == found


def test_results_come_in_parts_that_fit_a_message():
    agreed = tuple(AgreedFigure(Figure(f"domain {i}", "auc", None, 0.0, 1.0), 3) for i in range(2500))
    found = StudyResults(SHA, "tiny", 3, agreed, ())
    parts = list(codec.results_to_wire(found))
    assert [len(part.agreed) for part in parts] == [0, 1000, 1000, 500]
    assert codec.results_from_wire(parts) == found
    with pytest.raises(MessageError, match="results: no part came"):
        codec.results_from_wire([])


def test_every_tensor_has_its_number():
    numbers = {codec.tensor_to_wire(tensor): tensor for tensor in (None, *Tensor)}
    assert {common_pb2.Tensor.Name(n): t for n, t in numbers.items()} == {
        "TENSOR_UNSPECIFIED": None,
        **{f"TENSOR_{tensor.name}": tensor for tensor in Tensor},
    }
    assert set(numbers) == set(common_pb2.Tensor.values())


def test_every_task_has_its_number():
    numbers = {codec._TASKS[task]: task for task in Task}
    assert {silo_pb2.Task.Name(n): t for n, t in numbers.items()} == {f"TASK_{task.name}": task for task in Task}
    assert set(numbers) == set(silo_pb2.Task.values()) - {0}


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda n: n not in common_pb2.Tensor.values()))
def test_an_unknown_tensor_is_refused(number):
    with pytest.raises(MessageError, match=f"tensor: the number {number} is unknown to this version"):
        codec.tensor_from_wire(number)


@pytest.mark.parametrize("number", [0, max(silo_pb2.Task.values()) + 1, -1])
def test_an_unknown_task_is_refused(number):
    with pytest.raises(MessageError, match=f"task: the number {number} is unknown"):
        codec.from_wire(Work, through_bytes(silo_pb2.Work(task=number)))
    with pytest.raises(MessageError, match=f"task: the number {number} is unknown"):
        codec.from_wire(Confirm, through_bytes(silo_pb2.ConfirmRequest(place=PLACE, task=number)))


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        (Place, common_pb2.Place()),
        (Place, common_pb2.Place(study=SHA, attempt=2**31)),
        (UploadHeader, silo_pb2.UploadHeader()),
        (UploadHeader, silo_pb2.UploadHeader(place=PLACE, tensor=2, kind="ckks", silo="a", values=1, size=1)),
        (Answer, silo_pb2.AnswerRequest(place=PLACE)),
        (Confirm, silo_pb2.ConfirmRequest(task=silo_pb2.TASK_TAKE)),
        (Work, silo_pb2.Work(task=silo_pb2.TASK_FINISH, place=PLACE, outcome="perhaps")),
        (Work, silo_pb2.Work(task=silo_pb2.TASK_TAKE, place=PLACE, parts=[silo_pb2.Part()])),
        (Work, silo_pb2.Work(task=silo_pb2.TASK_SIGN, place=PLACE, tensor=1, participants=["a"])),
        (Confirm, silo_pb2.ConfirmRequest(place=PLACE, task=silo_pb2.TASK_SIGN, tensor=1)),
        (Member, common_pb2.Member()),
    ],
)
def test_what_is_missing_is_refused(kind, wire):
    with pytest.raises(MessageError):
        codec.from_wire(kind, through_bytes(wire))


def test_every_message_but_what_goes_as_bytes_has_a_class_on_the_wire():
    ours = {kind for kind in Message.__subclasses__() if kind.__module__.startswith("protos.")}
    assert ours - set(codec.WIRE) == {Publication, ChunkList}
    assert set(codec.WIRE) <= ours


def of_hint(hint):
    """What a field holds, whether as a list, and whether it is a number or text that may be absent."""
    inner = [one for one in typing.get_args(hint) if one is not NoneType]
    if typing.get_origin(hint) is tuple:
        return of_hint(inner[0])[0], True, False
    if NoneType in typing.get_args(hint):
        what = of_hint(*inner)[0]
        return what, False, what in NATURES.values()
    if typing.get_origin(hint) is typing.Literal:
        return type(inner[0]), False, False
    return (hint.__name__ if hint in (Tensor, Task) else Message if issubclass(hint, Message) else hint), False, False


def of_descriptor(field):
    """The same of a field of the `.proto` files."""
    if field.message_type is not None:
        return Message, field.is_repeated, False
    if field.enum_type is not None:
        return field.enum_type.name, field.is_repeated, False
    return NATURES[field.type], field.is_repeated, field.has_presence


@pytest.mark.parametrize("kind", codec.WIRE, ids=lambda kind: kind.__name__)
def test_a_message_and_its_class_on_the_wire_have_the_same_fields(kind):
    """So that a new field needs a line there and a line here, and nothing else."""
    own = typing.get_type_hints(kind)
    hints = {codec.CALLED.get((kind, one.name), one.name): own[one.name] for one in fields(kind)}
    columns = {name: hint for name, hint in hints.items() if "." in name}
    plain = {name: of_hint(hint) for name, hint in hints.items() if name not in columns}
    if kind is StudyResults:
        plain["publication"] = (Message, False, False)  # one in each part
    wire = codec.WIRE[kind].DESCRIPTOR.fields_by_name
    assert plain == {name: of_descriptor(field) for name, field in wire.items()}
    for name, hint in hints.items():
        items = [one for one in (hint, *typing.get_args(hint)) if one in codec.WIRE]
        for item in items if name not in columns else ():
            known = set(codec.WIRE[item].DESCRIPTOR.fields_by_name) | columned(name, columns)
            assert set(wire[name].message_type.fields_by_name) == known


def columned(name, columns):
    """The fields of a list's items that are a field of the message itself."""
    return {column.removeprefix(f"{name}.") for column in columns if column.startswith(f"{name}.")}
