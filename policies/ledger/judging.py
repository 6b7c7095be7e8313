"""What a cosigner believes of a ledger: which remembered checkpoint still binds it, and which charges it can explain.

A key that is stolen for minutes can state any head. So a cosigner keeps every checkpoint with its own time of receipt,
and believes no other clock. The root revokes a stolen key as of the theft, and then what came under that key from that
time on binds nobody (`standing`). That must not refill a budget: whoever says that its key was stolen "as of last
year" would put back last year's ledger. So what is forgiven are only costs that are in no sum: a ledger must have been
charged for every release of a signed list of survivors that names its silo (`require_summed`), under whichever key.

Until a theft is known, a thief can state no more than a silo could have charged: a cosigner signs only charges that the
studies of that silo, which it knows, can have made, or that another's evidence explains (`require_explained`).

Pure. The coordinator's cosigning.py and the agent's witnessing.py keep the memory and know the studies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

from policies.accounting import totals
from policies.errors import CosignError
from policies.ledger.cosign import Checkpoint
from policies.plan.cost import Cost
from policies.plan.release import plan

if TYPE_CHECKING:
    from policies.documents.study import Study

RECENT: Final = 64
"""So many of the newest checkpoints of a ledger are all remembered."""
OLDEST: Final = 400
"""So many in all: of the older ones the last of each day."""


@dataclass(frozen=True, slots=True)
class SeenCheckpoint:
    """A checkpoint that a cosigner signed."""

    checkpoint: Checkpoint
    received: datetime | None
    """When it came, by the cosigner's own clock, aware; None if version 0.6 kept it, without a time."""
    stolen: datetime | None = None
    """From when on the root has revoked the key that signed it; None if it has not."""

    @property
    def binds(self) -> bool:
        """Whether it came before its key was stolen."""
        return self.stolen is None or self.received is None or self.received < self.stolen


@dataclass(frozen=True, slots=True)
class Summed:
    """A release that is in a sum which may have been opened."""

    study: str
    """Digest of the study."""
    round: int
    attempt: int
    tensor: str


def standing(history: Iterable[SeenCheckpoint]) -> SeenCheckpoint | None:
    """The newest checkpoint that still binds. `history`: oldest first."""
    binding = [one for one in history if one.binds]
    return binding[-1] if binding else None


def kept(times: Sequence[datetime | None]) -> list[int]:
    """The places of the checkpoints that stay in the memory, of all by their times of receipt, oldest first."""
    recent = max(0, len(times) - RECENT)
    days: dict[date | None, int] = {}
    for place, at in enumerate(times[:recent]):
        days[None if at is None else at.date()] = place
    return [*sorted(days.values())[-(OLDEST - RECENT) :], *range(recent, len(times))]


def chargeable(running: Iterable[Study], ended: Iterable[Study] = ()) -> tuple[Cost, ...]:
    """The most that these studies can have charged one silo.

    Of those that run it is every release of every round, in every attempt. Of those that have ended it is as much of
    each kind as the round that has most of it: whatever was charged before was cosigned, and a silo may have crashed
    after its last charge.
    """
    charged = [cost for study in running for costs in _rounds(study) for cost in costs]
    return totals.merged([*charged, *(cost for study in ended for cost in totals.largest(_rounds(study)))])


def _rounds(study: Study) -> list[list[Cost]]:
    """What each round costs in all its attempts."""
    planned = plan(study)
    return [planned.repeated_costs(number, study.max_attempts) for number in range(planned.last + 1)]


def cost_of(studies: Iterable[Study], summed: Iterable[Summed]) -> tuple[Cost, ...]:
    """What these releases cost. One that is sent again under another list is drawn and charged once.

    Releases of studies that are not among `studies` are left out.
    """
    plans = {study.digest: plan(study) for study in studies}
    charged: dict[tuple[str, int, str, int], Cost] = {}
    for one in summed:
        planned = plans.get(one.study)
        if planned is not None and one.round <= planned.last:
            release = planned.release(one.round, one.tensor)
            draw = 0 if release.resendable else one.attempt
            charged[one.study, one.round, one.tensor, draw] = release.cost
    return totals.merged(charged.values())


