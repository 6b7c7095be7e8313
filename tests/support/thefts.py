"""A silo whose key is stolen, and that goes on under a new one; its ledger is charged by real studies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from crypto.pki.certificates import Credential, Trust
from policies.accounting import accountant
from policies.documents.study import Study
from policies.ledger.chain import Entry, Genesis, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, checkpoint
from policies.ledger.events import Debit, EntryRef, costs_of
from policies.plan.release import plan
from protos.checkpoints import SignedCheckpoint
from support.certificates import data_set_of, load, make_authority
from support.cosigners import signed

AT = "2026-01-31T08:00:00+00:00"
GENESIS = Genesis(data_set_of("north"), 0.2, 1e-5)


class Consortium:
    """An authority, a coordinator, and silos; north's key is stolen and replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, make_authority(folder)
        self.hub = load(self.authority.credential("coordinator", "hub"))
        self.south, self.west = (load(self.authority.credential("silo", name)) for name in ("south", "west"))
        home = self.authority.credential("silo", "north")
        self.old = load(Path(shutil.copytree(home, folder / "stolen")))
        shutil.rmtree(home)
        self.trust = Trust(self.authority.pem)

    def revoke(self, since: datetime) -> Trust:
        """The root revokes north's key; returns the trust of who has the new list."""
        lists = self.folder / "new-crls.pem"
        lists.write_bytes(self.authority.revoke("fedward://silo/north", since))
        return Trust.load(Path(self.folder / "coordinator-hub" / "authority.pem"), lists)

    def renewed(self) -> Credential:
        """North's new key, after the old one was revoked."""
        return load(self.authority.credential("silo", "north"))


def charged(study: Study, rounds: Sequence[int], before: Sequence[Entry] = (), attempt: int = 1) -> list[Entry]:
    """A ledger after more rounds of a study."""
    return extended(
        [Debit(study.digest, "p", number, attempt, plan(study).round_costs(number)) for number in rounds], before
    )


def extended(debits: Sequence[Debit], before: Sequence[Entry] = ()) -> list[Entry]:
    """A ledger after more debits."""
    entries = list(before)
    for debit in debits:
        head = entries[-1].head if entries else EntryRef(0, genesis_row(GENESIS)[2])
        costs = [*(cost for entry in entries for cost in costs_of(entry.event)), *debit.costs.values()]
        entries.append(next_entry(head, debit, AT, accountant.epsilon(costs, GENESIS.delta)))
    return entries


def head_of(entries: Sequence[Entry]) -> Checkpoint:
    """How far such a ledger has come."""
    return checkpoint("north", GENESIS, entries, AT)


def stated(credential: Credential, entries: Sequence[Entry]) -> SignedCheckpoint:
    """The same, signed."""
    return signed(head_of(entries), credential)
