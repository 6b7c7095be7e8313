"""Countersigned heads: others remember how far a ledger had come, so that no older copy can take its place unseen.

What is signed (`Statement.message`): data set, silo, the head's sequence and hash, what the data set had spent, the sum
of all costs by kind, hashes of earlier entries (`anchors`), heads that a recovery charged for (`covers`), and when. All
of it follows from studies' public constants; nothing reads a record.

Guarantees: `check` accepts a countersignature only if the silo signed the statement, and another party than the silo
the same bytes. `advance` is the rule of whoever countersigns: a silo has one ledger, of one data set, under whatever
name; never an older head, never another history, never less spent. `gap` bounds from above what a ledger lost, whatever
was charged on the copy meanwhile. `Countersigned` keeps the latest of each signer beside the ledger, durably. Pure but
for that file; signatures are checked by a function that is handed in (silo_agent's signing.py).

Left to others: asking the coordinator and a peer at every start for what they countersigned last (silo_agent's
countersigning.py), and keeping the latest statement before signing (its witnessing.py, the coordinator's
countersigning.py). The file beside the ledger finds a ledger that was put back alone; who puts back the whole folder is
found only by asking.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from policies import totals
from policies.canonical import canonical_json
from policies.chain import MEND, UNBOUNDED, Entry, Genesis, genesis_row
from policies.costs import Cost
from policies.errors import CountersignError, LedgerRolledBackError, LedgerWriteError
from policies.events import EXHAUSTED, Head, Recovery, costs_of

Verify = Callable[[bytes, bytes, bytes, str | None], str]
"""(certificate PEM, message, signature, time) -> the signer as `fedward://role/name`; raises where it does not fit.

With a time (ISO 8601) a certificate that expired since counts as of then; with None it has to be valid today."""
PURPOSE: Final = "fedward ledger head"
MAX_BYTES: Final = 1 << 20
"""Of a countersignature as JSON: some thousand kinds of release."""
COORDINATOR: Final = "fedward://coordinator/"
SILO: Final = "fedward://silo/"
_MAX_SIGNERS: Final = 300
_ROLES: Final = (COORDINATOR, SILO)


@dataclass(frozen=True, slots=True)
class Statement:
    """How far a ledger has come. Raises `CountersignError` on construction for what no ledger can say."""

    silo: str
    data_set: str
    head: Head
    epsilon: float
    """Spent with the head's entry; infinite on public data that were used without noise."""
    totals: tuple[Cost, ...]
    """Everything charged up to the head, merged (totals.py)."""
    anchors: tuple[Head, ...]
    """Earlier entries of the same chain, oldest first, the genesis among them."""
    covers: tuple[Head, ...]
    """Lost heads that recoveries of this chain charged for."""
    at: str
    """By the silo's clock, ISO 8601 in UTC. `advance` does not read it; once a signer's certificate expired, what it
    signed counts as of this time (silo_agent/signing.py)."""

    def __post_init__(self) -> None:
        texts = (self.silo, self.data_set, self.at)
        earlier = [anchor.sequence for anchor in self.anchors]
        sound = (
            all(isinstance(text, str) and 0 < len(text) <= 128 for text in texts)  # noqa: PLR2004 - as in the ledger
            and isinstance(self.epsilon, float)
            and self.epsilon >= 0
            and self.head.sequence >= 0
            and earlier == sorted(set(earlier))
            and all(0 <= sequence < self.head.sequence for sequence in earlier)
            and (self.head.sequence == 0 or earlier[:1] == [0])
            and all(head.sequence > 0 for head in self.covers)
        )
        if not sound:
            msg = "the statement about the ledger is malformed; ask the silo's agent for a new one"
            raise CountersignError(msg)

    @property
    def message(self) -> bytes:
        """What a countersigner signs."""
        return canonical_json({"purpose": PURPOSE, **self.content}).encode()

    @property
    def content(self) -> dict[str, object]:
        """As plain data."""
        return {
            "silo": self.silo,
            "data_set": self.data_set,
            "head": _pair(self.head),
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else UNBOUNDED,
            "totals": [asdict(cost) for cost in self.totals],
            "anchors": [_pair(head) for head in self.anchors],
            "covers": [_pair(head) for head in self.covers],
            "at": self.at,
        }

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """From plain data. Raises `CountersignError`."""
        try:
            spent = content["epsilon"]
            made = cls(
                content["silo"],
                content["data_set"],
                Head(*content["head"]),
                math.inf if spent == UNBOUNDED else spent,
                tuple(Cost(**cost) for cost in content["totals"]),
                tuple(Head(*head) for head in content["anchors"]),
                tuple(Head(*head) for head in content["covers"]),
                content["at"],
            )
            if made.content != dict(content):
                raise ValueError  # noqa: TRY301 - one way out for everything that is malformed
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            msg = "a statement about a ledger cannot be read; ask the silo's agent for a new one"
            raise CountersignError(msg) from None
        return made

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """The inverse of `message`. Raises `CountersignError` for anything else than its result."""
        try:
            content = json.loads(message) if len(message) <= MAX_BYTES else {}
            made = cls.read({name: value for name, value in content.items() if name != "purpose"})
            same = made.message == message
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            same = False
        if not same:
            msg = "these bytes are no statement about a ledger in canonical JSON; ask the silo's agent for a new one"
            raise CountersignError(msg)
        return made


