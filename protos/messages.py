"""The messages between silos, coordinator and operators, as frozen values that are validated on construction.

Generated protobuf objects stop at `protos.codec`. Everything inside the programs uses these types. An impossible value
(a negative size, a malformed digest) is refused here, once, for both sides.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from common.names import is_name
from protos import bounds
from protos.bounds import MAX_SILOS, Count, Digest, Name, Names, Pem, Sentence, SignatureBytes, Text
from protos.steps import STEPS, SUM, Note, Task

PROTOCOL = 7
EPOCH_KEY = "fedward-epoch"
"""The entry of an answer's metadata that says the epoch of the coordinator's lease (`coordinator.lease`)."""
MAX_CHUNK = 1 << 17
"""Bytes of a chunk, the data in one message of a stream. Each chunk has its own hash (`protos.chunks`). Many streams
hold several chunks in memory at once."""
MAX_MESSAGE = 4 << 20
"""Most bytes of any message: a chunk, a list of chunks, or a roster of 256 members with certificates and keys."""
MAX_CONTENT = 8 << 30
"""Most bytes of one upload, download or note: 65,536 chunks, whose list is 2 MiB."""
MAX_PUBLICATION = 1 << 20
"""Most bytes that one silo publishes."""
MAX_FIGURE = 1e12
"""Largest magnitude of a published number. A larger one is taken for an error."""

MAX_FIGURES = 1 << 15
"""Most figures of one study. `MAX_PUBLICATION` holds fewer."""

EVIDENCE_BYTES = 64
_MAX_SIGNATURE = 256
_X25519_BYTES = 32
_ML_KEM_768_BYTES = 1184
_MAX_PARTS = 8 * MAX_SILOS
_NEEDED = ("participants", "survivors", "signatures", "complaint")
"""Fields of `Work` that are there exactly if the step carries them (`protos.steps`)."""
_CARRIED = (*_NEEDED, "void", "vouches", "uploads", "spoilt")
_OUTCOMES = ("", "finished", "ended", "aborted", "left")


class MessageError(ValueError):
    """A message is malformed. The text names the field and what is wrong with it."""


def _require(condition: bool, field: str, fault: str) -> None:  # noqa: FBT001  # reads as an assertion
    if not condition:
        msg = f"{field}: {fault}"
        raise MessageError(msg)


def require_digest(value: str, field: str) -> None:
    """Raise `MessageError` unless the value is a SHA-256 in lowercase hex."""
    _require(not (wrong := bounds.Hex().fault(value)), field, wrong)


def require_name(value: str, field: str) -> None:
    """Raise `MessageError` unless the value can be the name of a silo."""
    _require(is_name(value), field, "is not a name (a-z, 0-9, '-'; at most 63)")


def require_text(value: str, field: str) -> None:
    """Raise `MessageError` unless the value is short enough for a name and has no control characters."""
    _require(not (wrong := Text(bounds.MAX_NAME).fault(value)), field, wrong)


class Message:
    """What all messages have in common: each field keeps its bound (`protos.bounds`), from the construction on."""

    called: ClassVar[str | None] = None
    """What errors call a message of this class, if not by the name of the class."""

    def __post_init__(self) -> None:
        if (fault := bounds.fault(self)) is not None:
            called = type(self).__name__.lower() if self.called is None else self.called
            raise MessageError(f"{called}.{fault[0]}: {fault[1]}".lstrip("."))  # made of parts


@dataclass(frozen=True)
class AuthorSignature(Message):
    """An author's signature under a study, over its digest and its purpose (`crypto.authorship`)."""

    called: ClassVar[str | None] = "author"

    certificate_pem: Pem
    signature: SignatureBytes


@dataclass(frozen=True)
class StudyText(Message):
    """A study as it comes over the wire. Whoever reads it checks that its digest is the one asked for."""

    called: ClassVar[str | None] = "study"

    canonical: Annotated[bytes, Count(0, MAX_MESSAGE)]
    author: AuthorSignature | None = None
    """None if a version up to 0.6 created the study."""


