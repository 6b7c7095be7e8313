"""A study under way at this silo, and the attempt at one of its rounds that the silo takes part in.

Each task works on an `Attempt`. It holds the place, what the coordinator asks now, and this silo's membership in the
roster; tensors, threshold, labels and the survivor list follow from these. It keeps nothing else, except the shares of
the participants, so that they are read only once. `tasks` does the tasks; `session` and `membership` hold the secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crypto.secagg.circle import reach_of
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.labels import SumLabel
from crypto.secagg.layout import sealed_values
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import SurvivorList, threshold
from crypto.secagg.unmasking import notes_digest
from crypto.secagg.voids import VoidPromise
from policies.documents.study import Study
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor, Upload, UploadHeader, Work
from protos.steps import STEPS, Note, Step
from silo_agent.core.turns import OutOfTurnError, Turn
from silo_agent.gate import Order
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.protocol.journal import Standing
from silo_agent.protocol.membership import Membership
from silo_agent.protocol.session import Session


@dataclass
class Running:
    """One study under way at this silo. `agent` alone puts another standing in place of this one."""

    study: Study
    learner: Learner
    session: Session
    standing: Standing
    begun: SharedModel | None = None
    """Where the study began, if it continues another one."""
    _attempt: Attempt | None = None

    def attempt(self, work: Work, place: Place) -> Attempt:
        """The attempt that the work belongs to: the same object for the same place."""
        attempt = self._attempt
        if attempt is None or attempt.place != place:
            attempt = self._attempt = Attempt(self, place, work)
        attempt.work = work
        return attempt

    @property
    def turn(self) -> Turn:
        """The silo's place in the study."""
        return self.standing.turn


@dataclass
class Attempt:
    """One attempt at one round. If its roster changes, the shares that were read for it stay as they are."""

    running: Running
    place: Place
    work: Work
    """What the coordinator asks now."""
    bundles: dict[str, ShareBundle] = field(default_factory=dict)
    """The shares of each participant, by silo, already read and checked."""

    @property
    def study(self) -> Study:
        """The study of the round."""
        return self.running.study

    @property
    def step(self) -> Step:
        """What the protocol says of the task that the coordinator asks for now."""
        return STEPS[self.work.task]

    @property
    def standing(self) -> Standing:
        """How far the silo has come in the study. A task gives a new one and leaves this one as it is."""
        return self.running.standing

    @property
    def membership(self) -> Membership:
        """This silo's membership in the roster. The roster is verified when the attempt first uses it."""
        return self.running.session.within(self.work.roster, self.place, reach=self.reach)

    # --- who ------------------------------------------------------------------------------------------------------
    @property
    def me(self) -> str:
        """This silo's name."""
        return self.running.session.me

    @property
    def members(self) -> frozenset[str]:
        """Names of the roster's members, as the coordinator gives them."""
        return frozenset(member.silo for member in self.work.roster)

    @property
    def participants(self) -> tuple[str, ...]:
        """The silos among which the masks of the tensor cancel."""
        return self.work.participants

    @property
    def survivors(self) -> tuple[str, ...]:
        """The silos whose contributions are in the sum."""
        return self.work.survivors

    @property
    def survivor_list(self) -> SurvivorList:
        """The list of the survivors, in the form that is signed, once `bundles` are read. Raises `CryptoError`."""
        notes = notes_digest(self.bundles, self.participants)
        return SurvivorList(self.membership.attempt(self.place), str(self.tensor), self.survivors, notes)

    def has_signed(self, upload: Upload, values: int = 0) -> bool:
        """Whether a silo has signed these bytes as its upload for the current tensor: of so many values, or a note."""
        part = upload.part
        header = UploadHeader(self.place, part.kind, self.tensor, part.silo, values, part.size, part.sha256)
        return self.membership.signed(part.silo, header.canonical(), upload.signature)

    @property
    def threshold(self) -> int:
        """How many silos must take part, sign and reveal. The study alone fixes it, whatever roster this silo is shown.

        Raises `RosterRefused` if the study has too few silos.
        """
        study = self.study
        return threshold(len(study.silos), study.privacy.colluders, study.min_silos)

    @property
    def reach(self) -> int:
        """How many neighbours a silo has on either side in a large roster. The study alone fixes it.

        Raises what `threshold` raises.
        """
        return reach_of(len(self.study.silos), self.study.privacy.colluders, self.threshold)

    @property
    def void(self) -> VoidPromise:
        """What this silo is asked to promise about the earlier attempts at the round."""
        through, after = self.place.attempt - 1, self.standing.turn.spoilt
        return VoidPromise(self.study.digest, self.place.round, str(self.work.tensor), through, after)

    # --- what -----------------------------------------------------------------------------------------------------
    @property
    def tensor(self) -> Tensor:
        """The tensor that is being summed. Raises `OutOfTurnError` between attempts."""
        return self.standing.turn.tensor

    @property
    def tensors(self) -> tuple[str, ...]:
        """All tensors that the round sums, in order."""
        return tuple(str(tensor) for tensor in self.standing.turn.plan[self.place.round])

    @property
    def total(self) -> NDArray[np.int64]:
        """The opened sum of the heads. Raises `OutOfTurnError` if there is none."""
        if self.standing.total is None:
            msg = "the heads' sum has not been opened"
            raise OutOfTurnError(msg)
        return self.standing.total

    @property
    def sealer(self) -> Sealer:
        """Seals tensors for the roster and opens the roster's sums. Raises `CryptoError`."""
        return self.membership.sealer(self.study.silos)

    def release(self, tensor: Tensor) -> Release:
        """The release of a tensor in this round, as the study plans it. Raises `CostError` if the round has none."""
        return plan(self.study).release(self.place.round, tensor)

    def sealed_values(self, release: Release) -> int:
        """How many values a sealed release has: its own, the silos' slots, and the checks."""
        return sealed_values(release.values, len(self.study.silos))

    # --- names ----------------------------------------------------------------------------------------------------
    def order(self, tensor: Tensor) -> Order:
        """What the gate is asked for: this silo's contribution to a tensor. Raises `CryptoError`."""
        roster, spoilt = self.membership.roster.digest, self.standing.turn.spoilt
        return Order(self.study, self.place, tensor, self.participants, roster, self.standing.digest, spoilt)

    def note_label(self, note: Note) -> SumLabel:
        """The label that a sealed note of this attempt is bound to. Raises `CryptoError`."""
        # A silo that catches up does not know the others' model yet.
        model, place = "" if note is Note.MODEL else self.standing.digest, self.place
        roster = self.membership.roster.digest
        return SumLabel(place.study, roster, model, place.round, place.attempt, f"note-{note}")
