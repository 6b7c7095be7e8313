"""The events of a ledger: debits, policies in force, notices, recoveries, faults and their end, people's decisions.

Guarantees: each kind has one canonical form, and reading it back gives the same object. A debit still has the form of
the first version, so older ledgers keep their hashes. No event says anything about a patient: a notice has a date and
a reference, never a number of records; a fault names the release that failed, never why; a reason of a person is a
keyed hash. chain.py links entries; accountant.py adds them up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from common.canonical_json import canonical_json
from common.digests import is_sha256
from policies.errors import CostError
from policies.plan.cost import Cost, finite

NoticeKind = Literal["withdrawal", "refresh"]
NOTICES: Final[tuple[NoticeKind, ...]] = get_args(NoticeKind)
NOT_COVERED: Final = "fault: not covered by epsilon"
"""What an entry says of a computation that failed after its charge. Whether it fails may tell of a patient."""
STOP_NOT_COVERED: Final = "stop: not covered by epsilon"
"""What an entry says of a study that a person stopped. Why they did may tell of a patient."""
Verdict = Literal["approved", "refused", "withdrawn"]
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)
MAX_NAME: Final = 128
MAX_SIGNATURE: Final = 512
MAX_CERTIFICATE: Final = 1 << 14
EXHAUSTED: Final = Cost("training", 1.0, 0.1, 1)
"""The charge for a gap of unknown size: epsilon of 50 or more at any delta up to 0.46 (for a Gaussian of noise 0.1
it is Phi(0) - exp(50) Phi(-10) at epsilon 50). No budget (policy.py: at most 32, at a delta below 0.01) can cover
anything after it."""


@dataclass(frozen=True, slots=True)
class EntryRef:
    """An entry's place and hash. For the newest entry, others cosign it."""

    sequence: int
    hash: str

    def __post_init__(self) -> None:
        if isinstance(self.sequence, bool) or not isinstance(self.sequence, int) or not is_sha256(self.hash):
            msg = "a ledger's head must have a whole number and a SHA-256 in lowercase hex; ask for it again"
            raise CostError(msg)


@dataclass(frozen=True)
class Debit:
    """What one attempt of a round releases, before it is computed.

    Attributes:
        study: digest of the study.
        policy: digest of the policy under which it was decided.
        round, attempt: from 0.
        costs: the costs by tensor, at least one. Read-only after construction.

    Raises `CostError` for an empty or malformed debit. Unknown releases are refused, and never charged as nothing.
    """

    study: str
    policy: str
    round: int
    attempt: int
    costs: Mapping[str, Cost]

    def __post_init__(self) -> None:
        for name, text in (("study", self.study), ("policy", self.policy), *(("tensor", key) for key in self.costs)):
            _require_text(f"a debit's {name}", text)
        for name, number in (("round", self.round), ("attempt", self.attempt)):
            _require_whole(f"a debit's {name}", number)
        if not self.costs:
            msg = "a debit must name at least one tensor and its cost"
            raise CostError(msg)
        if not all(isinstance(cost, Cost) for cost in self.costs.values()):
            msg = "a debit's costs must be of the type Cost"
            raise CostError(msg)
        object.__setattr__(self, "costs", MappingProxyType(dict(sorted(self.costs.items()))))

    def __hash__(self) -> int:
        return hash((self.study, self.policy, self.round, self.attempt, tuple(self.costs.items())))


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy was put into force. Every later debit names it, until another policy is put into force.

    Raises `CostError` if the digest is no text or the budget is no limit.
    """

    policy: str
    """Digest of the policy."""
    budget: float
    """The policy's budget.epsilon."""

    def __post_init__(self) -> None:
        _require_text("a policy's digest", self.policy)
        if not finite(self.budget) or self.budget <= 0:
            msg = f"a policy's budget must be a finite number above 0, not {str(self.budget)[:20]!r}"
            raise CostError(msg)
        object.__setattr__(self, "budget", float(self.budget))


