"""The ledger: what a data set has spent, durably, before anything is computed.

Guarantees: `charge` checks first, commits durably, and only then returns; it writes all of a debit or nothing, never
goes beyond the budget, and charging the same again is free. The spent epsilon never decreases. Entries form a hash
chain from a genesis that binds data set, hold-out and delta; an edit, a gap or a re-ordering is refused by name. One
process writes at a time. A ledger is made only by `Ledger.create`: an absent file is an error, not a full budget.

Left to others: a chain cannot show by itself that its newest entries were cut off, or the whole file replaced by an
older copy. So the caller has `head` countersigned and hands the countersigned one to `require` at every start. The
hashes are no secret: who may write the file is the operating system's duty.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from policies import accountant
from policies.chain import MEND, Debit, Entry, Genesis, Head, genesis_row, next_entry
from policies.costs import Cost
from policies.errors import (
    BudgetRefused,
    ChargeConflictError,
    LedgerBusyError,
    LedgerError,
    LedgerExistsError,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerTamperedError,
    LedgerWriteError,
)
from policies.seat import Seat
from policies.store import Key, Store, create_store, keys_of, read_ledger, require_file

__all__ = [
    "BudgetRefused",
    "ChargeConflictError",
    "Debit",
    "Entry",
    "Genesis",
    "Head",
    "Ledger",
    "LedgerBusyError",
    "LedgerError",
    "LedgerExistsError",
    "LedgerMismatchError",
    "LedgerMissingError",
    "LedgerTamperedError",
    "LedgerWriteError",
    "read_ledger",
]


class Ledger:
    """An open ledger, held by this process alone. Use as a context manager or call `close`. Safe across threads."""

    def __init__(self, path: Path, budget: float, seat: Seat, store: Store) -> None:
        self._name = path.name
        self._budget = budget
        self._seat = seat
        self._store = store
        self._guard = threading.RLock()
        self._entries: list[Entry] = []
        self._charged: dict[Key, Entry] = {}
        self._spent = 0.0
        self._genesis, entries = store.read()
        for entry in entries:
            self._remember(entry)
        self._spent = self.would_spend(())

    @staticmethod
    def create(path: Path, *, data_set: str, holdout: float, delta: float, public: bool = False) -> None:
        """Make the ledger of a data set, once, when the data set is enrolled. It appears whole or not at all.

        Raises `LedgerExistsError` where one (or the journal of one) stands, `LedgerWriteError` where it cannot be made.
        """
        create_store(path, Genesis(data_set, float(holdout), float(delta), public))

    @classmethod
    def open(
        cls, path: Path, *, data_set: str, holdout: float, budget_epsilon: float, delta: float, public: bool = False
    ) -> Self:
        """Take the writer's seat and check the whole chain.

        The budget is the policy's and may change; data set, hold-out, delta and whether it is public must be those of
        the genesis. Raises `LedgerMissingError`, `LedgerBusyError`, `LedgerMismatchError`, `LedgerTamperedError`,
        `LedgerWriteError`.
        """
        if not 0 < budget_epsilon < math.inf:
            msg = f"budget_epsilon {budget_epsilon!r} must be a finite number above 0; mend the policy's budget.epsilon"
            raise LedgerMismatchError(msg)
        require_file(path)
        with contextlib.ExitStack() as undo:
            seat = Seat(path.with_name(path.name + ".lock"))
            undo.callback(seat.leave)
            store = Store(path)
            undo.callback(store.close)
            ledger = cls(path, budget_epsilon, seat, store)
            ledger._match(Genesis(data_set, float(holdout), float(delta), public))
            undo.pop_all()
            return ledger

    def close(self) -> None:
        """Give the ledger back; closing again does nothing. Later charges raise `LedgerWriteError`."""
        with self._guard:
            self._store.close()
            self._seat.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def genesis(self) -> Genesis:
        """To whom the ledger belongs."""
        return self._genesis

    @property
    def head(self) -> Head:
        """The newest entry's place and hash, to be countersigned by others."""
        with self._guard:
            if not self._entries:
                return Head(0, genesis_row(self._genesis)[2])
            return Head(self._entries[-1].sequence, self._entries[-1].hash)

    def entries(self) -> tuple[Entry, ...]:
        """All debits, oldest first."""
        with self._guard:
            return tuple(self._entries)

    def costs(self) -> tuple[Cost, ...]:
        """Every cost charged to the data set, oldest first."""
        with self._guard:
            return tuple(cost for entry in self._entries for cost in entry.debit.costs.values())

    def study_costs(self, study: str) -> tuple[Cost, ...]:
        """Every cost charged under the study with this digest, repeated attempts included."""
        with self._guard:
            return tuple(c for entry in self._entries if entry.debit.study == study for c in entry.debit.costs.values())

    def charged(self, study: str, round: int) -> dict[tuple[str, int], Cost]:  # noqa: A002 - the protocol's word
        """What was charged for a round, by (tensor, attempt)."""
        with self._guard:
            return {
                (key[2], key[3]): entry.debit.costs[key[2]]
                for key, entry in self._charged.items()
                if key[:2] == (study, round)
            }

    def spent(self) -> float:
        """Epsilon that the data set has spent, at the genesis's delta. Never decreases."""
        with self._guard:
            return self._spent

    def left(self) -> float:
        """Epsilon between what is spent and the budget, at least 0. Epsilons do not add up: ask `would_spend`."""
        return max(0.0, self._budget - self.spent())

    def would_spend(self, costs: Iterable[Cost]) -> float:
        """What `spent` would be with these costs charged on top; charges nothing."""
        with self._guard:
            # Grid changes in the accountant may lower a sum by a hair; the ledger never goes down.
            return max(self._spent, accountant.epsilon([*self.costs(), *costs], self._genesis.delta))

    def charge(self, debit: Debit) -> Entry:
        """Debit the budget, durably, before anything is computed; return the entry.

        What is charged already at the same cost is not charged again: then the old entry is returned and nothing is
        written. Raises `ChargeConflictError` (charged at another cost), `BudgetRefused` (nothing written) and
        `LedgerWriteError` (not durable; nothing may be computed).
        """
        with self._guard:
            self._store.require_usable()
            fresh = self._fresh(debit)
            if not fresh:
                return max((self._charged[key] for key in keys_of(debit)), key=lambda entry: entry.sequence)
            wanted = self.would_spend(fresh.values())
            if not (wanted <= self._budget or self._genesis.public):
                raise BudgetRefused(spent=self._spent, wanted=wanted, budget=self._budget, delta=self._genesis.delta)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            partial = Debit(debit.study, debit.policy, debit.round, debit.attempt, fresh)
            entry = next_entry(self.head, partial, now, wanted)
            self._store.append(entry, self.head)
            self._remember(entry)
            return entry

    def verify(self) -> None:
        """Read the file again and compare. Raises `LedgerTamperedError` where it is not what this process wrote."""
        with self._guard:
            self._store.require_usable()
            genesis, entries = self._store.read()
            if genesis != self._genesis or list(entries) != self._entries:
                msg = f"{self._name}: the ledger's file is not what this process wrote; {MEND}"
                raise LedgerTamperedError(msg)

    def require(self, head: Head) -> None:
        """Refuse a ledger that lost entries: `head` is one that others countersigned.

        Raises `LedgerTamperedError` where the chain does not contain it.
        """
        with self._guard:
            known = {0: genesis_row(self._genesis)[2], **{entry.sequence: entry.hash for entry in self._entries}}
            if known.get(head.sequence) != head.hash:
                msg = (
                    f"{self._name}: countersigned entry {head.sequence} is not in the ledger, which ends at"
                    f" {self.head.sequence}: an older copy was put in its place; {MEND}"
                )
                raise LedgerTamperedError(msg)

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
        self._charged.update(dict.fromkeys(keys_of(entry.debit), entry))
        self._spent = max(self._spent, entry.epsilon)

    def _match(self, wanted: Genesis) -> None:
        for field in ("data_set", "holdout", "delta", "public"):
            mine, theirs = getattr(self._genesis, field), getattr(wanted, field)
            if mine != theirs:
                msg = (
                    f"{self._name}: the ledger's {field} is {mine}, the policy says {theirs}; it is fixed for the"
                    " life of the data set, so mend the policy or give the right ledger"
                )
                raise LedgerMismatchError(msg)
