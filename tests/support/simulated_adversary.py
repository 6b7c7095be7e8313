"""A coordinator without rules, with one silo's keys: it shows silos any roster, lists and voids, and opens what it can.

It drives the agents of `simulated_silo`. Whatever they reveal, it tries to open, with the colluder's own shares and
signatures, as often as it likes. It counts the lists whose sums it has opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import numpy as np

from crypto.errors import CryptoError
from crypto.pki.certificates import Credential
from crypto.secagg.labels import SumLabel
from crypto.secagg.words import NOTHING
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.release import plan
from protos.messages import Member, Place, Signature, Tensor, Void
from protos.steps import Task
from support.local_coordinator import LocalCoordinator
from support.simulated_silo import SimulatedSilo
from support.simulated_witness import Witness, plain_sum

COUNTS = Tensor.COUNTS
SLOT = str(COUNTS)


@dataclass
class Adversary:
    """One study's round 0, attempted as often as it likes."""

    folder: Path
    study: Study
    credentials: Mapping[str, Credential]
    colluder: str
    hub: Credential
    opened: set[tuple[str, ...]] = field(default_factory=set)
    """The lists whose sums it has read."""
    read: dict[tuple[str, int], set[tuple[int, tuple[str, ...]]]] = field(default_factory=dict)
    """Of each honest silo's draws, the sums with it that it has read: attempt and list. A draw that carries all of its
    noise may be sent again with the same others: that is one sum, of attempt 0."""
    attempts: int = 0
    voided: int = 0
    """How often it got enough promises that close what was before."""

    def __post_init__(self) -> None:
        self.driver = LocalCoordinator(self.study)
        self.witness = Witness(self.study)
        self.silos = {}
        for name in self.study.silos:
            self.driver.connect(name)
            peer = next(self.credentials[other] for other in self.study.silos if other != name)
            silo = SimulatedSilo(
                self.folder / name,
                self.credentials[name],
                self.driver,  # type: ignore[arg-type]  # it stands where the coordinator stands
                self.witness,
                cosigners=(self.hub, peer),
            )
            self.silos[name] = silo
            self.driver.agents[name] = silo

    def close(self) -> None:
        for silo in self.silos.values():
            silo.die()

    def attempt(
        self,
        roster: Sequence[str],
        listed: Sequence[str],
        signers: Sequence[str],
        *,
        void: bool = False,
        again: bool = False,
        revealers: Sequence[str] | None = None,
    ) -> None:
        """Another attempt at the round: with this roster, a list of some of it, and signatures of some of the list.

        `again` offers the last place once more. `revealers` are the signers that are asked to reveal; None for all.
        """
        self.attempts += not again or not self.attempts
        names = tuple(sorted({*roster, self.colluder}))
        names_listed = tuple(sorted({*listed, self.colluder}.intersection(names)))
        place, self.driver.keyed = self.driver.place(0, self.attempts), ()
        try:
            members = self.driver.offer(place, names)
            if len(members) < len(names) or len(names_listed) < 2:  # no roster, or no sum
                return
            closed = self._void(place, members) if void and self.attempts > 1 else None
            self.driver.deal(place, members)
            self.driver.exchange(place, members)
            self._gather(place, members, names_listed, closed)
        except (AssertionError, KeyError):
            return  # a silo has refused, and nothing can be summed
        signing = [name for name in names_listed if name in {*signers, self.colluder}]
        if self._opens(place, members, signing, signing if revealers is None else revealers):
            self.opened.add(names_listed)
            whole = plan(self.study).release(0, SLOT).resendable
            for name in set(names_listed) - {self.colluder}:
                draw = (name, self.witness.draws[name, place, SLOT])
                self.read.setdefault(draw, set()).add((0 if whole else place.attempt, names_listed))

    def _void(self, place: Place, members: tuple[Member, ...]) -> Void | None:
        """Ask all to void what was before."""
        signed = {}
        for member in members:
            self.driver.ask(member.silo, self.driver.work(Task.VOID, place, members, COUNTS))
            said = self.driver.said(member.silo)
            if said.task is Task.VOID and said.signature:
                signed[member.silo] = said.signature
        promises = tuple(Signature(name, signature) for name, signature in sorted(signed.items()))
        pems = tuple(member.certificate_pem for member in members if member.silo in signed)
        self.voided += len(signed) >= quorum.needed(self.study)
        return Void(place.attempt - 1, promises, pems) if signed else None

    def _gather(self, place: Place, members: tuple[Member, ...], listed: tuple[str, ...], closed: Void | None) -> None:
        driver = self.driver
        driver.participants = driver.survivors = listed
        for name in listed:
            driver.ask(name, replace(driver.work(Task.CONTRIBUTE, place, members, COUNTS), void=closed))
        driver.add(place, COUNTS, [driver.clients[name].uploads[place, SLOT] for name in listed])

    def _opens(
        self, place: Place, members: tuple[Member, ...], signers: Sequence[str], revealers: Sequence[str]
    ) -> bool:
        """Have some sign, some of these reveal, and try to read the sum with what comes of it."""
        driver, honest = self.driver, [name for name in signers if name != self.colluder]
        agent = self.silos[self.colluder].agent
        assert agent is not None
        attempt = agent._running[place.study].attempt(driver.work(Task.OPEN, place, members, COUNTS), place)
        mine, lie = attempt.membership, attempt.survivor_list
        driver.signatures = {self.colluder: self.credentials[self.colluder].sign(lie.to_sign())}
        for name in honest:
            driver.ask(name, driver.work(Task.SIGN, place, members, COUNTS))
            if driver.said(name).signature:
                driver.signatures[name] = driver.said(name).signature
        notes = {self.colluder: mine.reveal(attempt.bundles, lie, lie.names, NOTHING)}
        for name in (name for name in honest if name in revealers):
            driver.ask(name, driver.work(Task.REVEAL, place, members, COUNTS))
            if note := driver.clients[name].uploads.get((place, f"note-reveal-{SLOT}")):
                notes[name] = note
        # Who follows no rule waits for no T reveals, where fewer shares give a secret.
        needed = 1 if mine.roster.circle.sparse else attempt.threshold
        label = SumLabel(place.study, mine.roster.digest, "", 0, place.attempt, SLOT)
        values, content = plan(self.study).release(0, SLOT).values, driver.content[place, f"sum-{SLOT}", ""]
        try:
            # Together with the coordinator it reads all notes whole.
            whole = {name: driver.content[place, "note-shares", name] for name in lie.names}
            bundles = mine.read_shares(place, attempt.tensors, attempt.threshold, whole)
            unmasking = mine.unmasking(notes, bundles, lie, participants=lie.names, threshold=needed)
            total = attempt.sealer.open("ckks", BytesIO(content), values, label, unmasking)
        except CryptoError:
            return False
        assert np.array_equal(total, plain_sum(self.study, lie.names, 0, COUNTS))
        return True
