"""Studies that asked this hospital and found no data, so that `fedward-silo studies` can name them.

Nothing is decided by it: the agent notes what it was asked, and people read it. A note goes when the study finds data.
What cannot be read counts as no notes, and the agent writes the file anew.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from policies.documents.study import Study
from policies.durable import write_whole
from silo_agent.storage.folders import StateFolder

_MOST = 100
"""Notes that are kept, the latest: the coordinator chooses how many studies it offers."""


@dataclass(frozen=True)
class Waiting:
    """A study without data here."""

    name: str
    digest: str
    asked: str
    """When it asked last, in ISO 8601, UTC."""


def waiting(folder: StateFolder) -> list[Waiting]:
    """The studies that found no data, by when they asked last."""
    try:
        return [Waiting(**one) for one in json.loads(folder.waiting.read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def note(folder: StateFolder, study: Study, now: datetime) -> None:
    """Remember that the study asked and found no data."""
    asked = now.astimezone(UTC).isoformat(timespec="seconds")
    _keep(folder, [*_others(folder, study), Waiting(study.name, study.digest, asked)])


def forget(folder: StateFolder, study: Study) -> None:
    """Forget that the study found no data: it has some now."""
    others = _others(folder, study)
    if len(others) < len(waiting(folder)):
        _keep(folder, others)


def _others(folder: StateFolder, study: Study) -> list[Waiting]:
    return [one for one in waiting(folder) if one.digest != study.digest]


def _keep(folder: StateFolder, notes: list[Waiting]) -> None:
    write_whole(folder.waiting, json.dumps([asdict(one) for one in notes[-_MOST:]], indent=1).encode())
