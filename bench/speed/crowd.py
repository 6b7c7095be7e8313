"""A sum of a thousand silos on a circle, in one process: real keys, notes, masks, reveals, and silos that drop out.

Ten silos may be missing and one may be hostile, so each silo has 24 neighbours whatever the roster. All silos greet,
meet, deal, seal and reveal. Ten drop out before they upload, side by side. One survivor and one of their neighbours
open the sum. A federation's messages carry 256 silos, so there is no coordinator here: uploads are added as it does.

Wanted: the sum is that of the survivors, at both; the same with one wrong mask opens to nobody; a note has as many
bytes as its `Layout` says, at every size of roster; and what a silo computes for itself does not grow with the roster.
What it reads of others does: one head, its own slices, and one reveal of each. The roster's signatures are verified
once and not by each silo, and heads are read once; both are told.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.table import Criterion, judge
from crypto.entropy import SystemEntropy
from crypto.errors import OpeningRefused
from crypto.pki.authority import root
from crypto.pki.certificates import Credential, Trust
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import RINGS
from crypto.secagg.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry
from crypto.secagg.circle import reach_of
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.dealt.slices import Cutting, Layout
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks, Unmasking
from crypto.secagg.packages import GroupKeys, deal, take, with_call, without_call
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import AttemptRef, SurvivorList
from crypto.secagg.unmasking import (
    make_bundle,
    make_reveal,
    notes_digest,
    pair_seed,
    read_bundle,
    read_reveals,
)
from crypto.secagg.words import NOTHING

SILOS: Final = (250, 500, 1000)
MISSING, HOSTILE = 10, 1
TENSOR: Final = "heads"
VALUES: Final = 1000
STUDY: Final = "5" * 64
FLAT: Final = 0.15
"""Largest exponent of what does not grow."""
LINEAR: Final = 1.15
SLICED: Final = 10
"""How many times fewer bytes of all notes a silo reads than there are."""


class VerifiedRoster(Roster):
    """Verified once for all silos of this process."""

    def verify(self, trust: Trust, *, now: datetime | None = None) -> None:
        """Verify, unless it was done."""
        if "verified" not in self.__dict__:
            super().verify(trust, now=now)
            self.__dict__["verified"] = True


@dataclass
class Spent:
    """Seconds of CPU by step, of all silos together."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, step: str) -> Iterator[None]:
        """Add what happens to a step."""
        began = time.process_time()
        yield
        self.seconds[step] = self.seconds.get(step, 0.0) + time.process_time() - began


@dataclass(frozen=True)
class CrowdCost:
    """What a sum of so many silos took, and whether it came out right."""

    silos: int
    note: int
    """Bytes of a shares note, at most."""
    predicted: int
    """Bytes that its `Layout` says."""
    fetched: int
    """Bytes of all notes as they are cut for one silo."""
    right: bool
    refused: bool
    """Whether the sum stays closed if one mask is another one."""
    own: float
    """CPU seconds of one silo for its own keys, note, upload and reveal."""
    opening: float
    """CPU seconds of one silo that reads all reveals and opens the sum."""
    reading: float
    """CPU seconds of one silo that reads all shares notes."""
    verifying: float
    """CPU seconds of one silo that verifies the roster."""