class Tensor(StrEnum):
    """The kinds of vectors that are summed."""

    COUNTS = "counts"
    HEADS = "heads"
    ENCODER = "encoder"
    METRICS = "metrics"


ALLOWED, PERSON, REFUSED, SILENT = "allowed", "person", "refused", "silent"
VERDICTS = (ALLOWED, PERSON, REFUSED, SILENT)
"""What a silo answers to a poll: it would take part, a person has to decide, its policy refuses, or no answer."""
RINGS = ("ckks", "ring32", "ring64")
"""The ways to seal a tensor (`crypto.rings.rings`). The study says how each tensor is sealed."""
FALSE_MODEL = "false_model"
"""The dispute with which a silo signs that a peer's note does not give the model that it holds itself."""


@dataclass(frozen=True, order=True)
class Place(Message):
    """One attempt at one round of one study."""

    called: ClassVar[str | None] = ""

    study: Digest
    round: int
    attempt: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(0 <= self.round < 1 << 16, "round", "lies outside 0..65535")
        _require(1 <= self.attempt < 1 << 16, "attempt", "lies outside 1..65535")


@dataclass(frozen=True)
class Member(Message):
    """One silo of a roster: certificate, ephemeral public keys, and the signature that binds them to the study."""

    silo: Name
    certificate_pem: Pem
    public_key: Annotated[bytes, Count(_X25519_BYTES, _X25519_BYTES)]
    """X25519."""
    kem_key: Annotated[bytes, Count(_ML_KEM_768_BYTES, _ML_KEM_768_BYTES)]
    """ML-KEM-768."""
    signature: SignatureBytes

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name(self.silo, "member.silo")


@dataclass(frozen=True)
class Part(Message):
    """Something to fetch: the sum, which belongs to no silo, or a note or an upload of one silo."""

    kind: Name
    silo: Name
    size: int
    sha256: Digest
    """Digest of its list of chunks (`protos.chunks`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.kind == SUM or self.kind in {*Note, *RINGS}
        _require(known, "part.kind", "is neither the sum nor a note nor an upload")
        _require((self.kind == SUM) == (not self.silo), "part.silo", "is needed exactly for what one silo made")
        if self.silo:
            require_name(self.silo, "part.silo")
        _require(0 < self.size <= MAX_CONTENT, "part.size", f"lies outside 1..{MAX_CONTENT}")


@dataclass(frozen=True)
class Signature(Message):
    """A signature over a list of survivors by a silo's certificate key (`crypto.secagg.survivors`)."""

    silo: Name
    signature: SignatureBytes

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name(self.silo, "signature.silo")


