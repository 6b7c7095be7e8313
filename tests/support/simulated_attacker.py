"""The strongest attacker of docs/design/threat-model.md, "Threats": a coordinator that kept everything, and one silo
that gives it its keys.

It has the CKKS key, the group and check keys, the colluder's pair secrets and shares, every byte that ever reached the
coordinator, and whatever the colluder can open of it. It takes off an upload all that it knows, decrypts what is left,
and compares. For the proof that it would succeed there are masks some of whose streams are missing: they exist here
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tenseal import sealapi

from coordinator.storage.spool import SUM_FILE
from crypto.entropy import SystemEntropy
from crypto.rings import ckks_secret, seal_format
from crypto.rings.ckks_public import DEGREE, PRIME, SCALE
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import IntegerRing, Kind, ckks_public, ring_of
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks, Term, Unmasking, _group_stream, _own_stream, _pair_stream, apply
from crypto.secagg.survivors import SurvivorList, threshold
from crypto.secagg.unmasking import notes_digest
from policies.plan.release import plan
from policies.plan.release import plan as plan_of
from protos.messages import Place, Tensor, Work, note_slot
from protos.steps import Note, Task
from silo_agent.protocol.session import Session
from support.contents import read_frames
from support.simulated_federation import SimulatedFederation

Raw = NDArray[np.float64]
"""Values before any rounding, which only a test may see."""


@dataclass(frozen=True)
class WeakMasks(Masks):
    """Masks of a build without protection: the streams with these silos, and its own by its own name, are zero."""

    zero: frozenset[str] = frozenset()

    def terms(self, label: SumLabel, kind: Kind) -> list[Term]:
        named = zip([*self.pairs, self.me, "the group"], super().terms(label, kind), strict=False)
        return [term for name, term in named if name not in self.zero]


class Attacker:
    """Takes down what there is at the moment: later erasures take nothing from it."""

    def __init__(self, federation: SimulatedFederation, colluder: str) -> None:
        self.study, self.witness, self.colluder = federation.study, federation.witness, colluder
        self._seen, self._received = dict(federation.coordinator.seen), list(federation.coordinator.received)
        self._heard = list(federation.silos[colluder].heard)
        self.session = session_of(federation, colluder)
        self.keys = self.session.within(self._heard[-1].roster).keys
        self.ckks = CkksKey.from_bytes(self.keys.ckks)

    # --- what it has ---------------------------------------------------------------------------------------------
    def upload(self, silo: str, tensor: Tensor) -> bytes:
        """Also one that came too late."""
        return next(data for header, data, *_ in self._received if (header.silo, header.slot) == (silo, tensor))

    def work(self, tensor: Tensor) -> Work:
        """What the colluder was told when the sum was opened: roster, participants, survivors."""
        return next(work for work in reversed(self._heard) if (work.task, work.tensor) == (Task.OPEN, tensor))

    def bundles(self, tensor: Tensor) -> dict[str, ShareBundle]:
        """What all have shared, as far as the colluder can open it."""
        work, place = self.work(tensor), self._place(tensor)
        notes = {name: self._seen[place, note_slot(Note.SHARES, None), name] for name in work.participants}
        tensors = plan_of(self.study).tensors(place.round)
        return self.session.within(work.roster).read_shares(place, tensors, self._threshold(work), notes)

    def unmasking(self, tensor: Tensor) -> Unmasking:
        """What the survivors have revealed to each other, the colluder among them."""
        work, place = self.work(tensor), self._place(tensor)
        slot = note_slot(Note.REVEAL, tensor)
        return self.session.within(work.roster).unmasking(
            {name: self._seen[place, slot, name] for name in work.survivors if (place, slot, name) in self._seen},
            self.bundles(tensor),
            SurvivorList(
                self.session.within(work.roster).attempt(place),
                tensor,
                work.survivors,
                notes_digest(self.bundles(tensor), work.participants),
            ),
            participants=work.participants,
            threshold=self._threshold(work),
        )

    def masked_sum(self, tensor: Tensor) -> list[NDArray[np.unsignedinteger]]:
        """The coordinator's own, by frames."""
        return read_frames(plan(self.study).ring(tensor), self._seen[self._place(tensor), tensor, SUM_FILE])

    def bare_sum(self, tensor: Tensor) -> list[NDArray[np.unsignedinteger]]:
        """The same without masks: what every silo decrypts."""
        kind, frames = plan(self.study).ring(tensor), self.masked_sum(tensor)
        terms = self.unmasking(tensor).terms(self.witness.labels[self._place(tensor), tensor], kind)
        for words in frames:
            apply(ring_of(kind), words, terms)
        return frames

    # --- what it does --------------------------------------------------------------------------------------------
    def uncovered(self, silo: str, tensor: Tensor, content: bytes) -> Raw:
        """An upload without all that the attacker can take off it, decrypted."""
        kind, label = plan(self.study).ring(tensor), self.witness.labels[self._place(tensor), tensor]
        known = [(not adds, stream) for adds, stream in self._known(silo, tensor)]
        ring, plain = ring_of(kind), []
        for words in read_frames(kind, content):
            apply(ring, words, known)
            if isinstance(ring, IntegerRing):
                plain.append(words.view(f"<i{ring.word.itemsize}").astype(np.float64))
            else:
                plain.append(raw_slots(self.ckks, words))
        return np.concatenate(plain)[: plan(self.study).release(label.round, tensor).values]

    def _known(self, silo: str, tensor: Tensor) -> Iterator[Term]:
        work, place, revealed = self.work(tensor), self._place(tensor), self.unmasking(tensor)
        kind, label = plan(self.study).ring(tensor), self.witness.labels[place, tensor]
        # The seeds with the colluder, and those that a dropped silo's attempt key has opened.
        mine = self.session.within(work.roster).masks(place, tensor, work.participants).pairs
        seeds = {self.colluder: mine[silo], **revealed.dropped.get(silo, {})}
        seeds |= {gone: pairs[silo] for gone, pairs in revealed.dropped.items() if gone != silo}
        yield from ((silo < other, _pair_stream(seed, label, kind)) for other, seed in seeds.items())
        if silo in revealed.own:
            yield True, _own_stream(revealed.own[silo], label, kind)
        if kind != "ckks":
            yield True, _group_stream(self.keys.group, label, kind, silo)

    def _place(self, tensor: Tensor) -> Place:
        place = self.work(tensor).place
        assert place is not None
        return place

    def _threshold(self, work: Work) -> int:
        return threshold(len(self.study.silos), self.study.privacy.colluders, self.study.min_silos)


