"""Sees all that a simulated federation seals, sends, signs, reveals and opens, and checks the invariants of the sums.

The numbers are those of docs/design/threat-model.md, "Invariants". What it has seen outlives every crash, of whomever.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from crypto.rings.rings import Kind, ring_of
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import sealed_values
from crypto.secagg.masks import Masks
from crypto.secagg.survivors import threshold
from policies.documents.study import Study
from policies.plan.release import plan
from protos import codec
from protos.messages import Place, Tensor, UploadHeader

Sum = tuple[int, Tensor]
"""Round and tensor."""


def plain(study: Study, silo: str, round_number: int, tensor: Tensor) -> NDArray[np.int64]:
    """What a silo contributes to a tensor of a round: the same whenever it is asked, as far as its ring reaches."""
    limit = ring_of(plan(study).ring(tensor)).limit(len(study.silos))
    seed = hashlib.sha256(f"{silo} {round_number} {tensor}".encode()).digest()
    values = plan(study).release(round_number, tensor).values
    return np.random.default_rng(list(seed)).integers(-limit, limit, values, endpoint=True)


def plain_sum(study: Study, silos: Iterable[str], round_number: int, tensor: Tensor) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([plain(study, silo, round_number, tensor) for silo in silos], axis=0)
    return total


@dataclass
class Revealed:
    """Who has revealed which share of one silo's secrets for one tensor of an attempt."""

    own: set[str] = field(default_factory=set)
    key: set[str] = field(default_factory=set)