class Crowd:
    """The silos of one roster, and one attempt of theirs."""

    def __init__(self, credentials: dict[str, Credential]) -> None:
        self.spent, self._credentials, self.names = Spent(), credentials, tuple(sorted(credentials))
        self._needed = len(self.names) - MISSING
        self._trust = next(iter(credentials.values())).trust
        with self.spent.on("own"):
            keys = {name: EphemeralKey.create(credentials[name], STUDY) for name in self.names}
        entries = tuple(_entry(credentials[name], name, keys[name]) for name in self.names)
        self.roster = VerifiedRoster(STUDY, entries, reach_of(len(self.names), HOSTILE, self._needed))
        with self.spent.on("roster"):
            self.roster.verify(self._trust)
        self._attempt = AttemptRef(STUDY, self.roster.digest, 1, 1)
        self._label = SumLabel(STUDY, self.roster.digest, "model", 1, 1, TENSOR)
        self._pairs, self._group = self._met(keys), self._dealt(keys)
        self._secrets = {name: AttemptSecrets.create([TENSOR], SystemEntropy()) for name in self.names}
        with self.spent.on("own"):
            self.notes = {name: self._note(name) for name in self.names}
        layouts = {name: Layout.of([TENSOR], self.roster.circle.holders(name)) for name in self.names}
        self._cuttings = {name: Cutting(self.notes[name], layout.form) for name, layout in layouts.items()}
        self.fetched = sum(len(one.cut((self.names[0],))) for one in self._cuttings.values())
        with self.spent.on("read"):
            self._public = {name: self._read(name, self.names[0], ()) for name in self.names}

    def sum_of(self, survivors: Sequence[str], values: dict[str, NDArray[np.int64]]) -> bytes:
        """The sealed sum of these silos' uploads."""
        ring = RINGS["ring32"]
        total: NDArray[np.unsignedinteger[Any]] | None = None
        for name in survivors:
            with self.spent.on("own"):
                pairs, sealer = self._pairs[name], Sealer(name, self._group, self.names)
                seeds = {other: pair_seed(secret, self._attempt, TENSOR) for other, secret in pairs.items()}
                masks = Masks(name, self._secrets[name].own[TENSOR], seeds, self._group.group)
                words = ring.read(b"".join(sealer.seal("ring32", values[name], self._label, masks)))
            if total is None:
                total = words
            else:
                ring.add(total, words)
        return b"" if total is None else ring.write(total)

    def unmasking(self, survivors: Sequence[str], openers: Sequence[str]) -> dict[str, Unmasking]:
        """What each of `openers` takes off the survivors' sum, of what all survivors have revealed."""
        listed = SurvivorList(self._attempt, TENSOR, tuple(survivors), notes_digest(self._public, self.names))
        reveals, held = {}, {}
        for name in survivors:
            held[name] = self._held(name)
            with self.spent.on("own"):
                credential, entropy = self._credentials[name], SystemEntropy()
                reveals[name] = make_reveal(
                    held[name], listed, self.names, name, self._group, credential, entropy, NOTHING
                )
        found = {}
        gone = sorted(set(self.names).difference(survivors))
        for name in openers:
            with self.spent.on("open"):
                bundles = held[name] | self._more(name, held[name], gone)
                found[name] = read_reveals(
                    reveals, bundles, listed, self.names, self.roster, self._group, self._needed, self._trust
                ).unmasking
        return found

    def opens(self, name: str, total: bytes, unmasking: Unmasking, *, step: str = "open") -> NDArray[np.int64] | None:
        """What a silo opens the sum to; None if it refuses the sum."""
        with self.spent.on(step):
            sealer = Sealer(name, self._group, self.names)
            try:
                return sealer.open("ring32", BytesIO(total), VALUES, self._label, unmasking)
            except OpeningRefused:
                return None

    def _met(self, keys: dict[str, EphemeralKey]) -> dict[str, PairSecrets]:
        with self.spent.on("own"):
            said = {name: keys[name].greet(self.roster, name, self._trust) for name in self.names}
            notes = {name: one.note for name, one in said.items()}
            return {
                name: keys[name].meet(self.roster, name, said[name].secrets, notes, self._trust) for name in self.names
            }

    def _dealt(self, keys: dict[str, EphemeralKey]) -> GroupKeys:
        """The keys that the first silo deals, as the last one takes them."""
        dealer, last = self.names[0], self.names[-1]
        group = GroupKeys(CkksKey.create().to_bytes(), SystemEntropy().bytes(32), SystemEntropy().bytes(32))
        call = keys[dealer].call(self.roster, dealer, self._trust)
        package = with_call(call.note, deal(group, call.secrets, dealer, self.roster, SystemEntropy()))
        note, package = without_call(package)
        answer = keys[last].answer(self.roster, last, dealer, note, self._trust)
        return take(package, answer, last, dealer, self.roster)

    def _note(self, name: str) -> bytes:
        return make_bundle(
            self._secrets[name],
            self._attempt,
            name,
            self.roster,
            self._pairs[name],
            self._group,
            self._needed,
            self._credentials[name],
            SystemEntropy(),
            {},
        )

    def _read(self, owner: str, me: str, about: Sequence[str] | None) -> ShareBundle:
        return read_bundle(
            self.notes[owner] if about is None else self._cuttings[owner].cut(about),
            owner,
            self._attempt,
            [TENSOR],
            me,
            self.roster,
            self._pairs[me],
            self._needed,
            self._trust,
            about,
        )

    def _held(self, me: str) -> dict[str, ShareBundle]:
        """All notes as a silo holds them: those of its neighbours with its shares."""
        return self._public | {owner: self._read(owner, me, (me,)) for owner in self.roster.circle.holders(me)}

    def _more(self, me: str, held: dict[str, ShareBundle], gone: Sequence[str]) -> dict[str, ShareBundle]:
        """The notes of those who have dropped out, and what others have dealt to these."""
        near = {owner for one in gone for owner in self.roster.circle.neighbours(one)}
        abouts = dict.fromkeys(near, gone) | dict.fromkeys(gone)
        return {owner: held[owner].joined(self._read(owner, me, about)) for owner, about in abouts.items()}