@dataclass(frozen=True, slots=True)
class Notice:
    """A change of the data that costs nothing and refills nothing (docs/ledger.md).

    Raises `CostError` if the kind is unknown or the reference is no text.
    """

    kind: NoticeKind
    """`withdrawal`: patients withdrew, and their records were removed. `refresh`: records were added or corrected."""
    reference: str
    """Reference to the hospital's own files: a case number, never a name."""

    def __post_init__(self) -> None:
        if self.kind not in NOTICES:
            msg = f"a notice must be one of {', '.join(NOTICES)}, not {self.kind!r}"
            raise CostError(msg)
        _require_text("a notice's reference", self.reference)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Entries were lost. What they may have cost is charged again, under a responsible person's signature.

    Attributes:
        covers: cosigned heads that the ledger does not contain and never will; none if nothing is known about the lost
            entries.
        costs: what is charged for the gap: `EXHAUSTED` if nothing is known, none if the lost entries cost nothing.
        responsible: the person who answers for it, in words.
        signer: the party whose certificate's key signed, as `fedward://...`.
        certificate: its certificate, PEM.
        signature: over `recovery_message`, lowercase hex.

    Raises `CostError` if any of it is missing.
    """

    covers: tuple[EntryRef, ...]
    costs: tuple[Cost, ...]
    responsible: str
    signer: str
    certificate: str
    signature: str

    def __post_init__(self) -> None:
        _require_text("who answers for a recovery", self.responsible)
        _require_text("a recovery's signer", self.signer)
        _require_text("a recovery's certificate", self.certificate, MAX_CERTIFICATE)
        _require_text("a recovery's signature", self.signature, MAX_SIGNATURE)
        if not self.costs and not self.covers:
            msg = "a recovery must charge something, or name the head of the lost entries that cost nothing"
            raise CostError(msg)
        if any(head.sequence < 1 for head in self.covers):
            msg = "a recovery can cover only entries from 1 on, because entry 0 is the same in every copy"
            raise CostError(msg)


@dataclass(frozen=True, slots=True)
class Fault:
    """A charged release could not be computed, and noise alone was sent in its place (docs/design/total.md, "Faults").

    The silo takes part in nothing more until a later entry clears it. Raises `CostError` for a malformed place.
    """

    study: str
    """Digest of the study."""
    round: int
    attempt: int
    """The attempt under which the release was charged."""
    tensor: str

    def __post_init__(self) -> None:
        _require_text("a fault's study", self.study)
        _require_text("a fault's tensor", self.tensor)
        for name, number in (("round", self.round), ("attempt", self.attempt)):
            _require_whole(f"a fault's {name}", number)


@dataclass(frozen=True, slots=True)
class Cleared:
    """A person at the hospital has looked into every fault before this entry. The silo takes part again.

    Raises `CostError` if nobody answers for it.
    """

    responsible: str
    """The person who answers for it, in words."""

    def __post_init__(self) -> None:
        _require_text("who clears a fault", self.responsible)


@dataclass(frozen=True, slots=True)
class Rebound:
    """The ledger is bound anew to what draws the cohorts, before anything was charged. A person answers for it.

    The fields are those of the genesis (`chain.Genesis`), which stay as they were: name, delta and `public` cannot
    change. Raises `CostError` for a malformed one.
    """

    unit: str
    identified_by: tuple[str, ...]
    holdout: float
    delimiter: str
    columns: tuple[str, ...]
    encoding: str
    responsible: str
    """The person who answers for it, in words."""

    def __post_init__(self) -> None:
        _require_text("who answers for a ledger that is bound anew", self.responsible)
        for name, text in (("unit", self.unit), ("delimiter", self.delimiter), ("encoding", self.encoding)):
            _require_text(f"a rebound ledger's {name}", text)
        texts = (*self.identified_by, *self.columns)
        if not self.identified_by or not all(isinstance(text, str) and text for text in texts):
            msg = "a rebound ledger's columns must be texts, and one of them must say whose a record is"
            raise CostError(msg)
        if not finite(self.holdout) or not 0 < self.holdout < 1:
            msg = f"a rebound ledger's holdout must lie between 0 and 1, not {str(self.holdout)[:20]!r}"
            raise CostError(msg)
        object.__setattr__(self, "holdout", float(self.holdout))


@dataclass(frozen=True, slots=True)
class Approved:
    """A person's decision about a study.

    Raises `CostError` for a malformed digest, an unknown verdict or a reason in words.
    """

    study: str
    """Digest of the study, whole."""
    verdict: Verdict
    certificate: str
    """SHA-256 of the certificate of the person who decided, DER, lowercase hex; of the silo's own if nobody signed."""
    reason: str
    """HMAC-SHA-256 under a key of the hospital's, lowercase hex, of what the person said: reason, data and time. The
    words stay in the hospital."""

    def __post_init__(self) -> None:
        _require_hex(("an approval's study", self.study), ("an approval's certificate", self.certificate))
        _require_hex(("an approval's reason", self.reason))
        if self.verdict not in VERDICTS:
            msg = f"an approval's verdict must be one of {', '.join(VERDICTS)}, not {self.verdict!r}"
            raise CostError(msg)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person stopped a study at this hospital. Reserved: this version reads it, and writes none.

    Raises `CostError` for a malformed digest or a reason in words.
    """

    name: str
    """The study's name."""
    study: str
    """Its digest, whole."""
    reason: str
    """HMAC-SHA-256 of the reason under a key of the hospital's, lowercase hex."""

    def __post_init__(self) -> None:
        _require_text("a stopped study's name", self.name)
        _require_hex(("a stopped study", self.study), ("a stop's reason", self.reason))


