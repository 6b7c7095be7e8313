"""Messages of every kind, by hand, and the vectors made of them: `python -m tests.protos.wire_examples`, from the root.

That writes `wire.json` with the product's code. The vectors are what other versions send, so bytes that change there
change the protocol. `wire_checker` says what the file means.
"""

from __future__ import annotations

import json
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor

from protos import codec
from protos.checkpoints import Cosigned, CosignedCheckpoint, Handed, SignedCheckpoint
from protos.messages import (
    EVIDENCE_BYTES,
    FALSE_MODEL,
    MAX_CONTENT,
    RINGS,
    AgreedFigure,
    Answer,
    Complaint,
    Confirm,
    Figure,
    Member,
    Part,
    Place,
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
from protos.steps import SUM, Note, Task

FILE = Path(__file__).resolve().parent / "wire.json"
STUDY, SHA = "5a" * 32, "c0" * 32
MOST = (1 << 32) - 1
FIRST, LAST = Place(STUDY, 0, 1), Place(STUDY, 65_535, 65_535)
MEMBER = Member("north", b"pem", bytes(range(32)), bytes(592) + b"k" * 592, b"signed")
NAMED = ("north", "south", "west-2")
SIGNED = tuple(Signature(name, name.encode()[:1]) for name in NAMED)
PEMS = (b"1", b"2\x00", b"\xff" * 3)
SUM_PART, NOTE_PART = Part(SUM, "", 1, SHA), Part(Note.SHARES, "south", MAX_CONTENT, SHA)
UPLOADS = tuple(
    Upload(Part(kind, name, 1 << 14 * i, SHA), b"u") for i, (kind, name) in enumerate(zip(RINGS, NAMED, strict=True))
)
VOID = Void(65_535, SIGNED, PEMS)
SPOILT = Spoilt(300, Tensor.ENCODER, NAMED, SHA, "west-2", SIGNED[:2], PEMS[:2])
COMPLAINT = Complaint("north", "south", bytes(range(EVIDENCE_BYTES)), b"c")
STATED = SignedCheckpoint(b'{"entries":3}', b"pem", b"s" * 256)
COSIGNED = CosignedCheckpoint(STATED, b"other pem", b"\x00")
FIGURES = (
    Figure("", "", None, 0.0, 0.0),
    Figure("women, 65 à 70", "auc", 0.0, -0.0, 1e12),
    Figure("x", "auc", 0.75, -1e12, 5e-324),
)
FULL_MEMBERS = (
    MemberStatus("north", "active", "≥ 2 séjours", 1.7e9, 0.1, 3600.0, MOST, set_aside=True),
    MemberStatus("south", "invited", "", 0.0),
)

EXAMPLES = {
    "first place": FIRST,
    "last place": LAST,
    "member": MEMBER,
    "nothing to do": Work(Task.WAIT),
    "nothing to do, and why": Work(Task.WAIT, why="paused: ≥ 2 séjours"),
    "offer": Work(Task.DECIDE, FIRST, roster=(MEMBER,)),
    "offer after a spoilt sum": Work(Task.DECIDE, LAST, spoilt=SPOILT),
    "offer after a spoilt sum that shows nobody's fault": Work(
        Task.DECIDE, LAST, spoilt=Spoilt(1, Tensor.COUNTS, ("a",), SHA, "", (Signature("a", b"s"),), (b"p",))
    ),
    "take": Work(Task.TAKE, FIRST, actor="north", parts=(SUM_PART, NOTE_PART)),
    "contribution": Work(Task.CONTRIBUTE, LAST, Tensor.HEADS, participants=NAMED),
    "contribution after a list was closed": Work(Task.CONTRIBUTE, LAST, Tensor.METRICS, participants=NAMED, void=VOID),
    "reveal": Work(
        Task.REVEAL, FIRST, Tensor.COUNTS, participants=NAMED, survivors=NAMED[1:], signatures=SIGNED[1:], why="why"
    ),
    "recount": Work(Task.RECOUNT, FIRST, Tensor.ENCODER, participants=NAMED, survivors=NAMED, uploads=UPLOADS),
    "catching up": Work(
        Task.CATCH_UP,
        FIRST,
        parts=(NOTE_PART,),
        vouches=tuple(Vouch(name, pem, b"v") for name, pem in zip(NAMED, PEMS, strict=True)),
    ),
    "examination": Work(Task.EXAMINE, FIRST, parts=(NOTE_PART,), complaint=COMPLAINT),
    **{
        f"study that is {how}": Work(Task.FINISH, FIRST, outcome=how)
        for how in ("finished", "ended", "aborted", "left")
    },
    "shortest note": UploadHeader(FIRST, Note.KEYS, None, "a", 0, 1, SHA),
    "reveal for a tensor": UploadHeader(FIRST, Note.REVEAL, Tensor.METRICS, "a", 0, 128, SHA),
    "largest upload": UploadHeader(LAST, "ring64", Tensor.ENCODER, "n" * 63, (1 << 40) - 1, MAX_CONTENT, SHA),
    "part taken": Answer(FIRST, "", member=MEMBER, model="m"),
    "refusal": Answer(LAST, "session", refusal="clip", explanation="≥ 2 séjours"),
    **{
        f"dispute of {task.name}": Confirm(FIRST, task, dispute="data")
        for task in Task
        if task not in (Task.WAIT, Task.DECIDE)
    },
    **{f"{tensor.name} adopted": Confirm(FIRST, Task.ADOPT, tensor, model="m") for tensor in Tensor},
    "content held": Confirm(LAST, Task.CATCH_UP, content=SHA, vouch=b"v" * 256),
    "false model": Confirm(FIRST, Task.JUDGE, dispute=FALSE_MODEL, signature=b"s"),
    "published": Confirm(FIRST, Task.OPEN, Tensor.METRICS, "m", "", "why", publication=b"{}", signature=b"s"),
    "no promise": Confirm(FIRST, Task.VOID, Tensor.HEADS),
    "spoilt sum stated": Confirm(FIRST, Task.RECOUNT, Tensor.HEADS, signature=b"s", culprit="west-2"),
    "complaint": Confirm(
        FIRST, Task.CHECK, dispute="share", culprit="south", evidence=bytes(range(EVIDENCE_BYTES)), signature=b"s"
    ),
    "liar": Confirm(FIRST, Task.EXAMINE, culprit="south"),
    "checkpoint": STATED,
    "shortest checkpoint": SignedCheckpoint(b"\x00", b"p", b"s"),
    "cosignature": COSIGNED,
    "handed": Handed(STATED),
    "handed with evidence": Handed(STATED, COSIGNED),
    "cosigned": Cosigned(COSIGNED),
    "cosigned by a peer": Cosigned(COSIGNED, CosignedCheckpoint(SignedCheckpoint(b"{}", b"p", b"s"), b"q", b"t")),
    "empty status": StudyStatus("", "", "", "", 0, 0, 0, "", None, (), ()),
    "status": StudyStatus(
        STUDY,
        "tiny",
        "running",
        "why",
        1,
        127,
        128,
        "contribute",
        Tensor.HEADS,
        NAMED,
        FULL_MEMBERS,
        (PhaseTime(MOST, MOST, "sign", Tensor.COUNTS, 0.25), PhaseTime(0, 0, "", None, 0.0)),
        (UploadSize(MOST, MOST, Tensor.METRICS, "ckks", "a", (1 << 64) - 1), UploadSize(0, 0, None, "", "", 0)),
    ),
    "empty results": StudyResults("", "", 0, (), ()),
    "results": StudyResults(
        STUDY,
        "tiny",
        MOST,
        tuple(AgreedFigure(figure, silos) for figure, silos in zip(FIGURES, (0, 3, MOST), strict=True)),
        (SignedPublication("north", b"", b"s", b"p"), SignedPublication("south", b"{}\x00", b"s", b"p")),
    ),
}
"""By name. The parts of results are a vector each, all of the same name."""


def to_wires(message):
    """A message as protobuf objects: one, or the parts of results."""
    return list(codec.results_to_wire(message)) if type(message) is StudyResults else [codec.to_wire(message)]


def fields(wire):
    """The fields of a protobuf object as the vectors have them."""
    return {field.name: _each(field, value) for field, value in wire.ListFields()}


def _each(field, value):
    return [_value(field, one) for one in value] if field.is_repeated else _value(field, value)


def _value(field, value):
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return fields(value)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return field.enum_type.values_by_number[value].name
    return value.hex() if field.type == FieldDescriptor.TYPE_BYTES else value


def text():
    """The file, with one line for each vector."""
    lines = [
        json.dumps(
            {
                "name": name,
                "message": wire.DESCRIPTOR.name,
                "fields": fields(wire),
                "bytes": wire.SerializeToString(deterministic=True).hex(),
            },
            ensure_ascii=False,
        )
        for name, message in EXAMPLES.items()
        for wire in to_wires(message)
    ]
    return '{"vectors": [\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