def cost_of(silos: int, folder: Path) -> CrowdCost:
    """Run one sum."""
    crowd = Crowd(_enrolled(silos, folder))
    names, rng = crowd.names, np.random.default_rng(7)
    gone = names[5 : 5 + MISSING]
    survivors = [name for name in names if name not in gone]
    values = {name: rng.integers(-1000, 1000, VALUES, endpoint=True) for name in names}
    openers = (survivors[-1], names[4])
    total = crowd.sum_of(survivors, values)
    found = crowd.unmasking(survivors, openers)
    expected = np.sum([values[name] for name in survivors], axis=0)
    opened = [crowd.opens(name, total, found[name]) for name in openers]
    right = all(one is not None and np.array_equal(one, expected) for one in opened)
    first, *_ = gone
    near = next(iter(found[openers[0]].dropped[first]))
    wrong = {**found[openers[0]].dropped, first: {**found[openers[0]].dropped[first], near: bytes(32)}}
    masked = dataclasses.replace(found[openers[0]], dropped=wrong)
    refused = crowd.opens(openers[0], total, masked, step="refuse") is None
    spent = crowd.spent.seconds
    return CrowdCost(
        silos,
        max(map(len, crowd.notes.values())),
        Layout.of([TENSOR], crowd.roster.circle.holders(names[0])).form.note,
        crowd.fetched,
        right,
        refused,
        own=spent["own"] / silos,
        opening=spent["open"] / len(openers),
        reading=spent["read"],
        verifying=spent["roster"],
    )


def _entry(credential: Credential, name: str, key: EphemeralKey) -> RosterEntry:
    offer = key.offer
    return RosterEntry(name, credential.certificate_pem, offer.public, offer.kem, offer.signature)


def _enrolled(silos: int, folder: Path) -> dict[str, Credential]:
    authority, made = folder / "authority", {}
    root.init(authority, "Bench", 31)
    for number in range(silos):
        subject = Subject(Identity(Role.SILO, f"silo-{number:04}"), f"ward-{number:04}")
        home = folder / subject.identity.name
        request = create_request(home, subject, ())
        (home / "certificate.pem").write_bytes(root.sign(authority, request.read_bytes(), subject=subject, days=30))
        made[subject.identity.name] = Credential.load(
            home / "certificate.pem", home / "key.pem", authority / "authority.pem"
        )
    return made


def silos_bytes(cost: CrowdCost) -> str:
    """Kilobytes of all whole notes."""
    return f"{cost.note * cost.silos / 1e3:,.0f}"


def _exponent(costs: Sequence[CrowdCost], figure: str) -> float:
    silos, seconds = ([getattr(cost, name) for cost in costs] for name in ("silos", figure))
    return float(np.polyfit(np.log(silos), np.log(seconds), 1)[0])


def main() -> int:
    """Run the bench, print its table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, nargs="+", default=list(SILOS))
    costs = []
    for silos in parser.parse_args().silos:
        with tempfile.TemporaryDirectory(prefix="fedward-") as name:
            costs.append(cost_of(silos, Path(name)))
    figures = []
    for cost in costs:
        of = f"{cost.silos:,} silos"
        states = f"opens right: {cost.right}; with a wrong mask: {'refused' if cost.refused else 'opened'}"
        figures += [
            Criterion(f"{of}, the sum", "right, else refused", states, cost.right and cost.refused),
            Criterion(f"{of}, a note", f"{cost.predicted} bytes", f"{cost.note} bytes", cost.note == cost.predicted),
            Criterion(
                f"{of}, all notes as one silo reads them",
                f"< 1/{SLICED} of {silos_bytes(cost)} kB",
                f"{cost.fetched / 1e3:.0f} kB",
                cost.fetched * SLICED < cost.note * cost.silos,
            ),
            Criterion(
                f"{of}, a silo's CPU",
                "shown",
                f"its own {cost.own:.3f} s; roster {cost.verifying:.2f} s, notes {cost.reading:.2f} s, "
                f"opening {cost.opening:.2f} s",
                met=True,
            ),
        ]
    if len(costs) > 1:
        flat, rest = _exponent(costs, "own"), _exponent(costs, "opening")
        figures += [
            Criterion("a silo's own grows with", f"<= n^{FLAT}", f"n^{flat:.2f}", flat <= FLAT),
            Criterion("opening grows with", f"<= n^{LINEAR}", f"n^{rest:.2f}", rest <= LINEAR),
        ]
    return judge("crowd", figures, [dataclasses.asdict(cost) for cost in costs])


if __name__ == "__main__":
    sys.exit(main())