def require_believable(
    offered: Checkpoint,
    last: Checkpoint | None,
    studies: tuple[Iterable[Study], Iterable[Study]],
    summed: Callable[[], Iterable[Summed]],
    *,
    forgiven: bool,
    evidence: Callable[[], Iterable[Checkpoint]],
    known: Iterable[Checkpoint],
) -> None:
    """Return if a cosigner that knows these studies may sign a ledger's checkpoint; `cosign.advance` comes before.

    Args:
        offered: contains `last`.
        last: the cosigner's own that binds; None if it has none.
        studies: those that invite the silo: those that run, and those that have ended.
        summed: gives the silo's releases that are in signed lists. It is asked only if something was `forgiven`.
        forgiven: whether the cosigner remembers a later checkpoint than `last`, which does not bind any more.
        evidence: gives it as in `require_explained`. It is asked only if there is a `last`: evidence under a root that
            is trusted no more keeps nobody from being cosigned for the first time under another.
        known: as in `require_explained`.

    Raises `CosignError`, and whatever `evidence` raises.
    """
    running, ended = (tuple(each) for each in studies)
    owed: tuple[Cost, ...] = ()
    if forgiven:
        owed = cost_of([*running, *ended], summed())
        require_summed(offered, owed)
    if last is not None:
        # A recovery may have charged again what is in sums.
        possible = [*chargeable(running, ended), *owed]
        require_explained(offered, last, chargeable=possible, evidence=evidence(), known=known)


def require_explained(
    offered: Checkpoint,
    last: Checkpoint,
    *,
    chargeable: Iterable[Cost],
    evidence: Iterable[Checkpoint] = (),
    known: Iterable[Checkpoint] = (),
) -> None:
    """Return if all that was charged since `last` can be explained.

    Args:
        offered: contains `last` (`cosign.advance`).
        last: the cosigner's own.
        chargeable: what the silo's studies can have charged, as far as the cosigner knows them.
        evidence: later checkpoints of this ledger that somebody signed whom the cosigner believes. What they count
            needs no other explanation, if `offered` contains them.
        known: what the cosigner remembers of this ledger. A recovery may charge again what it covers of them, and of
            the evidence.

    Raises `CosignError`.
    """
    if not totals.beyond(offered.totals, last.totals) and offered.epsilon != last.epsilon:
        msg = (
            f"the ledger of {offered.data_set} at {offered.silo} states another epsilon than at {last.at}, although"
            " nothing was charged since; check the ledger"
        )
        raise CosignError(msg)
    shown, possible = [*evidence], [*chargeable]
    remembered = [*known, *shown]
    contained = {offered.head, *offered.anchors, *offered.covers}
    for base in (last, *(one for one in shown if one.head in contained)):
        again = [
            cost
            for head in {*offered.covers} - {*base.covers}
            for cost in totals.largest(one.totals for one in remembered if one.head == head)
        ]
        if not totals.beyond(totals.beyond(offered.totals, base.totals), [*possible, *again]):
            return
    msg = (
        f"the ledger of {offered.data_set} at {offered.silo} was charged since {last.at} for what no study with this"
        " silo that is known here can have charged; if its key was stolen, have the root revoke it as of the theft"
    )
    raise CosignError(msg)


def require_summed(offered: Checkpoint, summed: Iterable[Cost]) -> None:
    """Return if the ledger was charged for all of these releases, under whichever key. Raises `CosignError`."""
    if totals.beyond(summed, offered.totals):
        msg = (
            f"the ledger of {offered.data_set} at {offered.silo} lacks charges for releases that are in signed lists of"
            " survivors; a stolen key forgives only what is in no sum: put the newest ledger back, or recover it"
            " (fedward-silo ledger recover)"
        )
        raise CosignError(msg)
