"""The ledger's chain: how entries are hashed and linked, and when a chain is valid.

Guarantees: every entry's hash covers all its fields and the hash before it, over canonical JSON (sorted keys, no
spaces, shortest floats), so the same event has the same bytes everywhere. `check_chain` accepts only a chain in which
the spent epsilon never falls, an entry that charges nothing does not change it, and every debit names the policy that
was last put into force. Pure: no files, no clock. events.py says what entries contain; store.py stores them durably.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from common.canonical_json import canonical_json
from policies.errors import LedgerTamperedError
from policies.ledger.events import Debit, EntryRef, Event, InForce, Rebound, Recovery, content_of, costs_of, read_event

if TYPE_CHECKING:
    from policies.documents.policy import Policy

GENESIS_PREVIOUS: Final = "0" * 64
UNBOUNDED: Final = "unbounded"
"""The text for an infinite epsilon. JSON has no number for it."""
FIX: Final = (
    "train nothing; restore the newest copy whose head the coordinator and a peer have cosigned, and charge"
    " what is missing (fedward-silo ledger recover)"
)

UTF_8: Final = "utf-8"
"""What ledgers without an encoding mean (`policies.documents.sections.spelling`)."""
REBINDABLE: Final = ("unit", "identified_by", "holdout", "delimiter", "columns", "encoding")
"""Fields of a genesis that draw the cohorts. Before anything was charged an entry may state others."""
Row = tuple[int, str, str, str]
"""(sequence, previous hash, hash, body), as they are stored."""


@dataclass(frozen=True, slots=True)
class Genesis:
    """The first entry. It says to which data set the ledger belongs, and is fixed for the life of the data set."""

    data_set: str
    holdout: float
    delta: float
    public: bool = False
    """Whether the policy declares the data public. Only then may an entry's epsilon be infinite ("unbounded")."""
    unit: str | None = None
    """What is protected: `patient` or `record`. None in ledgers that are older than this field."""
    identified_by: tuple[str, ...] | None = None
    """The columns that say whose record it is. None in ledgers that are older than this field."""
    delimiter: str | None = None
    """The character between a CSV file's cells. None in ledgers that are older than this field."""
    columns: tuple[str, ...] | None = None
    """The names of the columns of a file without a header line, empty if it has one. None in ledgers that are older
    than this field."""
    encoding: str = UTF_8
    """Which characters a CSV file's bytes stand for. Ledgers that are older than this field mean UTF-8."""

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """What a policy says of its data set: the genesis of its ledger."""
        data_set = policy.data_set
        return cls(
            data_set.id,
            float(data_set.holdout),
            float(policy.budget.delta),
            data_set.public,
            data_set.unit,
            tuple(data_set.identified_by),
            data_set.file.delimiter,
            tuple(data_set.file.columns),
            data_set.file.encoding,
        )


def bound(genesis: Genesis, entries: Iterable[Entry]) -> Genesis:
    """What a ledger is bound to: what its genesis says, or what the last entry says that binds it anew."""
    for entry in entries:
        if isinstance(entry.event, Rebound):
            genesis = replace(genesis, **{field: getattr(entry.event, field) for field in REBINDABLE})
    return genesis


@dataclass(frozen=True, slots=True)
class Entry:
    """An event in the chain.

    Attributes:
        sequence: from 1; the genesis is 0.
        previous, hash: lowercase hex SHA-256.
        at: when it was written, ISO 8601 in UTC, by the silo's own clock. Only one rule reads it, and only its day: a
            policy that has expired by this day stays expired (decision.py).
        event: what happened. For a repeated charge it has only the new tensors.
        epsilon: what the data set had spent with this entry, at the genesis's delta; infinite for public data that were
            used without noise.
    """

    sequence: int
    previous: str
    hash: str
    at: str
    event: Event
    epsilon: float

    @property
    def debit(self) -> Debit:
        """What was charged. Raises `TypeError` for an entry of another kind. `Ledger.entries` lists only debits."""
        if not isinstance(self.event, Debit):
            msg = f"entry {self.sequence} of the ledger is no debit; use `event`"
            raise TypeError(msg)
        return self.event

    @property
    def day(self) -> date:
        """The day in UTC on which the entry was written."""
        return _day(self.at)

    @property
    def head(self) -> EntryRef:
        """The entry's place and hash."""
        return EntryRef(self.sequence, self.hash)

    @property
    def row(self) -> Row:
        """Return the entry as it is stored."""
        return self.sequence, self.previous, self.hash, _body(self.event, self.at, self.epsilon)


def genesis_row(genesis: Genesis) -> Row:
    """Return the genesis as it is stored."""
    content = {"kind": "genesis", "version": 1, **asdict(genesis)}
    if not genesis.public:
        del content["public"]  # ledgers that are older than the field lack it too
    if genesis.encoding == UTF_8:
        del content["encoding"]
    for field in ("unit", "identified_by", "delimiter", "columns"):
        if content[field] is None:
            del content[field]
    body = canonical_json(content)
    return 0, GENESIS_PREVIOUS, _hash(GENESIS_PREVIOUS, body), body


