"""A study under way at this silo, and the attempt at one of its rounds that the silo takes part in.

An `Attempt` is what each task works on: the place, what the coordinator asks now, this silo's membership in the
roster, and what follows from them (tensors, threshold, labels, the survivor list). It computes and keeps nothing for
itself but the shares notes that were read once. Tasks are `tasks`', secrets `session`'s and `membership`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crypto.secagg.labels import Label
from crypto.secagg.layout import sealed_values
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import SurvivorList, threshold
from crypto.secagg.unmasking import Bundle
from policies.documents.study import Study
from policies.plan.release import Release, plan
from protos.messages import Note, Place, Tensor, Work
from silo_agent.core.turns import OutOfTurnError, Turn
from silo_agent.gate import Order
from silo_agent.learning.learner import Learner
from silo_agent.learning.model import SharedModel
from silo_agent.protocol.membership import Membership
from silo_agent.protocol.session import Session


@dataclass
class Running:
    """One study under way at this silo."""

    study: Study
    learner: Learner
    session: Session
    turn: Turn
    model: SharedModel
    """What the current attempt computes from; a candidate once the round is finished."""
    digest: str = ""
    """Keyed digest of `model`, equal at all silos."""
    total: NDArray[np.int64] | None = None
    """The opened sum of the heads, until they are adopted."""
    _attempt: Attempt | None = None

    def attempt(self, work: Work, place: Place) -> Attempt:
        """The attempt that the work belongs to; the same object as long as the place is the same."""
        attempt = self._attempt
        if attempt is None or attempt.place != place:
            attempt = self._attempt = Attempt(self, place, work)
        attempt.work = work
        return attempt


@dataclass
class Attempt:
    """One attempt at one round. Under another roster, what was shared for it stays what it was."""

    running: Running
    place: Place
    work: Work
    """What is asked now."""
    bundles: dict[str, Bundle] = field(default_factory=dict)
    """What the participants have shared, by silo, read and checked."""

    @property
    def study(self) -> Study:
        """The study of the round."""
        return self.running.study

    @property
    def membership(self) -> Membership:
        """This silo in the roster, which is verified once, at its first use."""
        return self.running.session.within(self.work.roster)

    # --- who ------------------------------------------------------------------------------------------------------
    @property
    def me(self) -> str:
        """This silo's name."""
        return self.running.session.me

    @property
    def members(self) -> frozenset[str]:
        """Names of the roster, as the coordinator gives them."""
        return frozenset(member.silo for member in self.work.roster)

    @property
    def participants(self) -> tuple[str, ...]:
        """Among whom the masks of the tensor cancel."""
        return self.work.participants

    @property
    def survivors(self) -> tuple[str, ...]:
        """Whose contributions are in the sum."""
        return self.work.survivors

    @property
    def survivor_list(self) -> SurvivorList:
        """The list of the survivors, as it is signed. Raises `CryptoError`."""
        return SurvivorList(self.membership.attempt(self.place), str(self.tensor), self.survivors)

    @property
    def threshold(self) -> int:
        """Shares that open a secret: fixed by the study and the roster, so that all silos deal alike.

        Raises `RosterRefused` for a roster that is too small.
        """
        study = self.study
        return threshold(len(self.work.roster), study.privacy.colluders, study.min_silos)

    # --- what -----------------------------------------------------------------------------------------------------
    @property
    def tensor(self) -> Tensor:
        """What is being summed. Raises `OutOfTurnError` between attempts."""
        return self.running.turn.tensor

    @property
    def tensors(self) -> tuple[str, ...]:
        """All that the round sums, in order."""
        return tuple(str(tensor) for tensor in self.running.turn.plan[self.place.round])

    @property
    def total(self) -> NDArray[np.int64]:
        """The opened sum of the heads. Raises `OutOfTurnError` if there is none."""
        if self.running.total is None:
            msg = "the heads' sum has not been opened"
            raise OutOfTurnError(msg)
        return self.running.total

    @property
    def sealer(self) -> Sealer:
        """Seals for, and opens sums of, the roster. Raises `CryptoError`."""
        return self.membership.sealer(self.study.silos)

    def release(self, tensor: Tensor) -> Release:
        """A tensor of the round, as the study plans it. Raises `CostError` if the round has none."""
        return plan(self.study).release(self.place.round, tensor)

    def sealed_values(self, release: Release) -> int:
        """Values of a sealed release: its own, the roster's slots, the checks."""
        return sealed_values(release.values, len(self.study.silos))

    # --- names ----------------------------------------------------------------------------------------------------
    def order(self, tensor: Tensor) -> Order:
        """This silo's contribution to a tensor, as the gate is asked for it. Raises `CryptoError`."""
        roster = self.membership.roster.digest
        return Order(self.study, self.place, tensor, self.participants, roster, self.running.digest)

    def note_label(self, note: Note) -> Label:
        """What a sealed note of this attempt is bound to. Raises `CryptoError`."""
        # Who catches up does not know the model yet that the others hold.
        model, place = "" if note is Note.MODEL else self.running.digest, self.place
        roster = self.membership.roster.digest
        return Label(place.study, roster, model, place.round, place.attempt, f"note-{note}")
