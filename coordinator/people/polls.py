"""Polls: an author asks the silos of a study that is not created whether they would take part. Nothing is stored.

Guarantees: a poll burns no name and starts nothing. A silo answers by one of four words (`VERDICTS`) and nothing more,
and sees no other silo's answer. Open polls are bounded in number and time, and by author and day, and are gone with the
process; what a silo lets an author know is bounded at the silo (`silo_agent.oversight.polling`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from coordinator.core.quotas import QuotaError
from policies.documents.study import Study
from protos.messages import StudyText

SECONDS: Final = 600.0
"""How long a poll is open."""
MOST: Final = 64
"""Open polls in all."""
_DAY: Final = 86_400.0


@dataclass(frozen=True)
class _Poll:
    text: StudyText
    silos: tuple[str, ...]
    since: float
    answers: dict[str, str] = field(default_factory=dict)


class Polls:
    """The open polls of one coordinator."""

    def __init__(self, a_day: int, clock: Callable[[], float]) -> None:
        """`a_day`: of one certificate; `clock` gives seconds since the epoch."""
        self._a_day, self._clock = a_day, clock
        self._open: dict[str, _Poll] = {}
        self._asked: dict[str, list[float]] = {}
        self._guard = threading.Lock()

    def ask(self, study: Study, text: StudyText, who: str) -> tuple[dict[str, str], bool]:
        """Return the answers so far, empty for who has not answered, and whether the poll began now.

        The same study again asks nobody twice while it is open. Raises `QuotaError`.
        """
        with self._guard:
            now = self._clock()
            self._open = {name: poll for name, poll in self._open.items() if now - poll.since < SECONDS}
            poll, begins = self._open.get(study.digest), False
            if poll is None:
                self._require_calm(who, now)
                poll, begins = _Poll(text, study.silos, now), True
                self._open[study.digest] = poll
                self._asked[who].append(now)
            return {silo: poll.answers.get(silo, "") for silo in poll.silos}, begins

    def next(self, silo: str) -> StudyText | None:
        """Return the oldest open poll that asks a silo, and that it has not answered; None if there is none."""
        with self._guard:
            now = self._clock()
            mine = (poll for poll in self._open.values() if silo in poll.silos and silo not in poll.answers)
            return next((poll.text for poll in mine if now - poll.since < SECONDS), None)

    def answer(self, silo: str, study: str, verdict: str) -> None:
        """Take a silo's answer. An answer to no open poll is dropped; the first one counts."""
        with self._guard:
            poll = self._open.get(study)
            if poll is not None and silo in poll.silos:
                poll.answers.setdefault(silo, verdict)

    def _require_calm(self, who: str, now: float) -> None:
        self._asked = {
            one: kept for one, times in self._asked.items() if (kept := [t for t in times if now - t < _DAY])
        }
        asked = self._asked.setdefault(who, [])
        if len(asked) >= self._a_day:
            msg = (
                f"this certificate asked {len(asked)} polls within 24 hours; quotas.polls_a_day is {self._a_day}: wait"
            )
            raise QuotaError(msg)
        if len(self._open) >= MOST:
            msg = f"{MOST} polls are open; each ends after {SECONDS / 60:.0f} minutes: wait"
            raise QuotaError(msg)