@dataclass
class Witness:
    """What happened in one study."""

    study: Study
    roster_sizes: dict[Place, int] = field(default_factory=dict)
    """Of the attempts in which anybody has contributed."""
    draws: dict[tuple[str, Place, str], int] = field(default_factory=dict)
    """The attempt under which the draw in a silo's contribution was charged, by silo, place and tensor."""
    uploads: dict[tuple[str, Place, str], set[str]] = field(default_factory=dict)
    """SHA-256 of all that a silo sent, by silo, place and slot."""
    sendings: Counter[tuple[str, Place, str]] = field(default_factory=Counter)
    """How often a silo has sent it."""
    said: list[bytes] = field(default_factory=list)
    """All that ever left a silo, arrived or not: answers and confirmations as on the wire, headers, contents."""
    masked: dict[tuple[str, bytes, str], set[str]] = field(default_factory=dict)
    """SHA-256 of what was kept, by silo, secret and label."""
    labels: dict[tuple[Place, str], SumLabel] = field(default_factory=dict)
    """What the masks of a tensor were for."""
    signed: dict[tuple[str, int, Tensor], dict[tuple[str, ...], set[int]]] = field(default_factory=dict)
    """Survivor lists that left a silo with its signature, and in which attempts."""
    voided: dict[tuple[str, int, Tensor], int] = field(default_factory=dict)
    """Up to which attempt a silo has promised to reveal nothing for a sum."""
    revealed: dict[tuple[Place, str, str], Revealed] = field(default_factory=dict)
    """By place, tensor and whose secrets."""
    opened: dict[Sum, dict[tuple[str, ...], bytes]] = field(default_factory=dict)
    """By survivors: the values."""
    opened_at: dict[tuple[Place, tuple[str, ...]], set[Tensor]] = field(default_factory=dict)
    refused: dict[tuple[Place, Tensor, tuple[str, ...], str], set[str]] = field(default_factory=dict)
    """By place, tensor, survivors and culprit: who states that the sum is spoilt. It counts as opened."""
    forgers: frozenset[str] = frozenset()
    """Silos whose metrics are not those of their patients, but could be somebody's."""

    # --- what silos report ---------------------------------------------------------------------------------------
    def says(self, words: Message) -> None:
        self.said.append(words.SerializeToString())

    def sent(self, header: UploadHeader, content: bytes) -> None:
        self.says(codec.to_wire(header))
        self.said.append(content)
        key = (header.silo, header.place, header.slot)
        self.sendings[key] += 1
        self.uploads.setdefault(key, set()).add(header.sha256)

    def sealed(self, masks: Masks, kind: Kind, label: SumLabel, content: bytes) -> None:
        sha256 = hashlib.sha256(content).hexdigest()
        assert len(content) == self._size(label, kind)
        self.labels[Place(label.study, label.round, label.attempt), label.tensor] = label
        for secret in (masks.own, masks.group, *masks.pairs.values()):
            self.masked.setdefault((masks.me, secret, label.digest), set()).add(sha256)

    def signs(self, silo: str, place: Place, tensor: Tensor, survivors: tuple[str, ...]) -> None:
        self.signed.setdefault((silo, place.round, tensor), {}).setdefault(survivors, set()).add(place.attempt)

    def voids(self, silo: str, place: Place, tensor: Tensor) -> None:
        """A silo has promised that the attempts before this one are closed to it."""
        key = (silo, place.round, tensor)
        self.voided[key] = max(self.voided.get(key, 0), place.attempt - 1)

    def reveals(self, silo: str, place: Place, tensor: str, parts: Mapping[str, str]) -> None:
        """`parts`: of every participant, which of its secrets the share is of."""
        for owner, part in parts.items():
            holders = self.revealed.setdefault((place, tensor, owner), Revealed())
            (holders.own if part == "own" else holders.key).add(silo)

    def opens(self, place: Place, tensor: Tensor, survivors: tuple[str, ...], total: NDArray[np.int64]) -> None:
        known = self.opened.setdefault((place.round, tensor), {})
        assert known.setdefault(survivors, total.tobytes()) == total.tobytes(), "one sum opened to different values"
        self.opened_at.setdefault((place, survivors), set()).add(tensor)

    def refuses(self, silo: str, place: Place, tensor: Tensor, survivors: tuple[str, ...], culprit: str) -> None:
        self.refused.setdefault((place, tensor, survivors, culprit), set()).add(silo)

    # --- what is known beforehand --------------------------------------------------------------------------------
    def plain(self, silo: str, round_number: int, tensor: Tensor) -> NDArray[np.int64]:
        """What a silo contributes."""
        own = plain(self.study, silo, round_number, tensor)
        return own[::-1].copy() if tensor == Tensor.METRICS and silo in self.forgers else own

    # --- invariants ----------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Raise `AssertionError` where anything has happened that never may."""
        self.invariant_2()
        self.invariant_3()
        self.invariant_4()
        self.invariant_7()
        self.signs_once()
        self.keeps_its_promise()
        self.reveals_one_of_two()

    def invariant_2(self) -> None:
        """Every opened sum has at least `min_silos` members; at most one of each epoch is opened per round and tensor.

        The spoilt ones count as opened, and no draw is in two different ones.
        """
        for (round_number, tensor), sums in self.opened.items():
            epochs: dict[int, set[tuple[str, ...]]] = {}
            for place, survivors in self.read(round_number, tensor):
                epochs.setdefault(self.epoch(place), set()).add(survivors)
            for lists in epochs.values():
                assert len(lists) == 1, f"2: {len(lists)} sums of {tensor} of round {round_number} were opened"
            for survivors in sums:
                assert len(survivors) >= self.study.min_silos, f"2: a sum of {survivors} was opened"
        for place, survivors in self.opened_at:
            assert len(survivors) >= self._threshold(), f"2: fewer than have to sign were opened at {place}"

        holding: dict[tuple[str, int, Tensor, int], set[tuple[str, ...]]] = {}
        for round_number, tensor in {(place.round, tensor) for place, _, tensor in self.all_read()}:
            for place, survivors in self.read(round_number, tensor):
                for name in survivors:
                    draw = self.draws.get((name, place, tensor))
                    if draw is not None:
                        holding.setdefault((name, round_number, tensor, draw), set()).add(survivors)
        twice = {draw: lists for draw, lists in holding.items() if len(lists) > 1}
        assert not twice, f"2: one draw is in two sums that were read: {twice}"

    def all_read(self) -> set[tuple[Place, tuple[str, ...], Tensor]]:
        """All sums that anybody can have read: place, survivors and tensor."""
        opened = {(place, names, tensor) for (place, names), tensors in self.opened_at.items() for tensor in tensors}
        return opened | {(place, names, tensor) for place, tensor, names, _ in self.refused}

    def read(self, round_number: int, tensor: Tensor) -> set[tuple[Place, tuple[str, ...]]]:
        """The sums of one tensor of a round that anybody can have read."""
        return {(p, names) for p, names, of in self.all_read() if (p.round, of) == (round_number, tensor)}

    def epoch(self, place: Place) -> int:
        """The last attempt at the round before this one in which a sum is proven to be spoilt; 0 for none."""
        ended = {p.attempt for p, _, _ in self.proven() if p.round == place.round}
        return max((attempt for attempt in ended if attempt < place.attempt), default=0)

    def proven(self) -> dict[tuple[Place, tuple[str, ...], str], set[str]]:
        """The sums that enough silos have stated to be spoilt: place, survivors, culprit; and who has."""
        proving = self.study.privacy.colluders + 1
        return {(place, names, of): by for (place, _, names, of), by in self.refused.items() if len(by) >= proving}

    def invariant_3(self) -> None:
        """(mask key, label) pairs are unique across restarts."""
        for (silo, _, label), contents in self.masked.items():
            assert len(contents) == 1, f"3: {silo} has covered two uploads with one mask, label {label[:8]}"

    def invariant_4(self) -> None:
        """One (silo, round, tensor, attempt) gives one byte string; recovery resends it."""
        for key, contents in self.uploads.items():
            assert len(contents) == 1, f"4: different bytes for one slot, {key}"

    def invariant_7(self) -> None:
        """A failed or rejected contribution leaves no trace in the sum: it is exactly the survivors'."""
        for (round_number, tensor), sums in self.opened.items():
            for survivors, values in sums.items():
                expected = np.sum([self.plain(name, round_number, tensor) for name in survivors], axis=0)
                assert values == expected.tobytes(), f"7: {tensor} of round {round_number} is not the survivors' sum"

    def signs_once(self) -> None:
        """Each silo signs one survivor list for a sum of a round in all attempts, until T silos have voided it."""
        for (silo, round_number, tensor), lists in self.signed.items():
            closed = max(self.closed(round_number, tensor), self.epoch(Place(self.study.digest, round_number, 1 << 15)))
            binding = [names for names, attempts in lists.items() if max(attempts) > closed]
            assert len(binding) <= 1, f"{silo} signed {lists} for {tensor} of round {round_number}, of which {closed=}"

    def closed(self, round_number: int, tensor: Tensor) -> int:
        """The last attempt up to which T silos have voided a sum; 0 if there is none."""
        needed = self._threshold()
        through = [at for (_, number, of), at in self.voided.items() if (number, of) == (round_number, tensor)]
        return sorted(through, reverse=True)[needed - 1] if len(through) >= needed else 0

    def keeps_its_promise(self) -> None:
        """Who has voided a sum has revealed nothing for it, and never does; and a voided sum is never opened."""
        for (place, tensor, _), holders in self.revealed.items():
            for silo in holders.own | holders.key:
                promised = self.voided.get((silo, place.round, Tensor(tensor)), 0)
                assert place.attempt > promised, (
                    f"{silo} has voided {tensor} up to attempt {promised}, and reveals {place}"
                )
        for (place, _), tensors in self.opened_at.items():
            for tensor in tensors:
                assert place.attempt > self.closed(place.round, tensor), f"{tensor} was voided, and opened at {place}"

    def reveals_one_of_two(self) -> None:
        """No silo reveals its shares of both secrets of one silo, and too few reveal either for both to be combined."""
        for (place, tensor, owner), holders in self.revealed.items():
            both = holders.own & holders.key
            assert not both, f"{both} revealed both secrets of {owner} for {tensor} at {place}"
            silos, colluders = len(self.study.silos), self.study.privacy.colluders
            # On a circle fewer shares give a secret than T.
            dealt = silos - threshold(silos, colluders, self.study.min_silos) + colluders + 1
            fewer = min(len(holders.own), len(holders.key))
            assert fewer < dealt - self.study.privacy.colluders, (
                f"both secrets of {owner} for {tensor} at {place} can be combined"
            )

    def repeated(self) -> list[tuple[str, Place, str]]:
        """What was sent more than once."""
        return [key for key, times in self.sendings.items() if times > 1]

    def survivors(self, round_number: int, tensor: Tensor) -> tuple[str, ...]:
        """Whose sum was opened."""
        (survivors,) = self.opened[round_number, tensor]
        return survivors

    def _threshold(self) -> int:
        """T of docs/design/sums.md, "Thresholds", computed here on its own: T > t, 2T > N + t, and at least
        `min_silos`."""
        silos, colluders = len(self.study.silos), self.study.privacy.colluders
        return max(colluders + 1, (silos + colluders) // 2 + 1, self.study.min_silos)

    def _size(self, label: SumLabel, kind: Kind) -> int:
        values = plan(self.study).release(label.round, label.tensor).values
        return ring_of(kind).content_size(sealed_values(values, len(self.study.silos)))