def session_of(federation: SimulatedFederation, silo: str) -> Session:
    """A silo's secrets as they lie on its disk now."""
    party, study = federation.silos[silo], federation.study.digest
    return Session.open(study, party.credential, SystemEntropy(), party.folder / "studies" / study, begun=True)


def raw_slots(key: CkksKey, residues: NDArray[np.uint64]) -> Raw:
    """Decrypt without rounding or refusing anything."""
    ciphertext, plaintext = sealapi.Ciphertext(), sealapi.Plaintext()
    ckks_secret._load(ciphertext, seal_format.write_ciphertext(residues))
    key._decryptor.decrypt(ciphertext, plaintext)
    return np.array(key._encoder.decode_complex(plaintext)).view(np.float64)


def polynomial(key: CkksKey, slots: Raw) -> list[int]:
    """The residues, in NTT form, of the polynomial that these 2048 slots encode to. Needs no secret."""
    plaintext = sealapi.Plaintext()
    key._encoder.encode(slots.view(np.complex128).tolist(), SCALE, plaintext)
    return [plaintext.data(at) for at in range(DEGREE)]


def solved_key(residues: NDArray[np.uint64], plain: list[int]) -> bytes:
    """Solve c0 + c1 s = m for s, one linear equation for each residue: the attack of Li and Micciancio (2021)."""
    c0, c1 = residues[:DEGREE].tolist(), residues[DEGREE:].tolist()
    secret = [(m - a) * pow(b, -1, PRIME) % PRIME for m, a, b in zip(plain, c0, c1, strict=True)]
    return ckks_public.pack(np.array(secret, np.uint64))