@dataclass(frozen=True)
class Void(Message):
    """Silos' promises, each with its certificate, to reveal nothing in a round's attempts up to `through`."""

    through: int
    promises: Annotated[tuple[Signature, ...], Count(1, MAX_SILOS)]
    certificates: Annotated[tuple[Pem, ...], Count(1, MAX_SILOS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        names = tuple(one.silo for one in self.promises)
        fits = names == tuple(sorted(set(names))) and len(self.certificates) == len(names)
        _require(fits, "void.promises", "are not in order, each once and with a certificate")
        _require(1 <= self.through < 1 << 16, "void.through", "lies outside 1..65535")


@dataclass(frozen=True)
class Upload(Message):
    """One silo's upload as the silo signed it: a tensor's, for silos that add again, or a reveal for a tensor."""

    part: Part
    signature: SignatureBytes
    """Over the upload's header (`UploadHeader.canonical`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.part.kind in (*RINGS, Note.REVEAL), "upload.part", "is no upload for a tensor")


@dataclass(frozen=True)
class Spoilt(Message):
    """Silos' statements, each with its certificate, that they refused a sum (`crypto.secagg.spoilt`)."""

    attempt: int
    tensor: Tensor
    names: Names
    """The survivor list."""
    sum: Digest
    culprit: Name
    """The silo whose own signed notes show the fault; empty if none show one."""
    statements: Annotated[tuple[Signature, ...], Count(1, MAX_SILOS)]
    certificates: Annotated[tuple[Pem, ...], Count(1, MAX_SILOS)]

    def __post_init__(self) -> None:
        super().__post_init__()
        names = tuple(one.silo for one in self.statements)
        fits = names == tuple(sorted(set(names))) and len(self.certificates) == len(names)
        _require(fits, "spoilt.statements", "are not in order, each once and with a certificate")
        _require(self.names == tuple(sorted(set(self.names))), "spoilt.names", "are not in order, each once")
        _require(set(names) <= set(self.names), "spoilt.statements", "are not all listed silos'")
        for name in (*self.names, *((self.culprit,) if self.culprit else ())):
            require_name(name, "spoilt.names")
        _require(1 <= self.attempt < 1 << 16, "spoilt.attempt", "lies outside 1..65535")


@dataclass(frozen=True)
class Vouch(Message):
    """A silo's signature that it holds a model of some content after a round (`crypto.secagg.holding`)."""

    silo: Name
    certificate_pem: Pem
    signature: SignatureBytes

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name(self.silo, "vouch.silo")


@dataclass(frozen=True)
class Complaint(Message):
    """A silo's signed complaint about the shares that another has sealed for it (`crypto.secagg.dealt.complaints`)."""

    silo: Name
    owner: Name
    """Whose shares they are."""
    evidence: Annotated[bytes, Count(EVIDENCE_BYTES, EVIDENCE_BYTES)]
    """As in `Confirm`."""
    signature: SignatureBytes

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name(self.silo, "complaint.silo")
        require_name(self.owner, "complaint.owner")
        _require(self.silo != self.owner, "complaint.owner", "complains about itself")


@dataclass(frozen=True)
class Work(Message):
    """What the coordinator tells one silo to do. `WAIT` carries no place."""

    task: Task
    place: Place | None = None
    tensor: Tensor | None = None
    roster: Annotated[tuple[Member, ...], Count(0, MAX_SILOS)] = ()
    actor: Name = ""
    parts: Annotated[tuple[Part, ...], Count(0, _MAX_PARTS)] = ()
    """What the silo must fetch. Each pair of kind and silo is there once."""
    participants: Names = ()
    """The silos that may contribute to this attempt's sums, by name. They are fixed from `CHECK` on."""
    survivors: Names = ()
    """The silos whose contributions are in the sum, by name. They are fixed from `SIGN` on."""
    signatures: Annotated[tuple[Signature, ...], Count(0, MAX_SILOS)] = ()
    """For `REVEAL`: the silos' signatures over the survivors. The coordinator only relays them, unverified."""
    why: Sentence = ""
    outcome: Literal["", "finished", "ended", "aborted", "left"] = ""
    """How the study ended, if it is over for this silo."""
    void: Void | None = None
    """For `CONTRIBUTE`: what has closed the tensor's earlier lists in this round, if anything has."""
    vouches: Annotated[tuple[Vouch, ...], Count(0, MAX_SILOS)] = ()
    """For `CATCH_UP`: who has signed which model the round builds on, by name."""
    uploads: Annotated[tuple[Upload, ...], Count(0, MAX_SILOS)] = ()
    """For `OPEN`: what survivors revealed. For `RECOUNT`: what all survivors uploaded. By name."""
    spoilt: Spoilt | None = None
    """For `DECIDE`: the last proof of a spoilt sum in an earlier attempt at this round, if there is one."""
    complaint: Complaint | None = None
    """For `EXAMINE`: what is to be examined."""
    roster_sha256: Name = ""
    """In place of `roster`, which the silo holds already (`protos.roster`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.roster_sha256:
            require_digest(self.roster_sha256, "work.roster_sha256")
            _require(not self.roster, "work.roster_sha256", "comes with a roster, in whose place it stands")
        _require((self.place is None) == (self.task is Task.WAIT), "work.place", f"does not fit the task {self.task}")
        _require(
            self.outcome in _OUTCOMES and bool(self.outcome) == (self.task is Task.FINISH), "work.outcome", "is unfit"
        )
        step = STEPS.get(self.task)
        self._check_fields(() if step is None else step.carries)
        self._check_parts(() if step is None else step.fetches)
        self._check_names()
        self._check_uploads()

    def _check_fields(self, carried: tuple[str, ...]) -> None:
        """Check that the fields are those of the step (`protos.steps`)."""
        needed = self.tensor is not None or "tensor" not in carried
        _require(needed, "work.tensor", f"is missing for the task {self.task}")
        for field in _CARRIED:
            value = getattr(self, field)
            fits = bool(value) == (field in carried) if field in _NEEDED else not value or field in carried
            verb = "do" if isinstance(value, tuple) else "does"
            _require(fits, f"work.{field}", f"{verb} not fit the task {self.task}")

    def _check_parts(self, fetched: tuple[str, ...]) -> None:
        _require(bool(self.parts) or not fetched, "work.parts", f"are missing for the task {self.task}")
        _require(not self.parts or bool(fetched), "work.parts", f"are not fetched for the task {self.task}")
        named = {(part.kind, part.silo) for part in self.parts}
        _require(len(named) == len(self.parts), "work.parts", "name something twice")

    def _check_names(self) -> None:
        vouching, signers = (tuple(one.silo for one in signed) for signed in (self.vouches, self.signatures))
        _require(vouching == tuple(sorted(set(vouching))), "work.vouches", "are not in order, each once")
        named = {"participants": self.participants, "survivors": self.survivors, "signatures": signers}
        for field, names in named.items():
            _require(names == tuple(sorted(set(names))), f"work.{field}", "are not in order, each once")
            for name in names:
                require_name(name, f"work.{field}")
        _require(set(self.survivors) <= set(self.participants), "work.survivors", "are not all participants")
        _require(set(signers) <= set(self.survivors), "work.signatures", "are not all survivors'")

    def _check_uploads(self) -> None:
        givers = tuple(one.part.silo for one in self.uploads)
        reveals = [one.part.kind == Note.REVEAL for one in self.uploads]
        _require(givers == tuple(sorted(set(givers))), "work.uploads", "are not in order, each once")
        fits = set(givers) <= set(self.survivors) and all(reveals)
        if self.task is Task.RECOUNT:
            fits = givers == self.survivors and not any(reveals)
        _require(fits, "work.uploads", "are not the survivors'")


def note_slot(kind: str, tensor: Tensor | None) -> str:
    """Return the name of the slot that a note fills: `note-<kind>`, or `note-reveal-<tensor>` for a reveal."""
    return f"note-{kind}" if tensor is None else f"note-{kind}-{tensor}"


@dataclass(frozen=True)
class UploadHeader(Message):
    """Description of an upload, signed by the silo. It has only public facts, all of which follow from the study."""

    called: ClassVar[str | None] = "header"

    place: Place
    kind: Name
    tensor: Tensor | None
    silo: Name
    values: int
    size: int
    sha256: Digest
    """Digest of its list of chunks (`protos.chunks`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_name(self.silo, "header.silo")
        _require(0 < self.size <= MAX_CONTENT, "header.size", f"lies outside 1..{MAX_CONTENT}")
        if self.kind in set(Note):
            needs_tensor = self.kind == Note.REVEAL
            _require((self.tensor is not None) == needs_tensor, "header.tensor", "is named exactly by a reveal")
            _require(self.values == 0, "header.values", "is not 0, though a note has no values")
        else:
            _require(self.kind in RINGS and self.tensor is not None, "header.kind", "is neither a ring nor a note")
            _require(0 < self.values < 1 << 40, "header.values", "lies outside 1..2^40")

    @property
    def slot(self) -> str:
        """The name of the slot that this upload fills: a tensor's name, or a note's (`note_slot`)."""
        return note_slot(self.kind, self.tensor) if self.kind in set(Note) else str(self.tensor)

    def canonical(self) -> bytes:
        """Return the unambiguous bytes to sign: length-prefixed fields in order."""
        parts = (
            b"fedward upload 1",
            self.place.study.encode(),
            struct.pack(">II", self.place.round, self.place.attempt),
            self.kind.encode(),
            self.slot.encode(),
            self.silo.encode(),
            struct.pack(">QQ", self.values, self.size),
            self.sha256.encode(),
        )
        return b"".join(struct.pack(">I", len(part)) + part for part in parts)


@dataclass(frozen=True)
class Answer(Message):
    """A silo's answer to an offer: a refusal with its reason, or the member that takes part and its model's digest."""

    place: Place
    session: Name
    refusal: Name = ""
    explanation: Sentence = ""
    """Made with `bounds.sentence`, so that a long text is cut and not refused."""
    member: Member | None = None
    model: Name = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(bool(self.refusal) == (self.member is None), "answer.member", "is needed exactly without a refusal")


@dataclass(frozen=True)
class Confirm(Message):
    """A silo has done `task` and now holds `model`, or it disputes the task and gives the reason."""

    place: Place
    task: Task
    tensor: Tensor | None = None
    model: Name = ""
    dispute: Name = ""
    explanation: Sentence = ""
    """As in `Answer`."""
    publication: Annotated[bytes, Count(0, MAX_PUBLICATION)] = b""
    """`Publication.canonical`, if the study publishes and this confirms the opening of the metrics."""
    signature: Annotated[bytes, Count(0, _MAX_SIGNATURE)] = b""
    """The certificate key's signature, for `SIGN` over the survivors (`crypto.secagg.survivors`), for `VOID` over the
    promise (`crypto.secagg.voids`; empty if the silo cannot promise), for `RECOUNT` over the statement
    (`crypto.secagg.spoilt`), for `JUDGE` over the statement that the note is false, with evidence over the complaint
    (`crypto.secagg.dealt.complaints`), else over `Publication.to_sign`."""
    culprit: Name = ""
    """For `RECOUNT`: the silo whose own signed notes show the fault; empty if none show one. For `EXAMINE`: who lied.
    With the dispute of a step in which silos complain: the silo that has sealed something for this one wrongly."""
    evidence: Annotated[bytes, Count(0, EVIDENCE_BYTES)] = b""
    """With such a complaint, if it can be shown: the key of the culprit's shares for this silo, then the roster's
    digest, 32 bytes each (`crypto.secagg.dealt.bundles`)."""
    content: Name = ""
    """The keyed digest of what the silo holds now, if this confirms the end of a round or that it has caught up."""
    vouch: Annotated[bytes, Count(0, _MAX_SIGNATURE)] = b""
    """The certificate key's signature that it holds this content (`crypto.secagg.holding`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.task not in (Task.WAIT, Task.DECIDE), "confirm.task", "is not confirmed")
        step = STEPS.get(self.task)
        _require(
            bool(self.dispute) or step is None or step.confirmed,
            "confirm.task",
            "is done by an upload; only a dispute is confirmed here",
        )
        publishes = bool(self.publication)
        opens = self.task is Task.OPEN and self.tensor is Tensor.METRICS and not self.dispute
        _require(not publishes or opens, "confirm.publication", "may come only with the opening of the metrics")
        kinds = (Task.SIGN, Task.VOID, Task.RECOUNT)
        signs, voids, states = (self.task is task and not self.dispute for task in kinds)
        named = self.tensor is not None or not (signs or voids or states)
        _require(named, "confirm.tensor", "is missing, though something is signed for a tensor")
        judges = self.task is Task.JUDGE and self.dispute == FALSE_MODEL
        complains = bool(self.dispute) and step is not None and step.complains
        needed = publishes or signs or states or judges or (complains and bool(self.evidence))
        fits = voids or needed == bool(self.signature)
        _require(fits, "confirm.signature", "is needed exactly with what is signed")
        examines = self.task is Task.EXAMINE and not self.dispute
        fits = bool(self.culprit) if examines else states or complains or not self.culprit
        _require(fits, "confirm.culprit", "is needed for what was examined, else only with a statement or complaint")
        shown = complains and bool(self.culprit) and len(self.evidence) == EVIDENCE_BYTES
        _require(shown or not self.evidence, "confirm.evidence", "may come only whole and with a complaint")
        if self.culprit:
            require_name(self.culprit, "confirm.culprit")
        if self.content:
            require_digest(self.content, "confirm.content")
        holds = not self.dispute and step is not None and step.changes_model
        _require(holds or not self.content, "confirm.content", "may come only from a silo that holds a model")
        _require(bool(self.content) == bool(self.vouch), "confirm.vouch", "is needed exactly with a content")


@dataclass(frozen=True)
class Figure(Message):
    """One number of one domain with its 95 % interval for noise and sampling. It has no value if too few count."""

    domain: Sentence
    metric: Name
    value: float | None
    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, number in (("value", self.value or 0.0), ("low", self.low), ("high", self.high)):
            sensible = math.isfinite(number) and abs(number) <= MAX_FIGURE
            _require(sensible, f"figure.{name}", f"is not a number within {MAX_FIGURE:g}")
        _require(self.low <= self.high, "figure.low", "lies above figure.high")


@dataclass(frozen=True)
class Publication(Message):
    """What one silo publishes of the study's last metric sums, in the form that it signs."""

    study: Digest
    figures: Annotated[tuple[Figure, ...], Count(0, MAX_FIGURES)]

    def __post_init__(self) -> None:
        super().__post_init__()
        named = {(figure.domain, figure.metric) for figure in self.figures}
        _require(len(named) == len(self.figures), "publication.figures", "has a metric of a domain twice")

    def canonical(self) -> bytes:
        """Return canonical JSON: sorted keys, no spaces, every number written as a float."""
        figures = [asdict(figure) | _floats(figure) for figure in self.figures]
        return json.dumps({"figures": figures, "study": self.study}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, blob: bytes) -> Self:
        """The inverse of `canonical`. Raises `MessageError` for all other bytes."""
        _require(len(blob) <= MAX_PUBLICATION, "publication", "is above 1 MiB")
        try:
            parsed = cls(**_read_publication(json.loads(blob)))
            same = parsed.canonical() == blob
        except MessageError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            same = False
        _require(same, "publication", "is not a publication in canonical JSON")
        return parsed

    @staticmethod
    def to_sign(blob: bytes) -> bytes:
        """Return the bytes that the silo's certificate key signs."""
        return b"fedward publication 1\n" + blob


def _floats(figure: Figure) -> dict[str, float | None]:
    """Return the numbers of a figure as plain floats, whatever numeric type they have."""
    value = None if figure.value is None else float(figure.value)
    return {"value": value, "low": float(figure.low), "high": float(figure.high)}


def _read_publication(document: dict[str, Any]) -> dict[str, Any]:
    figures = tuple(Figure(**figure) for figure in document["figures"])
    names = [text for figure in figures for text in (figure.domain, figure.metric)]
    _require(all(isinstance(name, str) for name in names), "publication.figures", "has a domain whose name is no text")
    return document | {"figures": figures}


@dataclass(frozen=True)
class SignedPublication(Message):
    """A publication as the coordinator keeps it. Whoever trusts the authority can verify it without the coordinator."""

    silo: Name
    blob: Annotated[bytes, Count(0, MAX_PUBLICATION)]
    signature: SignatureBytes
    certificate_pem: Pem


@dataclass(frozen=True)
class AgreedFigure(Message):
    """A figure, and the number of silos that have signed exactly this figure."""

    figure: Figure
    silos: int


@dataclass(frozen=True)
class StudyResults(Message):
    """The results of a finished study: figures on which at least `needed` silos agree, and what each silo signed."""

    study: Name
    name: Name
    needed: int
    agreed: Annotated[tuple[AgreedFigure, ...], Count(0, MAX_FIGURES)]
    publications: Annotated[tuple[SignedPublication, ...], Count(0, MAX_SILOS)]
