"""A message that cannot be meant is refused, by field; what is signed is unambiguous."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.messages import (
    MAX_CONTENT,
    MAX_PUBLICATION,
    RINGS,
    Answer,
    Complaint,
    Confirm,
    Figure,
    Member,
    MessageError,
    Part,
    Place,
    Publication,
    Signature,
    Spoilt,
    Tensor,
    Upload,
    UploadHeader,
    Work,
    require_digest,
    require_name,
)
from protos.steps import SUM, Note, Task
from support.steps import ADDED, CONFIRMED, FETCHED, SUMMED
from support.wire import headers, publications

SHA = "a" * 64
PLACE = Place(SHA, 1, 2)
MEMBER = Member("north", b"pem", b"k" * 32, b"k" * 1184, b"signature")
KEYS = Part("keys", "north", 1, SHA)
TWO = ("north", "south")
SPOILT = Spoilt(1, Tensor.HEADS, TWO, SHA, "", (Signature("north", b"s"),), (b"pem",))
COMPLAINT = Complaint("north", "south", bytes(64), b"s")
FIGURE = Figure("old men", "auc", 0.75, 0.7, 0.8)
HEADER = UploadHeader(PLACE, "ckks", Tensor.HEADS, "north", 9, 65536, SHA)


def work(task, **fields):
    """Work of a sum, whole but for what is given."""
    base = {
        "tensor": Tensor.HEADS,
        "parts": (Part(SUM, "", 1, SHA),) if task in FETCHED else (),
        "participants": TWO if task in (*SUMMED, Task.CHECK) else (),
        "survivors": TWO if task in ADDED else (),
        "signatures": tuple(Signature(silo, b"s") for silo in TWO) if task is Task.REVEAL else (),
        "complaint": COMPLAINT if task is Task.EXAMINE else None,
        "uploads": tuple(Upload(Part("ckks", silo, 1, SHA), b"s") for silo in TWO) if task is Task.RECOUNT else (),
    }
    return Work(task, PLACE, **{**base, **fields})


def complains(**fields):
    return Confirm(PLACE, Task.CHECK, dispute="x", **fields)


def opened(**fields):
    return Confirm(PLACE, Task.OPEN, Tensor.METRICS, **fields)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("study", lambda: Place("A" * 64, 0, 1)),
        ("study", lambda: Place("a" * 63, 0, 1)),
        ("study", lambda: Place("a" * 64 + "\n", 0, 1)),
        ("round", lambda: Place(SHA, -1, 1)),
        ("round", lambda: Place(SHA, 1 << 16, 1)),
        ("attempt", lambda: Place(SHA, 0, 0)),
        ("attempt", lambda: Place(SHA, 0, 1 << 16)),
        ("member.silo", lambda: replace(MEMBER, silo="North")),
        ("member.silo", lambda: replace(MEMBER, silo="../north")),
        ("member.silo", lambda: replace(MEMBER, silo="_sum")),
        ("member.certificate_pem", lambda: replace(MEMBER, certificate_pem=b"")),
        ("member.certificate_pem", lambda: replace(MEMBER, certificate_pem=b"x" * 16_385)),
        ("member.public_key", lambda: replace(MEMBER, public_key=b"k" * 31)),
        ("member.kem_key", lambda: replace(MEMBER, kem_key=b"k" * 1183)),
        ("member.kem_key", lambda: replace(MEMBER, kem_key=b"")),
        ("member.signature", lambda: replace(MEMBER, signature=b"")),
        ("member.signature", lambda: replace(MEMBER, signature=b"x" * 257)),
        ("header.silo", lambda: replace(HEADER, silo="")),
        ("header.silo", lambda: replace(HEADER, silo="a" * 64)),
        ("header.sha256", lambda: replace(HEADER, sha256="")),
        ("header.size", lambda: replace(HEADER, size=0)),
        ("header.size", lambda: replace(HEADER, size=-1)),
        ("header.size", lambda: replace(HEADER, size=MAX_CONTENT + 1)),
        ("header.values", lambda: replace(HEADER, values=0)),
        ("header.values", lambda: replace(HEADER, values=1 << 40)),
        ("header.kind", lambda: replace(HEADER, kind="ring")),
        ("header.kind", lambda: replace(HEADER, kind="plain")),
        ("header.kind", lambda: replace(HEADER, kind="sum")),
        ("header.kind", lambda: replace(HEADER, tensor=None)),
        ("header.kind", lambda: replace(HEADER, tensor=None, kind="counts", values=0)),
        ("header.tensor", lambda: replace(HEADER, kind=Note.KEYS, values=0)),
        ("header.tensor", lambda: replace(HEADER, tensor=None, kind=Note.REVEAL, values=0)),
        ("header.values", lambda: replace(HEADER, kind=Note.REVEAL)),
        ("header.values", lambda: replace(HEADER, tensor=None, kind=Note.KEYS)),
        ("header.values", lambda: replace(HEADER, tensor=None, kind=Note.KEYS, values=-1)),
        ("work.place", lambda: Work(Task.WAIT, PLACE)),
        ("work.place", lambda: Work(Task.DECIDE)),
        *(("work.tensor", lambda task=task: work(task, tensor=None)) for task in SUMMED),
        *(("work.parts", lambda task=task: work(task, parts=())) for task in FETCHED),
        *(
            ("work.parts", lambda task=task: work(task, parts=(KEYS,)))
            for task in Task
            if task not in (*FETCHED, Task.WAIT, Task.FINISH)
        ),
        ("work.parts", lambda: work(Task.TAKE, parts=(KEYS, replace(KEYS, size=2)))),
        *(("work.participants", lambda task=task: work(task, participants=())) for task in SUMMED),
        ("work.participants", lambda: work(Task.EXCHANGE, participants=TWO)),
        ("work.participants", lambda: work(Task.CONTRIBUTE, participants=TWO[::-1])),
        ("work.participants", lambda: work(Task.CONTRIBUTE, participants=("north", "north"))),
        ("work.participants", lambda: work(Task.CONTRIBUTE, participants=("North",))),
        *(("work.survivors", lambda task=task: work(task, survivors=())) for task in ADDED if task is not Task.REVEAL),
        ("work.survivors", lambda: work(Task.CONTRIBUTE, survivors=TWO)),
        ("work.survivors", lambda: work(Task.SIGN, survivors=("north", "west"))),
        ("work.survivors", lambda: work(Task.SIGN, survivors=TWO[::-1])),
        ("work.signatures", lambda: work(Task.REVEAL, signatures=())),
        ("work.signatures", lambda: work(Task.REVEAL, signatures=(Signature("west", b"s"),))),
        ("work.signatures", lambda: work(Task.REVEAL, signatures=(Signature("north", b"s"), Signature("north", b"t")))),
        ("work.signatures", lambda: work(Task.OPEN, signatures=(Signature("north", b"s"),))),
        ("signature.silo", lambda: Signature("North", b"s")),
        ("signature.signature", lambda: Signature("north", b"")),
        ("signature.signature", lambda: Signature("north", b"s" * 257)),
        ("part.kind", lambda: replace(KEYS, kind="clear")),
        ("upload.part", lambda: Upload(KEYS, b"s")),
        ("spoilt.certificates", lambda: replace(SPOILT, certificates=())),
        ("spoilt.statements", lambda: replace(SPOILT, certificates=(b"pem", b"pem"))),
        ("spoilt.statements", lambda: replace(SPOILT, names=("west",))),
        ("spoilt.names", lambda: replace(SPOILT, names=("south", "north"))),
        ("spoilt.names", lambda: replace(SPOILT, culprit="../west")),
        ("spoilt.attempt", lambda: replace(SPOILT, attempt=0)),
        ("work.spoilt", lambda: work(Task.SIGN, spoilt=SPOILT)),
        ("work.uploads", lambda: work(Task.RECOUNT, uploads=work(Task.RECOUNT).uploads[:1])),
        ("work.uploads", lambda: work(Task.OPEN, uploads=work(Task.RECOUNT).uploads)),
        ("confirm.culprit", lambda: Confirm(PLACE, Task.OPEN, Tensor.HEADS, culprit="north")),
        ("work.complaint", lambda: work(Task.EXAMINE, complaint=None)),
        ("work.complaint", lambda: work(Task.CHECK, complaint=COMPLAINT)),
        ("complaint.silo", lambda: replace(COMPLAINT, silo="North")),
        ("complaint.owner", lambda: replace(COMPLAINT, owner="../south")),
        ("complaint.owner", lambda: replace(COMPLAINT, owner="north")),
        ("complaint.evidence", lambda: replace(COMPLAINT, evidence=bytes(63))),
        ("confirm.culprit", lambda: Confirm(PLACE, Task.CHECK, culprit="north")),
        ("confirm.culprit", lambda: Confirm(PLACE, Task.EXAMINE)),
        ("confirm.evidence", lambda: complains(culprit="north", evidence=b"k", signature=b"s")),
        ("confirm.evidence", lambda: complains(evidence=bytes(64), signature=b"s")),
        ("confirm.signature", lambda: complains(culprit="north", evidence=bytes(64))),
        ("confirm.signature", lambda: complains(culprit="north", signature=b"s")),
        ("confirm.signature", lambda: Confirm(PLACE, Task.RECOUNT, Tensor.HEADS)),
        ("part.silo", lambda: replace(KEYS, silo="")),
        ("part.silo", lambda: replace(KEYS, silo="../north")),
        ("part.silo", lambda: Part(SUM, "north", 1, SHA)),
        ("part.sha256", lambda: replace(KEYS, sha256="")),
        ("part.size", lambda: replace(KEYS, size=0)),
        ("part.size", lambda: replace(KEYS, size=MAX_CONTENT + 1)),
        ("work.outcome", lambda: Work(Task.FINISH, PLACE)),
        ("work.outcome", lambda: Work(Task.FINISH, PLACE, outcome="won")),
        ("work.outcome", lambda: Work(Task.DECIDE, PLACE, outcome="finished")),
        ("answer.member", lambda: Answer(PLACE, "s")),
        ("answer.member", lambda: Answer(PLACE, "s", refusal="budget_spent", member=MEMBER)),
        ("confirm.task", lambda: Confirm(PLACE, Task.WAIT)),
        ("confirm.task", lambda: Confirm(PLACE, Task.DECIDE, dispute="no")),
        ("confirm.task", lambda: Confirm(PLACE, Task.DEAL)),
        ("confirm.task", lambda: Confirm(PLACE, Task.CONTRIBUTE)),
        ("confirm.task", lambda: Confirm(PLACE, Task.SOLVE)),
        ("confirm.task", lambda: Confirm(PLACE, Task.SHARE)),
        *(
            ("confirm.task", lambda task=task: Confirm(PLACE, task))
            for task in (Task.GREET, Task.EXCHANGE, Task.REVEAL)
        ),
        ("confirm.tensor", lambda: Confirm(PLACE, Task.SIGN, signature=b"s")),
        ("confirm.signature", lambda: Confirm(PLACE, Task.SIGN, Tensor.HEADS)),
        ("confirm.signature", lambda: Confirm(PLACE, Task.SIGN, Tensor.HEADS, dispute="no", signature=b"s")),
        ("confirm.signature", lambda: Confirm(PLACE, Task.TAKE, signature=b"s")),
        ("confirm.signature", lambda: opened(publication=b"{}")),
        ("confirm.signature", lambda: opened(signature=b"s")),
        ("confirm.signature", lambda: opened(publication=b"{}", signature=b"s" * 257)),
        ("confirm.publication", lambda: opened(publication=b" " * (MAX_PUBLICATION + 1), signature=b"s")),
        ("confirm.publication", lambda: opened(publication=b"{}", signature=b"s", dispute="data")),
        (
            "confirm.publication",
            lambda: Confirm(PLACE, Task.OPEN, Tensor.HEADS, publication=b"{}", signature=b"s"),
        ),
        ("confirm.publication", lambda: Confirm(PLACE, Task.ADOPT, publication=b"{}", signature=b"s")),
        ("figure.value", lambda: Figure("a", "auc", math.nan, 0.0, 1.0)),
        ("figure.value", lambda: Figure("a", "auc", 1e13, 0.0, 1.0)),
        ("figure.low", lambda: Figure("a", "auc", 0.5, -math.inf, 1.0)),
        ("figure.high", lambda: Figure("a", "auc", 0.5, 0.0, math.inf)),
        ("figure.low", lambda: Figure("a", "auc", 0.5, 0.6, 0.5)),
        ("publication.study", lambda: Publication("tiny", ())),
        ("publication.figures", lambda: Publication(SHA, (FIGURE, replace(FIGURE, value=None)))),
    ],
)
def test_nonsense_is_refused_by_field(field, make):
    with pytest.raises(MessageError, match=f"^{field}: "):
        make()


@pytest.mark.parametrize("task", [*CONFIRMED, Task.FINISH])
def test_what_is_no_upload_is_confirmed(task):
    signature = b"s" if task in (Task.SIGN, Task.RECOUNT) else b""
    culprit = "north" if task is Task.EXAMINE else ""
    assert Confirm(PLACE, task, Tensor.HEADS, signature=signature, culprit=culprit).task is task


@pytest.mark.parametrize("task", [task for task in Task if task not in (Task.WAIT, Task.DECIDE)])
def test_everything_that_a_place_asks_for_can_be_disputed(task):
    assert Confirm(PLACE, task, dispute="data").task is task


@pytest.mark.parametrize("task", SUMMED)
def test_the_work_of_a_sum_says_who_takes_part(task):
    asked = work(task)
    assert (asked.participants, asked.survivors) == (TWO, TWO if task in ADDED else ())


def test_names_and_digests():
    require_name("a", "silo")
    require_name("a-1", "silo")
    require_digest(SHA, "study")
    for name in ("-a", "a-", "a.b", "a b", "é", "a\n"):
        with pytest.raises(MessageError, match="is not a name"):
            require_name(name, "silo")
    with pytest.raises(MessageError, match="SHA-256 in lowercase hex"):
        require_digest("g" * 64, "study")


@pytest.mark.parametrize("kind", RINGS)
@pytest.mark.parametrize("tensor", Tensor)
def test_a_tensor_may_be_announced_in_any_ring(tensor, kind):
    assert replace(HEADER, tensor=tensor, kind=kind).slot == tensor


def test_a_slot_is_a_tensor_or_a_note():
    notes = {kind: UploadHeader(PLACE, kind, None, "north", 0, 10, SHA).slot for kind in set(Note) - {Note.REVEAL}}
    assert (HEADER.slot, notes) == ("heads", {kind: f"note-{kind}" for kind in notes})
    reveals = {UploadHeader(PLACE, Note.REVEAL, tensor, "north", 0, 10, SHA).slot for tensor in Tensor}
    assert reveals == {f"note-reveal-{tensor}" for tensor in Tensor}


def test_what_is_signed_is_fixed():
    """A change of this form would make every older agent's signature void."""
    fields = (b"fedward upload 1", SHA.encode(), bytes((0, 0, 0, 1, 0, 0, 0, 2)), b"ckks", b"heads", b"north")
    numbers = (9).to_bytes(8, "big") + (65536).to_bytes(8, "big")
    expected = b"".join(len(part).to_bytes(4, "big") + part for part in (*fields, numbers, SHA.encode()))
    assert HEADER.canonical() == expected


