"""What this silo knows of the studies that it shares with another silo, to judge what that silo's ledger was charged.

It reads the agent's state alone. A study that cannot be read, or that breaks a bound, explains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.documents.study import Study, bounds_broken, parse_study
from policies.ledger.judging import Summed
from policies.refusals import Refused
from silo_agent.storage.state import State


class KnownStudies:
    """The studies that have begun here."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._read: dict[str, Study | None] = {}

    def studies_of(self, silo: str) -> tuple[list[Study], list[Study]]:
        """Those that invite a silo: those that run here, and those that are over."""
        running: list[Study] = []
        over: list[Study] = []
        for digest, _, why in self._state.studies():
            study = self._study(digest)
            if study is not None and silo in study.silos:
                (over if why else running).append(study)
        return running, over

    def summed(self, silo: str) -> Iterator[Summed]:
        """That silo's releases which are in sums whose lists this silo has signed and that were not voided."""
        for place, tensor in self._state.promises.lists_of(silo):
            yield Summed(place.study, place.round, place.attempt, str(tensor))

    def _study(self, digest: str) -> Study | None:
        if digest not in self._read:
            self._read[digest] = self._parsed(digest)
        return self._read[digest]

    def _parsed(self, digest: str) -> Study | None:
        canonical = self._state.canonical(digest)
        try:
            study = None if canonical is None else parse_study(canonical, digest)
        except (ValueError, Refused):
            return None
        return None if study is None or bounds_broken(study) else study
