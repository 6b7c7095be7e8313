"""The studies of one coordinator: the state of each, its document, and which of them somebody means.

Guarantees: states are values. The engine alone replaces one by the next, under the lock that is shared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from common.digests import LEAST_DIGITS, means
from coordinator.core import study as studies
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import Round
from coordinator.core.study import Progress, Script
from coordinator.errors import CoordinatorError
from coordinator.storage.store import Store
from policies.documents.study import Study, parse_study
from protos.messages import Place


class UnknownStudyError(CoordinatorError):
    """There is no study with that digest or name."""


class StudyCatalogue:
    """All studies, in the order of their creation."""

    def __init__(self, store: Store, lock: RLock, progress: dict[str, Progress]) -> None:
        """`progress`: the state of each study by its digest."""
        self._store, self._lock = store, lock
        self.progress = progress
        self._documents: dict[str, Study] = {}

    def add(self, study: Study, progress: Progress) -> None:
        """Take up a study that was just created."""
        self.progress[study.digest] = progress

    def forget(self, study: str) -> None:
        """Leave out a study that was just deleted."""
        del self.progress[study]
        self._documents.pop(study, None)

    def of(self, study: str) -> Progress:
        """Return the state of a study. Raises `UnknownStudyError`."""
        progress = self.progress.get(study)
        if progress is None:
            raise UnknownStudyError(study)
        return progress

    def document(self, study: str) -> Study:
        """Return a study's document. Raises `UnknownStudyError`."""
        with self._lock:
            if study not in self._documents:
                canonical = self._store.canonical(study)
                if canonical is None:
                    raise UnknownStudyError(study)
                self._documents[study] = parse_study(canonical, study)
            return self._documents[study]

    def round(self, place: Place) -> Round:
        """Return the current attempt. Raises `UnknownStudyError`, and `WrongPhaseError` if `place` is another one."""
        progress = self.of(place.study)
        round_ = progress.round
        if round_ is None or round_.place != place or progress.life not in studies.LIVE:
            msg = f"round {place.round}, attempt {place.attempt} is not the current one"
            raise WrongPhaseError(msg)
        return round_

    def live(self) -> list[Progress]:
        """Return the states of the studies under way, and wait for nobody."""
        return [progress for progress in list(self.progress.values()) if progress.life in studies.LIVE]

    def not_over(self) -> list[Study]:
        """Return the studies that have not ended, also those that were not started."""
        with self._lock:
            return [self.document(one.script.study) for one in self.progress.values() if one.life not in studies.OVER]

    def studies_of(self, silo: str) -> tuple[list[Study], list[Study]]:
        """Return the studies that invite a silo: those that run, and those that have ended."""
        with self._lock:
            mine = [one for one in self.progress.values() if silo in one.script.silos]
            running = [self.document(one.script.study) for one in mine if one.life in studies.LIVE]
            return running, [self.document(one.script.study) for one in mine if one.life in studies.OVER]

    def named(self, name: str) -> list[tuple[Progress, int]]:
        """Return the studies of this name, in the order of their creation, with their revisions."""
        with self._lock:
            found = [one for one in self.progress.values() if one.script.name == name]
            return [(one, self.document(one.script.study).revision) for one in found]

    def find(self, wanted: str, shown: Callable[[str], bool]) -> Script:
        """Return the study with this name, or whose digest begins so with at least twelve digits.

        Of several revisions of one name it is the newest. Studies of which `shown` says no are not there. Raises
        `UnknownStudyError`, also if several match.
        """
        with self._lock:
            scripts = [one.script for one in self.progress.values() if shown(one.script.study)]
        found = [one for one in scripts if means(wanted, one.name, one.study)]
        if len(found) == 1 or (found and all(one.name == wanted for one in found)):
            return found[-1]
        digits = f"at least {LEAST_DIGITS} digits of the digest"
        msg = f"{len(found)} studies match {wanted!r}; give the whole name, or {digits}"
        raise UnknownStudyError(msg)
