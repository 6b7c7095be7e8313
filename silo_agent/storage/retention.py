"""The policy's retention: removes the private and secret files of a study some days after its end.

Guarantees: files of a running study are not touched. The start of a removal is durable before the first file is
removed. From then on nothing private of that study is used. After a crash, the next look continues the removal. The
files that stay are listed (`folders.StudyFolder.stays`), so that a new kind of file is removed and not forgotten. They
are files that all silos of the study hold and the ledger has charged, and the training log, which holds no patient and
shows that the ledger is right (docs/design/threat-model.md, "Invariants" 1). Labels, releases and survivor lists stay
as used up (`State.begin_removal`).

The days are the machine's, in UTC, and a clock can be wrong. Files that are removed too early cannot be restored, but
files that are kept a day longer can still be removed. So a day is trusted only when a later day confirms it (`weigh`).
A wrong clock that is corrected before the next look does no harm. Left to others: copies (backups, exports,
predictions), traces of removed files on the disk (encrypt the disk), and studies whose end nobody reports.
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

from silo_agent.metrics import AgentMetrics
from silo_agent.storage.durable import sync_folder
from silo_agent.storage.errors import StateFileError
from silo_agent.storage.state import Ending, State

log = structlog.get_logger()
SECONDS: Final = 24 * 3600.0
"""Seconds between two looks while the agent runs."""


def today() -> date:
    """Return the machine's day, in UTC."""
    return datetime.now(UTC).date()


def weigh(ending: Ending, day: date, days: int) -> Ending:
    """Return what is known about an ending after a look at the clock. If `removed` is set, the removal must be done.

    Files are kept for `days` full days after the day on which the study ended. One look notices that these days are
    over, and a look on a later day acts on it. If the end lies in the future, either the clock was wrong when the end
    was written, or it is wrong now. If a later day confirms it, the day on which it was noticed replaces the end, so
    that files are not kept for ever.
    """
    ended = ending.ended or day
    ahead, over = day < ended, (day - ended).days >= days
    if ending.removed is not None:
        return ending
    if not (ahead or over):
        return replace(ending, ended=ended, noticed=None)
    seen = ending.noticed
    # A notice from before the end was about an end in the future. It confirms nothing else.
    if seen is None or seen >= day or (seen < ended) != ahead:
        return replace(ending, ended=ended, noticed=day)
    return replace(ending, ended=seen, noticed=None) if ahead else replace(ending, removed=day)


class Retention:
    """Looks at the studies that are over, and removes the files whose days are over."""

    def __init__(self, state: State, days: int, metrics: AgentMetrics, clock: Callable[[], date] = today) -> None:
        self._state, self._days, self._metrics, self._clock = state, days, metrics, clock

    def look(self) -> None:
        """Look at all studies once. Files that cannot be removed are logged and tried again at the next look."""
        try:
            for ending in self._state.endings():
                self._weigh(ending)
        except (SQLAlchemyError, StateFileError) as fault:
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
            what = "ended on a future day; fix the clock" if ahead else "kept long enough; removed from tomorrow on"
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
        """Yield everything that must be removed; a folder comes after its content."""
        home, *boxes = self._state.folders(study)
        for box in boxes:
            yield from _inside(box)
            if box.is_dir():
                yield box
        for path in _inside(home):
            if not self._state.files.study(study).stays(path):
                yield path


def _inside(folder: Path) -> list[Path]:
    """Return everything in a folder, deepest first. Links are not followed."""
    return [Path(root) / name for root, folders, files in os.walk(folder, topdown=False) for name in (*files, *folders)]


class Retaining:
    """Looks once a day while the agent runs."""

    def __init__(self, retention: Retention, stop: threading.Event, seconds: float = SECONDS) -> None:
        self._retention, self._stop, self._seconds = retention, stop, seconds
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        """Begin. The first look is a day away."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the current look is done, after the agent was asked to stop."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._retention.look()
