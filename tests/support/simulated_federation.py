"""A coordinator and its silos in one process, and a witness: what a study of the whole protocol is run on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.study import LIVE
from crypto.pki.certificates import Credential
from policies.documents.study import Study
from support.certificates import Authority, load
from support.simulated_coordinator import SimulatedCoordinator
from support.simulated_silo import SimulatedSilo
from support.simulated_witness import Witness
from support.studies import tiny_study

NAMES = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "oak", "pine", "yew")
STEPS = 400
"""More than a phase ever takes."""


def simulated_study(silos: Sequence[str], min_silos: int, sealing: str, colluders: int = 1, **changes: Any) -> Study:
    """Three rounds with vectors of a few dozen values: every kind of sum there is."""
    privacy = {"mode": "local", "colluders": colluders}
    fields = {"encoder": {"sealing": sealing}, "privacy": privacy, **changes}
    return tiny_study(name="simulated", silos=list(silos), min_silos=min_silos, **fields)


def enrolled(authority: Authority, names: Sequence[str] = NAMES) -> dict[str, Credential]:
    return {name: load(authority.credential("silo", name)) for name in names}


class SimulatedFederation(AbstractContextManager["SimulatedFederation"]):
    """All parties, and their clock."""

    def __init__(
        self,
        folder: Path,
        study: Study,
        credentials: Mapping[str, Credential],
        *,
        coordinator: SimulatedCoordinator | None = None,
        witness: Witness | None = None,
        hub: Credential | None = None,
    ) -> None:
        """With a `hub`, which cosigns, the silos have ledgers and the real gate."""
        peers = dict(zip(study.silos, (*study.silos[1:], study.silos[0]), strict=True))
        self.study, self._folder, self._credentials = study, folder, credentials
        self.witness = witness or Witness(study)
        self.coordinator = coordinator or SimulatedCoordinator(study)
        self.silos = {
            name: SimulatedSilo(
                folder / name,
                credentials[name],
                self.coordinator,
                self.witness,
                cosigners=() if hub is None else (hub, credentials[peers[name]]),
            )
            for name in study.silos
        }

    def fork(self, folder: Path) -> SimulatedFederation:
        """Another one that stands where this one stands, and whose silos have just begun again."""
        shutil.copytree(self._folder, folder)
        coordinator, witness = self.coordinator.fork(), deepcopy(self.witness)
        return SimulatedFederation(folder, self.study, self._credentials, coordinator=coordinator, witness=witness)

    def __exit__(self, *_: object) -> None:
        for silo in self.silos.values():
            silo.die()

    @property
    def running(self) -> bool:
        return self.coordinator.progress.life in LIVE

    @property
    def idle(self) -> bool:
        """Nobody who is up has anything to do: time must pass."""
        waits = all(self.coordinator.work(name) is None or silo.quiet for name, silo in self.silos.items() if silo.up)
        return waits and not self.coordinator.adding

    def turn(self) -> None:
        """Everybody who is up asks for work and does it, the coordinator adds, and late ones are not waited for."""
        for silo in self.silos.values():
            if silo.up:
                silo.step()
        self.coordinator.add()
        if self.idle and self.running:
            self.coordinator.pass_deadline()

    def run(self, round_number: int) -> None:
        """Let everybody work until this round is committed, or the study is over."""
        for _ in range(STEPS):
            if not self.running or self.coordinator.round.place.round > round_number:
                return
            self.turn()
        pytest.fail(f"it comes to no end: {self.coordinator.round}")
