"""The policy's retention: what is private or secret of a study that is over is removed when its days are up.

Guarantees: nothing of a study that still runs is touched; that a removal has begun is durable before the first file
goes, nothing private of that study is used from then on, and a crash on the way leaves a state from which the next look
goes on.
What stays is listed (`folders.StudyFolder.stays`), so that a new kind of file is removed and not forgotten: what all
silos of the study hold and the ledger has charged, and the training log, which holds no patient and shows that the
ledger is right (threat-model.md, invariant 1). Labels, releases and survivor lists stay as used up
(`State.begin_removal`).

The days are the machine's, in UTC, and a clock can be wrong. What is lost early cannot be brought back, what is kept a
day longer can still be removed: so the clock's word is taken only when a later day confirms it (`weigh`). A clock that
is put right before the next look does no harm. Left to others: copies (backups, exports, predictions), what a removed
file leaves on the medium (encrypt the disk), and a study whose end nobody tells.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy.exc import SQLAlchemyError

from silo_agent.metrics import Metrics
from silo_agent.storage.durable import sync_folder
from silo_agent.storage.state import Ending, State

log = structlog.get_logger()
SECONDS: Final = 24 * 3600.0
"""Between two looks while the agent runs."""


def today() -> date:
    """The machine's day, in UTC."""
    return datetime.now(UTC).date()


def weigh(ending: Ending, day: date, days: int) -> Ending:
    """What is known of an ending after a look at the clock. Where `removed` is set, the removal is to be done.

    `days` full days are kept after the one on which the study ended. That they are over is noticed on one day and acted
    on upon a later one. An end that lies ahead was written by a clock that was wrong, unless today's is: confirmed by a
    later day, the day on which it was noticed takes its place, so that it is not kept for ever.
    """
    ended = ending.ended or day
    ahead, over = day < ended, (day - ended).days >= days
    if ending.removed is not None:
        return ending
    if not (ahead or over):
        return replace(ending, ended=ended, noticed=None)
    seen = ending.noticed
    # A notice before the end was of an end that lay ahead; it confirms nothing else.
    if seen is None or seen >= day or (seen < ended) != ahead:
        return replace(ending, ended=ended, noticed=day)
    return replace(ending, ended=seen, noticed=None) if ahead else replace(ending, removed=day)


class Retention:
    """Looks at the studies that are over, and removes what has to go."""

    def __init__(self, state: State, days: int, metrics: Metrics, clock: Callable[[], date] = today) -> None:
        self._state, self._days, self._metrics, self._clock = state, days, metrics, clock

    def look(self) -> None:
        """Once over all studies. What cannot be removed is logged and tried again at the next look."""
        try:
            for ending in self._state.endings():
                self._weigh(ending)
        except SQLAlchemyError as fault:
            log.error("retention: state.sqlite3 cannot be used", fault=type(fault).__name__)  # noqa: TRY400

    def _weigh(self, before: Ending) -> None:
        ending = weigh(before, self._clock(), self._days)
        if ending.removed is not None and before.removed is None:
            self._state.begin_removal(ending)
            self._metrics.removals.inc()
        elif ending != before:
            self._state.keep_ending(ending)
        if ending.removed is not None:
            self._remove(ending.study)
        elif ending.noticed is not None and ending.ended is not None:
            ahead = ending.noticed < ending.ended
            what = "ended on a day to come; mend the clock" if ahead else "kept long enough; removed from tomorrow on"
            log.warning("retention", study=ending.study[:12], ended=str(ending.ended), days=self._days, what=what)

    def _remove(self, study: str) -> None:
        removed: list[str] = []
        for path in self._private(study):
            try:
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                else:
                    path.unlink()
                sync_folder(path.parent)
            except OSError as fault:
                log.error("retention: not removed; mend its rights", why=str(fault))  # noqa: TRY400
            else:
                removed.append(str(path.relative_to(self._state.folder)))
        if removed:
            log.info("retention: removed", study=study[:12], names=removed)

    def _private(self, study: str) -> Iterator[Path]:
        """All that must go, folders after what lies in them."""
        home, *boxes = self._state.folders(study)
        for box in boxes:
            yield from _inside(box)
            if box.is_dir():
                yield box
        for path in _inside(home):
            if not self._state.files.study(study).stays(path):
                yield path


def _inside(folder: Path) -> list[Path]:
    """What lies in a folder, deepest first; links are not followed."""
    return [Path(root) / name for root, folders, files in os.walk(folder, topdown=False) for name in (*files, *folders)]


class Retaining:
    """Looks once a day while the agent runs."""

    def __init__(self, retention: Retention, stop: threading.Event, seconds: float = SECONDS) -> None:
        self._retention, self._stop, self._seconds = retention, stop, seconds
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin; the first look is a day away."""
        self._thread.start()

    def join(self) -> None:
        """Wait until what is under way is done, once the agent was asked to stop."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._retention.look()
