"""How far a study is, and when it is estimated to end. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protos.status import StudyStatus


def per_cent(one: StudyStatus) -> int:
    """How much of a study is done, by its rounds."""
    if one.state == "finished":
        return 100
    return int(100 * one.round / (one.rounds + 1))


def ends(one: StudyStatus) -> float | None:
    """When a study is estimated to end, in seconds since the epoch: rounds to come last as long as those that ended.

    The estimate counts the attempts that were lost, too. None before the first round has ended, and while nothing runs.
    """
    spent: defaultdict[int, float] = defaultdict(float)
    for phase in one.times:
        spent[phase.round] += phase.seconds
    done = [seconds for number, seconds in spent.items() if number < one.round]
    if one.state != "running" or not done or not one.since:
        return None
    mean = sum(done) / len(done)
    begun = one.since - spent.get(one.round, 0.0)
    return begun + mean * (one.rounds + 1 - one.round)