Event = Debit | InForce | Notice | Recovery | Fault | Cleared | Rebound | Approved | Stopped


def recovery_message(
    data_set: str, after: EntryRef, covers: tuple[EntryRef, ...], costs: tuple[Cost, ...], responsible: str
) -> bytes:
    """Return the bytes that are signed for a recovery. They are valid in one ledger only, right after entry `after`."""
    return canonical_json(
        {
            "purpose": "fedward ledger recovery",
            "data_set": data_set,
            "after": [after.sequence, after.hash],
            "covers": [[head.sequence, head.hash] for head in covers],
            "costs": [asdict(cost) for cost in costs],
            "responsible": responsible,
        }
    ).encode()


def costs_of(event: Event) -> tuple[Cost, ...]:
    """Return what an event charges; empty for events that charge nothing."""
    match event:
        case Debit():
            return tuple(event.costs.values())
        case Recovery():
            return event.costs
        case _:
            return ()


_KINDS: Final[Mapping[type, str]] = {
    Debit: "debit",
    InForce: "policy",
    Recovery: "recovery",
    Fault: "fault",
    Cleared: "cleared",
    Rebound: "rebound",
    Approved: "approval",
    Stopped: "stop",
}


def kind_of(event: Event) -> str:
    """Return the ledger's word for the kind of an event."""
    return event.kind if isinstance(event, Notice) else _KINDS[type(event)]


def content_of(event: Event) -> dict[str, object]:
    """Return the event as plain data, with its kind."""
    content: dict[str, object]
    match event:
        case Debit():
            costs = {tensor: asdict(cost) for tensor, cost in event.costs.items()}
            place = {"round": event.round, "attempt": event.attempt}
            content = {"study": event.study, "policy": event.policy, **place, "costs": costs}
        case Recovery():
            content = {
                "covers": [[head.sequence, head.hash] for head in event.covers],
                "costs": [asdict(cost) for cost in event.costs],
                "responsible": event.responsible,
                "signer": event.signer,
                "certificate": event.certificate,
                "signature": event.signature,
            }
        case Fault():
            content = {"text": NOT_COVERED, **asdict(event)}
        case Stopped():
            content = {"text": STOP_NOT_COVERED, **asdict(event)}
        case InForce() | Notice() | Cleared() | Rebound() | Approved():
            content = asdict(event)
    return {"kind": kind_of(event)} | content


def read_event(content: Mapping[str, Any]) -> Event:
    """Return the event that these data describe. Raises `ValueError`, `KeyError` or `TypeError` if there is none."""
    kind = content["kind"]
    return _READERS[kind](content) if kind in _READERS else Notice(kind, content["reference"])


def _read_debit(content: Mapping[str, Any]) -> Debit:
    costs = {tensor: Cost(**cost) for tensor, cost in content["costs"].items()}
    return Debit(content["study"], content["policy"], content["round"], content["attempt"], costs)


def _read_recovery(content: Mapping[str, Any]) -> Recovery:
    return Recovery(
        tuple(EntryRef(*head) for head in content["covers"]),
        tuple(Cost(**cost) for cost in content["costs"]),
        content["responsible"],
        content["signer"],
        content["certificate"],
        content["signature"],
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Event]]] = {
    "debit": _read_debit,
    "policy": lambda said: InForce(said["policy"], said["budget"]),
    "recovery": _read_recovery,
    "fault": lambda said: Fault(said["study"], said["round"], said["attempt"], said["tensor"]),
    "cleared": lambda said: Cleared(said["responsible"]),
    "rebound": lambda said: Rebound(
        said["unit"],
        tuple(said["identified_by"]),
        said["holdout"],
        said["delimiter"],
        tuple(said["columns"]),
        said["encoding"],
        said["responsible"],
    ),
    "approval": lambda said: Approved(said["study"], said["verdict"], said["certificate"], said["reason"]),
    "stop": lambda said: Stopped(said["name"], said["study"], said["reason"]),
}


def _require_text(what: str, text: object, longest: int = MAX_NAME) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= longest:
        msg = f"{what} must be a text of 1 to {longest} characters"
        raise CostError(msg)


def _require_hex(*fields: tuple[str, object]) -> None:
    for what, text in fields:
        if not is_sha256(text):
            msg = f"{what} must be 64 lowercase hex digits"
            raise CostError(msg)


def _require_whole(what: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        msg = f"{what} must be a whole number from 0, not {number!r}"
        raise CostError(msg)
