"""Cosigned heads: other parties remember how far a ledger had come, so that an older copy cannot replace it unnoticed.

The signed message (`Checkpoint.message`) has the data set, the silo, the head's sequence and hash, what the data set
had spent, the sum of all costs by kind, hashes of earlier entries (`anchors`), heads that a recovery charged for
(`covers`), and the time. All of it follows from studies' public constants; nothing reads a record.

Guarantees: `check` accepts a cosignature only if the silo signed the checkpoint and another party signed the same
bytes. `advance` is the rule for cosigners: a silo has one ledger, of one data set, under any name. Its checkpoints
never go back to an older head, to another history, or to less spent. `gap` is an upper bound of what a ledger lost,
whatever was charged on the copy meanwhile. `CosignatureFile` keeps the latest cosignature of each signer durably,
beside the ledger. The module is pure except for that file. The caller hands in the function that checks signatures
(silo_agent's signing.py).

Left to others: asking the coordinator and a peer at every start for what they cosigned last (silo_agent's
cosigning.py), and keeping the latest checkpoint before signing (its witnessing.py, the coordinator's
cosigning.py). The file beside the ledger shows if only the ledger was replaced by an older copy. If the whole folder
was replaced, only asking others shows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from common.canonical_json import canonical_json
from common.durable import write_whole
from common.os_errors import explained, is_passing
from policies.accounting import totals
from policies.errors import CosignError, LedgerRolledBackError, LedgerShortError, LedgerWriteError
from policies.ledger.chain import FIX, UNBOUNDED, Entry, Genesis, genesis_row
from policies.ledger.events import EXHAUSTED, EntryRef, Recovery, costs_of
from policies.plan.cost import Cost

Verify = Callable[[bytes, bytes, bytes, str | None], str]
"""(certificate PEM, message, signature, time) -> the signer as `fedward://role/name`; raises if the signature is wrong.

With a time (ISO 8601), a certificate must have been valid at that time or be valid today. With None, it must be valid
today."""
PURPOSE: Final = "fedward ledger head"
MAX_BYTES: Final = 1 << 20
"""Most bytes of a cosignature as JSON. This is enough for some thousand kinds of release."""
COORDINATOR: Final = "fedward://coordinator/"
SILO: Final = "fedward://silo/"
_MAX_SIGNERS: Final = 300
_ROLES: Final = (COORDINATOR, SILO)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a ledger has come. Construction raises `CosignError` for values that no ledger can have."""

    silo: str
    data_set: str
    head: EntryRef
    epsilon: float
    """Epsilon spent with the head's entry; infinite for public data that were used without noise."""
    totals: tuple[Cost, ...]
    """Everything charged up to the head, merged (totals.py)."""
    anchors: tuple[EntryRef, ...]
    """Earlier entries of the same chain, oldest first, the genesis among them."""
    covers: tuple[EntryRef, ...]
    """Lost heads that recoveries of this chain charged for."""
    at: str
    """The time by the silo's clock, ISO 8601 in UTC. `advance` does not read it. If a signer's certificate has expired,
    it must have been valid at this time (silo_agent/oversight/signing.py)."""

    def __post_init__(self) -> None:
        texts = (self.silo, self.data_set, self.at)
        earlier = [anchor.sequence for anchor in self.anchors]
        sound = (
            all(isinstance(text, str) and 0 < len(text) <= 128 for text in texts)  # noqa: PLR2004 - as in the ledger
            and isinstance(self.epsilon, float)
            and self.epsilon >= 0
            and earlier == sorted(set(earlier))
            and all(0 <= sequence < self.head.sequence for sequence in earlier)
            and (self.head.sequence == 0 or earlier[:1] == [0])
            and all(head.sequence > 0 for head in self.covers)
        )
        if not sound:
            msg = "the checkpoint of the ledger is malformed; ask the silo's agent for a new checkpoint"
            raise CosignError(msg)

    @property
    def message(self) -> bytes:
        """Return the bytes that a cosigner signs."""
        return canonical_json({"purpose": PURPOSE, **self.content}).encode()

    @property
    def content(self) -> dict[str, object]:
        """Return the content as plain data."""
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
        """Read plain data. Raises `CosignError`."""
        try:
            spent = content["epsilon"]
            made = cls(
                content["silo"],
                content["data_set"],
                EntryRef(*content["head"]),
                math.inf if spent == UNBOUNDED else spent,
                tuple(Cost(**cost) for cost in content["totals"]),
                tuple(EntryRef(*head) for head in content["anchors"]),
                tuple(EntryRef(*head) for head in content["covers"]),
                content["at"],
            )
            if made.content != dict(content):
                raise ValueError  # noqa: TRY301 - everything malformed leaves by the same except clause
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            msg = "a checkpoint of a ledger cannot be read; ask the silo's agent for a new checkpoint"
            raise CosignError(msg) from None
        return made

    @classmethod
    def parse(cls, message: bytes) -> Self:
        """The inverse of `message`. Raises `CosignError` for all other bytes."""
        try:
            content = json.loads(message) if len(message) <= MAX_BYTES else {}
            made = cls.read({name: value for name, value in content.items() if name != "purpose"})
            same = made.message == message
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            same = False
        if not same:
            msg = (
                "these bytes are no checkpoint of a ledger in canonical JSON; ask the silo's agent for a new checkpoint"
            )
            raise CosignError(msg)
        return made