@given(headers(), headers())
def test_two_headers_that_differ_are_signed_differently(one, other):
    assert (one == other) == (one.canonical() == other.canonical())


@given(publications)
def test_a_publication_comes_back_from_its_canonical_form(publication):
    blob = publication.canonical()
    assert Publication.parse(blob) == publication
    assert blob == json.dumps(json.loads(blob), sort_keys=True, separators=(",", ":")).encode()


def test_what_is_published_is_fixed():
    """A change of this form would make what silos have signed unverifiable."""
    blob = Publication(SHA, (FIGURE, Figure("x", "patients", None, 0, 3))).canonical()
    assert blob == (
        b'{"figures":[{"domain":"old men","high":0.8,"low":0.7,"metric":"auc","value":0.75},'
        b'{"domain":"x","high":3.0,"low":0.0,"metric":"patients","value":null}],"study":"' + SHA.encode() + b'"}'
    )
    assert Publication.to_sign(blob) == b"fedward publication 1\n" + blob


def document(**changes):
    return {**json.loads(Publication(SHA, (FIGURE,)).canonical()), **changes}


def canonical(content):
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"1",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        json.dumps(document(), sort_keys=True).encode(),
        Publication(SHA, (FIGURE,)).canonical() + b" ",
        canonical(document(extra=1)),
        canonical(document(figures={})),
        canonical(document(figures=[[]])),
        canonical(document(figures=[{**document()["figures"][0], "extra": 1}])),
        *(
            canonical(document(figures=[{**document()["figures"][0], **wrong}]))
            for wrong in ({"value": True}, {"value": "1"}, {"low": 0}, {"low": None}, {"domain": 1}, {"metric": []})
        ),
        canonical(document(figures=[{**document()["figures"][0], "value": math.nan}])),
        canonical(document(study=SHA.upper())),
        canonical(document(figures=document()["figures"] * 2)),
        b" " * (MAX_PUBLICATION + 1),
    ],
    ids=lambda blob: blob[:60].decode(errors="replace"),
)
def test_anything_else_is_no_publication(blob):
    with pytest.raises(MessageError, match=r"^(publication|figure)"):
        Publication.parse(blob)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(blob):
    with pytest.raises(MessageError):
        Publication.parse(blob)
