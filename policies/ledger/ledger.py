"""The ledger: what a data set has spent, durably, before anything is computed.

Guarantees: `charge` checks first, commits durably, and only then returns. It writes all of a debit or nothing, and
never goes beyond the budget. Charging the same again is free. The spent epsilon never decreases. After a policy was put
into force, every debit names it, until another policy is put into force. Entries form a hash chain from a genesis that
binds the data set, its unit, the columns that identify it, how its file is parted, the hold-out and delta. An edit, a
gap or a re-ordering is refused, and the error names it. One process writes at a time. A ledger is made only by
`Ledger.create`: an absent file is an error, not a full budget. No charge depends on a clock. The latest day of an entry
(`day`) never goes back, so setting a clock back does not make an expired policy valid again.

Left to others: a chain cannot show by itself that its newest entries were cut off, or that the whole file was replaced
by an older copy. So the caller has `checkpoint` cosigned (cosign.py) and hands the cosigned heads to `require` at every
start. `recover` charges what was lost. The hashes are no secret: the operating system decides who may write the file.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from policies.accounting import accountant
from policies.errors import (
    BudgetRefused,
    ChargeConflictError,
    LedgerBusyError,
    LedgerError,
    LedgerExistsError,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerRolledBackError,
    LedgerTamperedError,
    LedgerWriteError,
)
from policies.ledger.chain import FIX, REBINDABLE, Entry, Genesis, begins, bound, fault_of, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, checkpoint, covered, require_head
from policies.ledger.events import (
    Approved,
    Cleared,
    Debit,
    EntryRef,
    Event,
    Fault,
    InForce,
    Notice,
    NoticeKind,
    Rebound,
    Recovery,
    costs_of,
)
from policies.ledger.lock import WriterLock
from policies.ledger.store import Key, LedgerFile, create_store, keys_of, read_history, read_ledger, require_file
from policies.plan.cost import Cost

__all__ = [
    "BudgetRefused",
    "ChargeConflictError",
    "Debit",
    "Entry",
    "EntryRef",
    "Genesis",
    "Ledger",
    "LedgerBusyError",
    "LedgerError",
    "LedgerExistsError",
    "LedgerMismatchError",
    "LedgerMissingError",
    "LedgerRolledBackError",
    "LedgerTamperedError",
    "LedgerWriteError",
    "read_history",
    "read_ledger",
    "require_match",
]


class Ledger:
    """An open ledger, held by this process alone. Use it as a context manager or call `close`. Threads may share it."""

    def __init__(self, path: Path, budget: float, seat: WriterLock, store: LedgerFile) -> None:
        self._name = path.name
        self._budget = budget
        self._seat = seat
        self._store = store
        self._guard = threading.RLock()
        self._entries: list[Entry] = []
        self._charged: dict[Key, Entry] = {}
        self._spent = 0.0
        self._day: date | None = None
        self._policy: str | None = None
        self._fault: Entry | None = None
        self._begun = False
        self._decisions: dict[str, Entry] = {}
        self._genesis, entries = store.read()
        for entry in entries:
            self._remember(entry)
        self._spent = self.would_spend(())

    @staticmethod
    def create(path: Path, genesis: Genesis) -> None:
        """Make the ledger of a data set, once, when the data set is enrolled. It appears whole or not at all.

        Raises `LedgerExistsError` if one (or the journal of one) stands, `LedgerWriteError` if it cannot be made,
        ValueError for a genesis that does not say all: only ledgers that are older than a field lack it.
        """
        unsaid = [field for field, value in asdict(genesis).items() if value is None]
        if unsaid:
            msg = f"a new ledger says what it protects and how the file is read; {', '.join(unsaid)} is missing"
            raise ValueError(msg)
        create_store(path, genesis)

    @classmethod
    def open(cls, path: Path, genesis: Genesis, *, budget_epsilon: float) -> Self:
        """Take the writer's lock and check the whole chain.

        The budget is the policy's and may change; the genesis must be the ledger's (`match`). Raises
        `LedgerMissingError`, `LedgerBusyError`, `LedgerMismatchError`, `LedgerTamperedError`, `LedgerWriteError`.
        """
        _require_bound(budget_epsilon)
        require_file(path)
        with contextlib.ExitStack() as undo:
            seat = WriterLock(path.with_name(path.name + ".lock"))
            undo.callback(seat.leave)
            store = LedgerFile(path)
            undo.callback(store.close)
            ledger = cls(path, budget_epsilon, seat, store)
            ledger.match(genesis)
            undo.pop_all()
            return ledger

    def close(self) -> None:
        """Release the ledger. Closing again does nothing. Later charges raise `LedgerWriteError`."""
        with self._guard:
            self._store.close()
            self._seat.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def genesis(self) -> Genesis:
        """The first entry, which says to which data set the ledger belongs."""
        return self._genesis

    @property
    def bound(self) -> Genesis:
        """What the ledger is bound to now: what the genesis says, or the last entry that binds it anew."""
        with self._guard:
            return bound(self._genesis, self._entries)

    @property
    def rebound(self) -> bool:
        """Whether the ledger was bound anew after the policy in force came into force."""
        with self._guard:
            kinds = [type(entry.event) for entry in self._entries if isinstance(entry.event, Rebound | InForce)]
            return kinds[-1:] == [Rebound]

    @property
    def head(self) -> EntryRef:
        """The newest entry's place and hash. Others cosign it."""
        with self._guard:
            return self._entries[-1].head if self._entries else EntryRef(0, genesis_row(self._genesis)[2])

    @property
    def policy(self) -> str | None:
        """Digest of the policy that was put into force last; None if the ledger is older than such entries."""
        with self._guard:
            return self._policy

    @property
    def day(self) -> date | None:
        """The latest day in UTC on which an entry was written, by the machine's clock then; None before the first."""
        with self._guard:
            return self._day

    @property
    def fault(self) -> Entry | None:
        """The newest fault that no later entry clears; None if there is none."""
        with self._guard:
            return self._fault

    def history(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        with self._guard:
            return tuple(self._entries)

    def entries(self) -> tuple[Entry, ...]:
        """All debits, oldest first."""
        return tuple(entry for entry in self.history() if isinstance(entry.event, Debit))

    def costs(self) -> tuple[Cost, ...]:
        """Every cost that debits and recoveries charged to the data set, oldest first."""
        return tuple(cost for entry in self.history() for cost in costs_of(entry.event))

    def study_costs(self, study: str) -> tuple[Cost, ...]:
        """Return every cost charged for the study with this digest, repeated attempts included."""
        return tuple(c for entry in self.entries() if entry.debit.study == study for c in entry.debit.costs.values())

    def charged(self, study: str, round: int) -> dict[tuple[str, int], Cost]:  # noqa: A002 - the protocol's word
        """Return what was charged for a round, by (tensor, attempt)."""
        with self._guard:
            return {
                (key[2], key[3]): entry.debit.costs[key[2]]
                for key, entry in self._charged.items()
                if key[:2] == (study, round)
            }

    def spent(self) -> float:
        """Epsilon that the data set has spent, at the genesis's delta. It never decreases."""
        with self._guard:
            return self._spent

    def left(self) -> float:
        """Epsilon between what is spent and the budget, at least 0. Epsilons do not add up; use `would_spend`."""
        with self._guard:
            return max(0.0, self._budget - self._spent)

    def would_spend(self, costs: Iterable[Cost]) -> float:
        """Return what `spent` would be with these costs in addition. Charges nothing."""
        with self._guard:
            # Grid changes in the accountant may lower a sum by a hair; the ledger never goes down.
            return max(self._spent, accountant.epsilon([*self.costs(), *costs], self._genesis.delta))

    def charge(self, debit: Debit) -> Entry:
        """Debit the budget, durably, before anything is computed; return the entry.

        If everything is charged already at the same cost, the old entry is returned and nothing is written. Raises
        `ChargeConflictError` (charged at another cost), `BudgetRefused` (nothing written) and `LedgerWriteError` (not
        durable; nothing may be computed).
        """
        with self._guard:
            self._store.require_usable()
            fresh = self._fresh(debit)
            if not fresh:
                return max((self._charged[key] for key in keys_of(debit)), key=lambda entry: entry.sequence)
            if self._policy not in (None, debit.policy):
                msg = (
                    f"{self._name}: policy {debit.policy[:12]} is not in force, but policy {self._policy[:12]} is; put"
                    " the new policy into force first (fedward-silo policy reload)"
                )
                raise LedgerMismatchError(msg)
            wanted = self.would_spend(fresh.values())
            if not (wanted <= self._budget or self._genesis.public):
                raise BudgetRefused(spent=self._spent, wanted=wanted, budget=self._budget, delta=self._genesis.delta)
            return self._append(Debit(debit.study, debit.policy, debit.round, debit.attempt, fresh), wanted)

    def put_into_force(self, policy: str, budget_epsilon: float) -> Entry | None:
        """Record, durably, that a policy with this digest and budget is in force from now on. None if it is already.

        The budget binds the next charge. What is spent stays spent. Raises `LedgerMismatchError`, `LedgerWriteError`.
        """
        _require_bound(budget_epsilon)
        with self._guard:
            self._store.require_usable()
            entry = None
            if policy != self._policy:
                entry = self._append(InForce(policy, budget_epsilon), self._stated)
            self._budget = budget_epsilon
            return entry

    def note(self, kind: NoticeKind, reference: str) -> Entry:
        """Record a withdrawal or a refresh, durably. It charges nothing and refills nothing."""
        with self._guard:
            self._store.require_usable()
            return self._append(Notice(kind, reference), self._stated)

    def note_fault(self, fault: Fault) -> Entry:
        """Record, durably, that a charged release could not be computed. The same fault is not recorded twice.

        Raises `LedgerWriteError`.
        """
        with self._guard:
            self._store.require_usable()
            if self._fault is not None and self._fault.event == fault:
                return self._fault
            return self._append(fault, self._stated)

    def decision(self, study: str) -> Entry | None:
        """Return the last decision of a person about a study, by its digest; None if there is none."""
        return self._decisions.get(study)

    def decide(self, approved: Approved) -> Entry:
        """Record, durably, what a person decided about a study. Raises `LedgerWriteError`."""
        with self._guard:
            self._store.require_usable()
            return self._append(approved, self._stated)

    def clear_fault(self, responsible: str) -> Entry | None:
        """Record, durably, who has looked into the faults. None if there is none. Raises `LedgerWriteError`."""
        with self._guard:
            self._store.require_usable()
            return None if self._fault is None else self._append(Cleared(responsible), self._stated)

    def rebind(self, genesis: Genesis, responsible: str) -> Entry | None:
        """Record, durably, to what the ledger is bound from now on. None if it is bound to that already.

        Raises `LedgerMismatchError` if something was charged or recovered, or if name, delta or `public` differ;
        `LedgerWriteError`. The caller has seen that no study has joined and that nobody else knows later entries.
        """
        with self._guard:
            self._store.require_usable()
            now = self.bound
            if genesis == now:
                return None
            kept = replace(genesis, **{field: getattr(now, field) for field in REBINDABLE})
            require_match(self._name, now, kept)
            if self._begun:
                msg = f"{self._name}: something was charged, so what draws the cohorts cannot change any more"
                raise LedgerMismatchError(msg)
            said = {field: getattr(genesis, field) for field in REBINDABLE}
            return self._append(Rebound(**said, responsible=responsible), self._stated)

    def recover(self, recovery: Recovery, lost: Iterable[Checkpoint]) -> Entry:
        """Charge a gap, durably. The ledger then states at least the price of what the heads in `lost` sum up.

        The caller has checked the recovery's signature, and that its costs are those of `cosign.gap`. A recovery may
        exceed the budget, because it only records what was spent. Raises `LedgerWriteError`, also if the price is not
        finite for private data, because there is no such entry.
        """
        with self._guard:
            self._store.require_usable()
            if not recovery.costs:
                return self._append(recovery, self._stated)
            priced = [_price(item, self._genesis.delta) for item in lost]
            return self._append(recovery, max([self.would_spend(recovery.costs), *priced]))

    def checkpoint(self, silo: str, known: Iterable[EntryRef] = ()) -> Checkpoint:
        """Return the checkpoint that others must cosign. `known` are heads that were cosigned before."""
        with self._guard:
            return checkpoint(silo, self._genesis, self._entries, _now(), known)

    def missing(self, checkpoints: Iterable[Checkpoint]) -> tuple[Checkpoint, ...]:
        """Return those of the cosigned checkpoints whose head the ledger neither contains nor has charged for."""
        with self._guard:
            heads = {entry.head for entry in self._entries} | {EntryRef(0, genesis_row(self._genesis)[2])}
            heads |= set(covered(self._entries))
            return tuple(item for item in checkpoints if item.head not in heads)

    def match(self, genesis: Genesis) -> None:
        """Raise `LedgerMismatchError` if the ledger is bound to something else, as `open` does."""
        require_match(self._name, self.bound, genesis)

    def verify(self) -> None:
        """Read the file again and compare. Raises `LedgerTamperedError` if it is not what this process wrote."""
        with self._guard:
            self._store.require_usable()
            genesis, entries = self._store.read_again()
            if genesis != self._genesis or list(entries) != self._entries:
                msg = f"{self._name}: the ledger's file is not what this process wrote; {FIX}"
                raise LedgerTamperedError(msg)

    def require(self, head: EntryRef) -> None:
        """Refuse a ledger that lost entries. `head` is a head that others cosigned.

        Raises `LedgerRolledBackError` if neither the chain nor one of its recoveries has it.
        """
        with self._guard:
            require_head(self._genesis, self._entries, head)

    @property
    def _stated(self) -> float:
        """Epsilon that the newest entry states. Entries that charge nothing repeat it.

        `_spent` may be larger, if another version of the accountant computed it.
        """
        return self._entries[-1].epsilon if self._entries else 0.0

    def _append(self, event: Event, epsilon: float) -> Entry:
        entry = next_entry(self.head, event, _now(), epsilon)
        fault = fault_of(entry, self._stated, self._policy, public=self._genesis.public, begun=self._begun)
        if fault is not None:
            msg = (
                f"{self._name}: entry {entry.sequence} was not written, because the ledger could not be read with it:"
                f" it {fault}. Earlier entries are unchanged; stop using the data set and ask the consortium"
            )
            raise LedgerWriteError(msg)
        self._store.append(entry, self.head)
        self._remember(entry)
        return entry

    def _fresh(self, debit: Debit) -> dict[str, Cost]:
        fresh: dict[str, Cost] = {}
        for (study, number, tensor, attempt), cost in zip(keys_of(debit), debit.costs.values(), strict=True):
            old = self._charged.get((study, number, tensor, attempt))
            if old is None:
                fresh[tensor] = cost
            elif old.debit.costs[tensor] != cost:
                msg = (
                    f"{tensor} of round {number}, attempt {attempt} was charged before at another cost"
                    f" (entry {old.sequence}); use a new attempt"
                )
                raise ChargeConflictError(msg)
        return fresh

    def _remember(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._begun |= begins(entry)
        self._charged.update(dict.fromkeys(keys_of(entry.event), entry))
        if isinstance(entry.event, InForce):
            self._policy = entry.event.policy
        if isinstance(entry.event, Approved):
            self._decisions[entry.event.study] = entry
        if isinstance(entry.event, Fault | Cleared):
            self._fault = entry if isinstance(entry.event, Fault) else None
        self._spent = max(self._spent, entry.epsilon)
        self._day = entry.day if self._day is None else max(self._day, entry.day)


def require_match(ledger: str, bound: Genesis, said: Genesis) -> None:
    """Raise `LedgerMismatchError` if what a policy says of its data set is not what the ledger is bound to.

    A genesis on disk that is older than a field (`unit`, `identified_by`, `delimiter`, `columns`) says nothing of it:
    there the policy before says what it is (silo_agent/oversight/approval.py).
    """
    wanted = asdict(said)
    for field, mine in asdict(bound).items():
        theirs = wanted[field]
        if mine is not None and mine != theirs:
            msg = (
                f"{ledger}: the ledger's {field} is {_shown(mine)}, but the policy says {_shown(theirs)}; it is fixed"
                " for the life of the data set, so fix the policy or give the right ledger. Before anything was charged"
                " the ledger can be bound anew: fedward-silo ledger rebind"
            )
            raise LedgerMismatchError(msg)


def _price(lost: Checkpoint, delta: float) -> float:
    """What a checkpoint's releases cost: its own figure if rounding explains how that differs, so nothing is lowered.

    Any other figure is not believed: whoever stole a key could state it.
    """
    price = accountant.epsilon(lost.totals, delta)
    return lost.epsilon if price <= lost.epsilon <= price * (1 + accountant.ROUNDING) else price


def _require_bound(budget_epsilon: float) -> None:
    if not 0 < budget_epsilon < math.inf:
        msg = f"budget_epsilon {budget_epsilon!r} must be a finite number above 0; fix the policy's budget.epsilon"
        raise LedgerMismatchError(msg)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none (a header line)"
    return repr(value) if value in (",", "\t") else str(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
