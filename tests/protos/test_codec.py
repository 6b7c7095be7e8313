"""What goes over the wire comes back the same; what this version does not know is refused, never guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import codec
from protos.checkpoints import Cosigned
from protos.messages import AgreedFigure, Figure, MessageError, StudyResults, Task, Tensor
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


def through_bytes(wire):
    """As the peer parses it."""
    return type(wire).FromString(wire.SerializeToString())


@given(places)
def test_place(place):
    assert codec.place_from_wire(through_bytes(codec.place_to_wire(place))) == place


@given(members)
def test_member(member):
    assert codec.member_from_wire(through_bytes(codec.member_to_wire(member))) == member


@given(works())
def test_work(work):
    assert codec.work_from_wire(through_bytes(codec.work_to_wire(work))) == work


@given(headers())
def test_header(header):
    assert codec.header_from_wire(through_bytes(codec.header_to_wire(header))) == header


@given(answers)
def test_answer(answer):
    assert codec.answer_from_wire(through_bytes(codec.answer_to_wire(answer))) == answer


@given(confirms)
def test_confirm(confirm):
    assert codec.confirm_from_wire(through_bytes(codec.confirm_to_wire(confirm))) == confirm


@given(checkpoints)
def test_signed_checkpoint(signed):
    assert codec.checkpoint_from_wire(through_bytes(codec.checkpoint_to_wire(signed))) == signed


@given(cosignatures)
def test_cosignature(word):
    assert codec.cosignature_from_wire(through_bytes(codec.cosignature_to_wire(word))) == word


@given(cosignatures, st.none() | cosignatures)
def test_cosigned(coordinator, peer):
    cosigned = Cosigned(coordinator, peer)
    assert codec.cosigned_from_wire(through_bytes(codec.cosigned_to_wire(cosigned))) == cosigned


@given(statuses)
def test_status(status):
    assert codec.status_from_wire(through_bytes(codec.status_to_wire(status))) == status


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
        codec.work_from_wire(through_bytes(silo_pb2.Work(task=number)))
    with pytest.raises(MessageError, match=f"task: the number {number} is unknown"):
        codec.confirm_from_wire(through_bytes(silo_pb2.ConfirmRequest(place=PLACE, task=number)))


@pytest.mark.parametrize(
    ("decode", "wire"),
    [
        (codec.place_from_wire, common_pb2.Place()),
        (codec.place_from_wire, common_pb2.Place(study=SHA, attempt=2**31)),
        (codec.header_from_wire, silo_pb2.UploadHeader()),
        (codec.header_from_wire, silo_pb2.UploadHeader(place=PLACE, tensor=2, kind="ckks", silo="a", values=1, size=1)),
        (codec.answer_from_wire, silo_pb2.AnswerRequest(place=PLACE)),
        (codec.confirm_from_wire, silo_pb2.ConfirmRequest(task=silo_pb2.TASK_TAKE)),
        (codec.work_from_wire, silo_pb2.Work(task=silo_pb2.TASK_FINISH, place=PLACE, outcome="perhaps")),
        (codec.work_from_wire, silo_pb2.Work(task=silo_pb2.TASK_TAKE, place=PLACE, parts=[silo_pb2.Part()])),
        (codec.work_from_wire, silo_pb2.Work(task=silo_pb2.TASK_SIGN, place=PLACE, tensor=1, participants=["a"])),
        (codec.confirm_from_wire, silo_pb2.ConfirmRequest(place=PLACE, task=silo_pb2.TASK_SIGN, tensor=1)),
        (codec.member_from_wire, common_pb2.Member()),
    ],
)
def test_what_is_missing_is_refused(decode, wire):
    with pytest.raises(MessageError):
        decode(through_bytes(wire))