def next_entry(head: EntryRef, event: Event, at: str, epsilon: float) -> Entry:
    """Return the entry that continues the chain from `head`."""
    body = _body(event, at, epsilon)
    return Entry(head.sequence + 1, head.hash, _hash(head.hash, body), at, event, float(epsilon))


def check_chain(rows: Iterable[Row]) -> tuple[Genesis, tuple[Entry, ...]]:
    """Read stored rows in order of sequence. Raises `LedgerTamperedError` that names the first invalid entry."""
    genesis: Genesis | None = None
    entries: list[Entry] = []
    policy: str | None = None
    place, last, spent, begun = -1, GENESIS_PREVIOUS, 0.0, False
    for sequence, previous, digest, body in rows:
        if type(sequence) is not int or sequence != place + 1 or previous != last:
            raise _broken(place + 1, "is missing or does not follow the one before it")
        if digest != _hash(previous, body):
            raise _broken(sequence, "was edited: its hash does not fit its content")
        try:
            if genesis is None:
                genesis = _read_genesis(body)
            else:
                entry = _read_entry((sequence, previous, digest, body))
                fault = fault_of(entry, spent, policy, public=genesis.public, begun=begun)
                if fault is not None:
                    raise _broken(sequence, fault)
                entries.append(entry)
                spent = entry.epsilon
                begun |= begins(entry)
                policy = entry.event.policy if isinstance(entry.event, InForce) else policy
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise _broken(sequence, "cannot be read") from None
        place, last = sequence, digest
    if genesis is None:
        raise _broken(0, "is missing")
    return genesis, tuple(entries)


def begins(entry: Entry) -> bool:
    """Whether something was released with this entry, or may have been: the ledger cannot be bound anew after it."""
    return isinstance(entry.event, Debit | Recovery)


def fault_of(entry: Entry, spent: float, policy: str | None, *, public: bool, begun: bool) -> str | None:
    """Return why this entry may not follow one with `spent`, while `policy` is in force; None if it may.

    `begun` says whether one before it `begins`.

    This is called on reading and before writing, so that no ledger writes an entry that it would refuse to read.
    """
    costs = costs_of(entry.event)
    unbounded = any(cost.noise == 0 for cost in costs)
    fault = None
    if not spent <= entry.epsilon:
        fault = "lowers the spent epsilon"
    elif (unbounded or math.isinf(entry.epsilon)) and not public:
        fault = "has no finite price, and the data set is not public"
    elif unbounded and math.isfinite(entry.epsilon):
        fault = "lowers the spent epsilon"
    elif not costs and entry.epsilon != spent:
        fault = "charges nothing and changes the spent epsilon"
    elif isinstance(entry.event, Debit) and policy not in (None, entry.event.policy):
        fault = "was charged under a policy that was not in force"
    elif isinstance(entry.event, Rebound) and begun:
        fault = "binds the ledger anew after something was charged"
    return fault


def _broken(sequence: int, what: str) -> LedgerTamperedError:
    return LedgerTamperedError(f"ledger entry {sequence} {what}; {FIX}")


def _hash(previous: str, body: str) -> str:
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def _body(event: Event, at: str, epsilon: float) -> str:
    spent = UNBOUNDED if math.isinf(epsilon) else float(epsilon)
    return canonical_json(content_of(event) | {"at": at, "epsilon": spent})


def _read_genesis(body: str) -> Genesis:
    content: dict[str, Any] = json.loads(body)
    genesis = Genesis(
        content["data_set"],
        content["holdout"],
        content["delta"],
        content.get("public", False),
        content.get("unit"),
        _names(content.get("identified_by")),
        content.get("delimiter"),
        _names(content.get("columns")),
        content.get("encoding", UTF_8),
    )
    kinds = (type(genesis.data_set), type(genesis.holdout), type(genesis.delta), type(genesis.public))
    known = kinds == (str, float, float, bool) and genesis.unit in (None, "patient", "record")
    parted = isinstance(genesis.delimiter, str | None) and isinstance(genesis.encoding, str)
    if not known or not parted or genesis_row(genesis)[3] != body:
        msg = "not a genesis"
        raise ValueError(msg)
    return genesis


def _names(columns: object) -> tuple[str, ...] | None:
    """Return a list of columns as it was read. Raises `TypeError` if it is none."""
    if columns is None:
        return None
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise TypeError
    return tuple(columns)


def _read_entry(row: Row) -> Entry:
    content: dict[str, Any] = json.loads(row[3])
    epsilon = math.inf if content["epsilon"] == UNBOUNDED else content["epsilon"]
    entry = Entry(row[0], row[1], row[2], content["at"], read_event(content), epsilon)
    _day(entry.at)
    if entry.row != row:
        msg = "not canonical"
        raise ValueError(msg)
    return entry


def _day(at: str) -> date:
    """Return the day of a time. Raises `ValueError` if this is no time in UTC."""
    written = datetime.fromisoformat(at)
    if written.utcoffset() != timedelta(0):
        msg = "not a time in UTC"
        raise ValueError(msg)
    return written.date()