@dataclass(frozen=True, slots=True)
class Cosignature:
    """Another party's signature on a checkpoint."""

    checkpoint: Checkpoint
    signer: str
    """The signer as `fedward://role/name`. It is only a claim until `check` has verified it."""
    certificate: bytes
    """PEM."""
    signature: bytes
    stated_certificate: bytes
    """PEM of the silo whose ledger it is."""
    stated_signature: bytes
    """The silo's own signature of the same message. Without it, a cosigner could invent the checkpoint."""
    received: str = field(default="", compare=False)
    """When the silo heard of it, by its own clock, ISO 8601; empty if an earlier version kept it. Not exported."""

    @property
    def content(self) -> dict[str, object]:
        """Return the content as plain data."""
        return {
            "statement": self.checkpoint.content,
            "signer": self.signer,
            "certificate": self.certificate.decode("ascii", "replace"),
            "signature": self.signature.hex(),
            "stated_certificate": self.stated_certificate.decode("ascii", "replace"),
            "stated_signature": self.stated_signature.hex(),
        }

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Read plain data. Raises `CosignError`."""
        try:
            if not isinstance(content["signer"], str):
                raise TypeError  # noqa: TRY301 - everything malformed leaves by the same except clause
            return cls(
                Checkpoint.read(content["statement"]),
                content["signer"],
                content["certificate"].encode("ascii"),
                bytes.fromhex(content["signature"]),
                content["stated_certificate"].encode("ascii"),
                bytes.fromhex(content["stated_signature"]),
                str(content.get("received", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            msg = "a cosignature cannot be read; ask the coordinator or a peer for it again"
            raise CosignError(msg) from None


def checkpoint(
    silo: str, genesis: Genesis, entries: Sequence[Entry], at: str, known: Iterable[EntryRef] = ()
) -> Checkpoint:
    """Return the checkpoint of the ledger's current state, which the silo asks others to cosign.

    Its anchors are the entries 1, 2, 4, 8, ... before the head, the genesis, and those of `known` (heads that were
    cosigned before) that the chain contains.
    """
    heads = {0: EntryRef(0, genesis_row(genesis)[2]), **{entry.sequence: entry.head for entry in entries}}
    newest = max(heads)
    wanted = {0, *(newest - (1 << power) for power in range(newest.bit_length()))}
    wanted |= {head.sequence for head in known if heads.get(head.sequence) == head}
    return Checkpoint(
        silo,
        genesis.data_set,
        heads[newest],
        entries[-1].epsilon if entries else 0.0,
        totals.merged(cost for entry in entries for cost in costs_of(entry.event)),
        tuple(heads[place] for place in sorted(wanted) if 0 <= place < newest),
        covered(entries),
        at,
    )


def covered(entries: Iterable[Entry]) -> tuple[EntryRef, ...]:
    """Return the lost heads that the recoveries among these entries charged for."""
    return tuple(head for entry in entries if isinstance(entry.event, Recovery) for head in entry.event.covers)


def require_head(genesis: Genesis, entries: Sequence[Entry], head: EntryRef) -> None:
    """Raise `LedgerRolledBackError` if neither the chain nor one of its recoveries has this cosigned head."""
    known = {0: genesis_row(genesis)[2], **{entry.sequence: entry.hash for entry in entries}}
    if known.get(head.sequence) == head.hash or head in covered(entries):
        return
    if head.sequence in known:
        what = "which has another entry at this place: it has another history than the cosigned one"
    else:
        what = f"which ends at {max(known)}: an older copy was put in its place"
    msg = f"cosigned entry {head.sequence} is not in the ledger of {genesis.data_set}, {what}; {FIX}"
    raise LedgerRolledBackError(msg)


def check(cosignature: Cosignature, verify: Verify) -> Cosignature:
    """Return the cosignature with its true signer. Raises `CosignError`, and what `verify` raises.

    The silo itself must have signed the checkpoint, with a certificate that was valid then. A silo cannot cosign its
    own ledger, and an operator cannot cosign.
    """
    said = cosignature.checkpoint
    silo, message = said.silo, said.message
    stated = verify(cosignature.stated_certificate, message, cosignature.stated_signature, said.at)
    if stated != f"{SILO}{silo}":
        msg = f"{stated} signed a checkpoint of the ledger of {silo}, which only {silo} may sign; ask {silo}"
        raise CosignError(msg)
    signer = verify(cosignature.certificate, message, cosignature.signature, None)
    if signer == f"{SILO}{silo}" or not signer.startswith(_ROLES):
        msg = f"{signer} cannot cosign the ledger of {silo}; ask the coordinator or another silo to do so"
        raise CosignError(msg)
    return replace(cosignature, signer=signer)


def advance(last: Checkpoint | None, offered: Checkpoint) -> Checkpoint:
    """Return `offered` if a cosigner may sign it after `last`, its latest checkpoint of this silo.

    The cosigner stores the checkpoint before it signs. Raises `LedgerRolledBackError` if the ledger went back, has
    another history, or spent less. Raises `CosignError` for another silo's checkpoint, and for one of another data set,
    since otherwise a new name would refill the budget.
    """
    if last is None:
        return offered
    if last.silo != offered.silo:
        msg = f"a checkpoint of {offered.silo} cannot follow one of {last.silo}; keep each silo's latest checkpoint"
        raise CosignError(msg)
    if last.data_set != offered.data_set:
        msg = (
            f"the ledger of {offered.silo} belonged to the data set {last.data_set} when it was cosigned last, and now"
            f" belongs to {offered.data_set}, but a new name does not refill a budget; put back data_set.id in the"
            " policy, or have the authority certify another silo for other patients"
        )
        raise CosignError(msg)
    if last.head not in (offered.head, *offered.anchors, *offered.covers):
        msg = (
            f"the ledger of {offered.data_set} at {offered.silo} ends at entry {offered.head.sequence} and does not"
            f" contain entry {last.head.sequence}, which was cosigned at {last.at}: it is an older copy or has another"
            " history; recover it first (fedward-silo ledger recover)"
        )
        raise LedgerRolledBackError(msg)
    if not (last.epsilon <= offered.epsilon and not totals.beyond(last.totals, offered.totals)):
        msg = (
            f"the ledger of {offered.data_set} at {offered.silo} states that it has spent less than at {last.at}; check"
            " the ledger"
        )
        raise LedgerRolledBackError(msg)
    return offered


def gap(genesis: Genesis, entries: Sequence[Entry], lost: Sequence[Checkpoint]) -> tuple[Cost, ...]:
    """Return what the ledger must be charged for entries that these cosigned checkpoints have and the ledger lacks.

    For each checkpoint the histories part at its newest anchor that the ledger contains, or later. So everything that
    the checkpoint counts beyond the ledger's entries up to that anchor may be missing. Charges that the copy made since
    then do not reduce it. After a plain loss of L entries, a single checkpoint charges them, and at most L - 1 others a
    second time.

    Checkpoints of one history overlap, so for each kind of release the largest count is missing. For two histories it
    would be the sum. It is certain that there was only one history if a checkpoint names the other's head among its
    anchors. An earlier head is an anchor only if the silo knew of it, or if it lies 1, 2, 4, 8, ... entries back. In
    all other cases each checkpoint is charged: for one history this is too much, but never too little. If there is no
    checkpoint at all, the charge is `EXHAUSTED`.
    """
    if not lost:
        return (EXHAUSTED,)
    heads = {EntryRef(0, genesis_row(genesis)[2]): 0, **{entry.head: entry.sequence for entry in entries}}
    histories: list[tuple[Checkpoint, tuple[Cost, ...]]] = []
    for item in sorted(lost, key=lambda one: one.head.sequence, reverse=True):
        fork = max((heads[anchor] for anchor in (*item.anchors, item.head) if anchor in heads), default=None)
        if fork is None:
            msg = (
                f"the checkpoint of entry {item.head.sequence} has no entry in common with this ledger, so it belongs"
                " to another ledger; give the cosignatures of this one"
            )
            raise CosignError(msg)
        held = (cost for entry in entries[:fork] for cost in costs_of(entry.event))
        missing = totals.beyond(item.totals, held)
        known = next((i for i, (other, _) in enumerate(histories) if item.head in (other.head, *other.anchors)), None)
        if known is None:
            histories.append((item, missing))
        else:
            histories[known] = (histories[known][0], totals.largest((histories[known][1], missing)))
    return totals.merged(cost for _, missing in histories for cost in missing)


class CosignatureFile:
    """The latest cosignature of each signer, in a file beside the ledger."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger.with_name(ledger.name + ".countersigned.json")

    def latest(self) -> tuple[Cosignature, ...]:
        """Return the stored cosignatures; empty if there is no file. Raises `CosignError` if it cannot be read."""
        return read_cosignatures(self._path) if self._path.exists() else ()

    def keep(self, fresh: Iterable[Cosignature], replaces: Callable[[Cosignature], bool] = lambda _: False) -> None:
        """Replace older cosignatures of the same signers, durably, all or nothing. Ignore those that are not newer.

        Each is kept with the time at which it came. An older one that `replaces` says does not bind gives way to any.

        Raises `LedgerWriteError`, `CosignError`.
        """
        held, now = {item.signer: item for item in self.latest()}, datetime.now(UTC).isoformat(timespec="seconds")
        for item in fresh:
            old = held.get(item.signer)
            if old is None or replaces(old) or follows(old.checkpoint, item.checkpoint):
                first = old is not None and old.checkpoint == item.checkpoint
                held[item.signer] = replace(item, received=old.received if old is not None and first else now)
        content = [item.content | {"received": item.received} for _, item in sorted(held.items())]
        text = json.dumps(content, indent=1, allow_nan=False)
        try:
            write_whole(self._path, text.encode())
        except OSError as error:
            msg = (
                f"{self._path.name}: the cosignature could not be stored ({error.strerror}); the earlier ones are"
                " still there; free space on the disk and try again"
            )
            raise (LedgerShortError if is_passing(error) else LedgerWriteError)(msg) from None


def read_cosignatures(path: Path) -> tuple[Cosignature, ...]:
    """Read a list of cosignatures from a JSON file. Raises `CosignError`."""
    try:
        size = path.stat().st_size
        content = json.loads(path.read_text("utf-8")) if size <= MAX_BYTES * _MAX_SIGNERS else None
    except OSError as error:
        msg = f"{path}: the cosignatures cannot be read; {explained(error)}"
        raise (LedgerShortError if is_passing(error) else CosignError)(msg) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, list):
        msg = f"{path.name}: the file is no JSON list of cosignatures; ask the coordinator or a peer again"
        raise CosignError(msg)
    try:
        return tuple(Cosignature.read(item) for item in content)
    except CosignError as fault:
        msg = f"{path}: {fault}; put the newest copy of the file back, or ask the coordinator and the peers again"
        raise CosignError(msg) from None


def follows(old: Checkpoint, new: Checkpoint) -> bool:
    """Whether a signer's checkpoint may replace an older one: it is not behind the older one, or charges for it."""
    return new.head.sequence >= old.head.sequence or old.head in new.covers


def _pair(head: EntryRef) -> list[object]:
    return [head.sequence, head.hash]