@dataclass(frozen=True, slots=True)
class Countersignature:
    """Somebody else's signature under a statement."""

    statement: Statement
    signer: str
    """As `fedward://role/name`; what `check` finds counts."""
    certificate: bytes
    """PEM."""
    signature: bytes
    stated_certificate: bytes
    """PEM, of the silo whose ledger it is."""
    stated_signature: bytes
    """The silo's own under the same message: without it, anybody who countersigns could make the statement up."""

    @property
    def content(self) -> dict[str, object]:
        """As plain data."""
        return {
            "statement": self.statement.content,
            "signer": self.signer,
            "certificate": self.certificate.decode("ascii", "replace"),
            "signature": self.signature.hex(),
            "stated_certificate": self.stated_certificate.decode("ascii", "replace"),
            "stated_signature": self.stated_signature.hex(),
        }

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """From plain data. Raises `CountersignError`."""
        try:
            if not isinstance(content["signer"], str):
                raise TypeError  # noqa: TRY301 - one way out for everything that is malformed
            return cls(
                Statement.read(content["statement"]),
                content["signer"],
                content["certificate"].encode("ascii"),
                bytes.fromhex(content["signature"]),
                content["stated_certificate"].encode("ascii"),
                bytes.fromhex(content["stated_signature"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            msg = "a countersignature cannot be read; ask the coordinator or a peer for it again"
            raise CountersignError(msg) from None


def statement(silo: str, genesis: Genesis, entries: Sequence[Entry], at: str, known: Iterable[Head] = ()) -> Statement:
    """What the silo asks others to countersign about its ledger as it is.

    Anchors are the entries 1, 2, 4, 8, ... before the head, the genesis, and of `known` (heads that were countersigned
    before) those that the chain contains.
    """
    heads = {0: Head(0, genesis_row(genesis)[2]), **{entry.sequence: entry.head for entry in entries}}
    newest = max(heads)
    wanted = {0, *(newest - (1 << power) for power in range(newest.bit_length()))}
    wanted |= {head.sequence for head in known if heads.get(head.sequence) == head}
    return Statement(
        silo,
        genesis.data_set,
        heads[newest],
        entries[-1].epsilon if entries else 0.0,
        totals.merged(cost for entry in entries for cost in costs_of(entry.event)),
        tuple(heads[place] for place in sorted(wanted) if 0 <= place < newest),
        covered(entries),
        at,
    )


def covered(entries: Iterable[Entry]) -> tuple[Head, ...]:
    """Lost heads that the recoveries among these entries charged for."""
    return tuple(head for entry in entries if isinstance(entry.event, Recovery) for head in entry.event.covers)


def require_head(genesis: Genesis, entries: Sequence[Entry], head: Head) -> None:
    """Raise `LedgerRolledBackError` where neither the chain nor one of its recoveries has this countersigned head."""
    known = {0: genesis_row(genesis)[2], **{entry.sequence: entry.hash for entry in entries}}
    if known.get(head.sequence) == head.hash or head in covered(entries):
        return
    if head.sequence in known:
        what = "another entry stands there: the ledger has another history than the one that was countersigned"
    else:
        what = f"which ends at {max(known)}: an older copy was put in its place"
    msg = f"countersigned entry {head.sequence} is not in the ledger of {genesis.data_set}, {what}; {MEND}"
    raise LedgerRolledBackError(msg)


def check(countersignature: Countersignature, verify: Verify) -> Countersignature:
    """The countersignature, as its true signer's. Raises `CountersignError`, and what `verify` raises.

    The silo itself has to have signed the statement, with a certificate that was valid then; it cannot countersign its
    own ledger, and an operator is not asked.
    """
    said = countersignature.statement
    silo, message = said.silo, said.message
    stated = verify(countersignature.stated_certificate, message, countersignature.stated_signature, said.at)
    if stated != f"{SILO}{silo}":
        msg = f"{stated} signed a statement about the ledger of {silo}, which alone can state it; ask {silo}"
        raise CountersignError(msg)
    found = verify(countersignature.certificate, message, countersignature.signature, None)
    if found == f"{SILO}{silo}" or not found.startswith(_ROLES):
        msg = f"{found} cannot countersign the ledger of {silo}; the coordinator or another silo must"
        raise CountersignError(msg)
    return replace(countersignature, signer=found)


def advance(last: Statement | None, offered: Statement) -> Statement:
    """What a countersigner may sign after `last`, its latest of this silo; it keeps it before it signs.

    Raises `LedgerRolledBackError` where the ledger went back, took another history, or spent less; `CountersignError`
    for another silo's statement, and for one of another data set: else a new name would refill the budget.
    """
    if last is None or offered.content == last.content:
        return offered
    if last.silo != offered.silo:
        msg = f"a statement of {offered.silo} cannot follow one of {last.silo}; keep each silo's latest statement"
        raise CountersignError(msg)
    if last.data_set != offered.data_set:
        msg = (
            f"the ledger of {offered.silo} was of the data set {last.data_set} when it was countersigned last, and is"
            f" of {offered.data_set} now: a new name refills no budget. Put data_set.id back, or have the authority"
            " certify another silo for other patients"
        )
        raise CountersignError(msg)
    if last.head not in (offered.head, *offered.anchors, *offered.covers):
        msg = (
            f"the ledger of {offered.data_set} at {offered.silo} stands at entry {offered.head.sequence} and does not"
            f" contain entry {last.head.sequence} that was countersigned at {last.at}: it is an older copy or another"
            " history. Recover it first (fedward-silo ledger recover)"
        )
        raise LedgerRolledBackError(msg)
    if not (last.epsilon <= offered.epsilon and not totals.beyond(last.totals, offered.totals)):
        msg = f"the ledger of {offered.data_set} at {offered.silo} claims less than it had spent at {last.at}; check it"
        raise LedgerRolledBackError(msg)
    return offered


def gap(genesis: Genesis, entries: Sequence[Entry], lost: Sequence[Statement]) -> tuple[Cost, ...]:
    """What the ledger must be charged for entries that these countersigned statements know of and it does not contain.

    For each statement the fork lies at its newest anchor that the ledger contains, or later. So all that the statement
    counts beyond the ledger's entries up to that anchor may be missing; what was charged since on the copy is no part
    of it. After a plain loss of L entries a single statement charges them and at most L - 1 others a second time.
    Statements of one history overlap, so of each kind of release the largest count is missing; of two histories it
    would be the sum. Whether there was one history or two shows only where a statement names the other's head among its
    anchors, and an earlier head is one only where the silo knew of it or it lies 1, 2, 4, 8, ... entries back.
    Otherwise each is charged: of one history too much, never too little. No statement at all: `EXHAUSTED`.
    """
    if not lost:
        return (EXHAUSTED,)
    heads = {Head(0, genesis_row(genesis)[2]): 0, **{entry.head: entry.sequence for entry in entries}}
    histories: list[tuple[Statement, tuple[Cost, ...]]] = []
    for item in sorted(lost, key=lambda one: one.head.sequence, reverse=True):
        fork = max((heads[anchor] for anchor in (*item.anchors, item.head) if anchor in heads), default=None)
        if fork is None:
            msg = (
                f"the statement about entry {item.head.sequence} shares no entry with this ledger: it is of another one"
            )
            raise CountersignError(msg)
        held = (cost for entry in entries[:fork] for cost in costs_of(entry.event))
        missing = totals.beyond(item.totals, held)
        known = next((i for i, (other, _) in enumerate(histories) if item.head in (other.head, *other.anchors)), None)
        if known is None:
            histories.append((item, missing))
        else:
            histories[known] = (histories[known][0], totals.largest((histories[known][1], missing)))
    return totals.merged(cost for _, missing in histories for cost in missing)


class Countersigned:
    """The latest countersignature of each signer, in a file beside the ledger."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger.with_name(ledger.name + ".countersigned.json")

    def latest(self) -> tuple[Countersignature, ...]:
        """What is kept; nothing where there is no file. Raises `CountersignError` where it cannot be read."""
        return read_countersignatures(self._path) if self._path.exists() else ()

    def keep(self, fresh: Iterable[Countersignature]) -> None:
        """Replace their signers' older ones, durably, all or nothing; an older one than the kept one changes nothing.

        Raises `LedgerWriteError`, `CountersignError`.
        """
        held = {item.signer: item for item in self.latest()}
        for item in fresh:
            old = held.get(item.signer)
            if old is None or follows(old.statement, item.statement):
                held[item.signer] = item
        text = json.dumps([item.content for _, item in sorted(held.items())], indent=1, allow_nan=False)
        new = self._path.with_name(self._path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError as error:
            msg = (
                f"{self._path.name}: the countersignature could not be kept ({error.strerror}); what was kept"
                " before still stands; free space on its disk and try again"
            )
            raise LedgerWriteError(msg) from None


def read_countersignatures(path: Path) -> tuple[Countersignature, ...]:
    """A list of them from a JSON file. Raises `CountersignError`."""
    try:
        size = path.stat().st_size
        content = json.loads(path.read_text("utf-8")) if size <= MAX_BYTES * _MAX_SIGNERS else None
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, list):
        msg = f"{path.name}: these are no countersignatures (a JSON list); ask the coordinator or a peer again"
        raise CountersignError(msg)
    return tuple(Countersignature.read(item) for item in content)


def follows(old: Statement, new: Statement) -> bool:
    """Whether a signer's statement takes the place of an older one: not behind it, or charged for it."""
    return new.head.sequence >= old.head.sequence or old.head in new.covers


def _pair(head: Head) -> list[object]:
    return [head.sequence, head.hash]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
