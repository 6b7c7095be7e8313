"""The ledger's chain: what an entry is, how it is hashed, and when a chain holds.

Guarantees: every entry's hash covers all its fields and the hash before it, over canonical JSON (sorted keys, no
spaces, shortest floats), so the same debit has the same bytes everywhere. `check_chain` accepts nothing else. Pure: no
files, no clock. Storing entries durably is ledger.py.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final

from policies.costs import Cost
from policies.errors import CostError, LedgerTamperedError

GENESIS_PREVIOUS: Final = "0" * 64
_MAX_NAME: Final = 128
UNBOUNDED: Final = "unbounded"
"""How an infinite epsilon is written; JSON has no number for it."""
MEND: Final = (
    "train nothing; restore the newest copy whose head the coordinator and a peer have countersigned, and charge"
    " what is missing"
)

Row = tuple[int, str, str, str]
"""(sequence, previous hash, hash, body) as stored."""


@dataclass(frozen=True, slots=True)
class Genesis:
    """The first entry: to whom the ledger belongs. Fixed for the life of the data set."""

    data_set: str
    holdout: float
    delta: float
    public: bool = False
    """Declared public by the policy: only then may an entry's epsilon be infinite ("unbounded")."""


@dataclass(frozen=True)
class Debit:
    """What one attempt of a round releases, before it is computed.

    Attributes:
        study: digest of the study.
        policy: digest of the policy under which it was decided.
        round, attempt: from 0.
        costs: by tensor; at least one. Read-only after construction.

    Raises `CostError` for an empty or malformed debit: unknown releases are refused, not charged as nothing.
    """

    study: str
    policy: str
    round: int
    attempt: int
    costs: Mapping[str, Cost]

    def __post_init__(self) -> None:
        for name, text in (("study", self.study), ("policy", self.policy), *(("tensor", key) for key in self.costs)):
            if not isinstance(text, str) or not 0 < len(text) <= _MAX_NAME:
                msg = f"a debit's {name} must be a text of 1 to {_MAX_NAME} characters"
                raise CostError(msg)
        for name, number in (("round", self.round), ("attempt", self.attempt)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                msg = f"a debit's {name} must be a whole number from 0, not {number!r}"
                raise CostError(msg)
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
class Entry:
    """A debit in the chain.

    Attributes:
        sequence: from 1; the genesis is 0.
        previous, hash: lowercase hex SHA-256.
        at: when it was charged, ISO 8601 in UTC, by the silo's own clock.
        debit: what was charged; of a repeated charge only the tensors that were new.
        epsilon: what the data set had spent with this entry, at the genesis's delta; infinite on public data that were
            used without noise.
    """

    sequence: int
    previous: str
    hash: str
    at: str
    debit: Debit
    epsilon: float

    @property
    def row(self) -> Row:
        """The entry as it is stored."""
        return self.sequence, self.previous, self.hash, _debit_body(self.debit, self.at, self.epsilon)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry's place and hash: what others countersign."""

    sequence: int
    hash: str


def genesis_row(genesis: Genesis) -> Row:
    """The genesis as it is stored."""
    content = {"kind": "genesis", "version": 1, **asdict(genesis)}
    if not genesis.public:
        del content["public"]  # as in ledgers that are older than the field
    body = _canonical(content)
    return 0, GENESIS_PREVIOUS, _hash(GENESIS_PREVIOUS, body), body


def next_entry(head: Head, debit: Debit, at: str, epsilon: float) -> Entry:
    """The entry that continues the chain from `head`."""
    return Entry(
        head.sequence + 1, head.hash, _hash(head.hash, _debit_body(debit, at, epsilon)), at, debit, float(epsilon)
    )


def check_chain(rows: Iterable[Row]) -> tuple[Genesis, tuple[Entry, ...]]:
    """Read stored rows in order of sequence. Raises `LedgerTamperedError` naming the first entry that does not hold."""
    genesis: Genesis | None = None
    entries: list[Entry] = []
    head, spent = Head(-1, GENESIS_PREVIOUS), 0.0
    for sequence, previous, digest, body in rows:
        if sequence != head.sequence + 1 or previous != head.hash:
            raise _broken(head.sequence + 1, "is missing or does not follow the one before it")
        if digest != _hash(previous, body):
            raise _broken(sequence, "was edited: its hash does not fit its content")
        try:
            if genesis is None:
                genesis = _read_genesis(body)
            else:
                entries.append(_read_entry((sequence, previous, digest, body)))
                if not spent <= entries[-1].epsilon:
                    raise _broken(sequence, "lowers the spent epsilon")
                unbounded = any(cost.noise == 0 for cost in entries[-1].debit.costs.values())
                if (unbounded or math.isinf(entries[-1].epsilon)) and not genesis.public:
                    raise _broken(sequence, "has no finite price, and the data set is not public")
                if unbounded and math.isfinite(entries[-1].epsilon):
                    raise _broken(sequence, "lowers the spent epsilon")
                spent = entries[-1].epsilon
        except (ValueError, KeyError, TypeError):
            raise _broken(sequence, "cannot be read") from None
        head = Head(sequence, digest)
    if genesis is None:
        raise _broken(0, "is missing")
    return genesis, tuple(entries)


def _broken(sequence: int, what: str) -> LedgerTamperedError:
    return LedgerTamperedError(f"ledger entry {sequence} {what}; {MEND}")


def _canonical(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _hash(previous: str, body: str) -> str:
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


def _debit_body(debit: Debit, at: str, epsilon: float) -> str:
    return _canonical(
        {
            "kind": "debit",
            "at": at,
            "study": debit.study,
            "policy": debit.policy,
            "round": debit.round,
            "attempt": debit.attempt,
            "costs": {tensor: asdict(cost) for tensor, cost in debit.costs.items()},
            "epsilon": UNBOUNDED if math.isinf(epsilon) else float(epsilon),
        }
    )


def _read_genesis(body: str) -> Genesis:
    content: dict[str, Any] = json.loads(body)
    genesis = Genesis(content["data_set"], content["holdout"], content["delta"], content.get("public", False))
    if genesis_row(genesis)[3] != body:
        msg = "not a genesis"
        raise ValueError(msg)
    return genesis


def _read_entry(row: Row) -> Entry:
    content: dict[str, Any] = json.loads(row[3])
    costs = {tensor: Cost(**cost) for tensor, cost in content["costs"].items()}
    debit = Debit(content["study"], content["policy"], content["round"], content["attempt"], costs)
    epsilon = math.inf if content["epsilon"] == UNBOUNDED else content["epsilon"]
    entry = Entry(row[0], row[1], row[2], content["at"], debit, epsilon)
    if entry.row != row:
        msg = "not canonical"
        raise ValueError(msg)
    return entry
