"""What one attempt at a round takes on the spool's disk, at most: known before a study begins.

A study whose rounds do not fit would stop in the middle of one, with silos that have been charged.
"""

from __future__ import annotations

from coordinator.errors import CoordinatorError
from crypto.rings.rings import ring_of
from crypto.secagg.layout import sealed_values
from policies.documents.study import Study
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.steps import MADE_BY_ACTOR, Note

_GIGA = 1e9


class LittleRoomError(CoordinatorError):
    """The disk has not the room that a round of a study takes. The message says how much that is."""


def most_bytes(study: Study) -> int:
    """Return the bytes of the largest round: all contributions, their sums, and notes as long as they may be."""
    return max(_of_round(study, number) for number in range(plan(study).last + 1))


def require_room(study: Study, free: int) -> None:
    """Raise `LittleRoomError` if `free` bytes are too few for a round of the study."""
    needed = most_bytes(study)
    if needed > free:
        msg = (
            f"a round of {study.name} takes up to {needed / _GIGA:.2f} GB of the disk that holds the spool, and"
            f" {free / _GIGA:.2f} GB are free; make room there, or name a larger disk's folder as `data` in"
            " coordinator.yaml, then create the study again"
        )
        raise LittleRoomError(msg)


def _of_round(study: Study, number: int) -> int:
    releases, silos = plan(study).round(number), len(study.silos)
    sealed = sum(ring_of(one.ring).content_size(sealed_values(one.values, silos)) for one in releases)
    of_each = sum(note_limit(study, number, note) for note in (Note.GREETING, Note.SHARES))
    of_each += len(releases) * note_limit(study, number, Note.REVEAL)
    of_one = sum(note_limit(study, number, note) for note in MADE_BY_ACTOR)
    return (silos + 1) * sealed + silos * of_each + of_one
