"""The single door out of a hospital: decide -> charge -> compute -> keep -> seal. Returns only sealed bytes.

Guarantees, in this order: the policy on disk is the one that was loaded and allows the study; the whole cost of the
round stands durably in the ledger before the first data-dependent step; the noised integers are stored before they are
sealed and are never drawn twice for one charge; a mask label seals one byte string for ever. Whatever fails, nothing
has left. What is computed is the caller's business (`learner`); how it is sealed is `crypto.sealing`'s.

With local noise a release may be sent again under a new roster at no cost (privacy.md, "Noise": post-processing). With
distributed noise a new attempt is a new draw and a new charge, and a draw is sealed for one roster and model alone: the
difference of two sums that hold the same shares of noise would lay bare a silo that is in one of them only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from crypto.labels import Label
from crypto.masks import Masks
from crypto.sealing import Sealer
from policies import shapes
from policies.costs import Cost, round_costs
from policies.decision import Reason, Refused, decide
from policies.ledger import Debit, Ledger
from policies.policy import Policy, load_policy
from policies.study import Study
from protos.messages import Place, Tensor
from silo_agent.core.turns import OutOfTurnError
from silo_agent.metrics import Metrics
from silo_agent.state import State

log = structlog.get_logger()
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """One contribution that is asked of this silo."""

    study: Study
    place: Place
    tensor: Tensor
    participants: tuple[str, ...]
    """Among whom the masks cancel; of the roster."""
    roster_digest: str
    model: str
    """Keyed digest of the model that the contribution is computed from."""

    @property
    def label(self) -> Label:
        """What the masks of this contribution are bound to."""
        place = self.place
        return Label(place.study, self.roster_digest, self.model, place.round, place.attempt, self.tensor)


class Gate:
    """Policy, ledger and outbox of one data set."""

    def __init__(self, me: str, policy_path: Path, ledger_path: Path, state: State, metrics: Metrics) -> None:
        self._me, self._policy_path, self._state, self._metrics = me, policy_path, state, metrics
        self.policy: Policy = load_policy(policy_path)
        data_set, budget = self.policy.data_set, self.policy.budget
        self.ledger = Ledger.open(
            ledger_path,
            data_set=data_set.id,
            holdout=data_set.holdout,
            budget_epsilon=budget.epsilon,
            delta=budget.delta,
            public=data_set.public,
        )
        self._measure()

    def decide(self, study: Study, place: Place, roster_size: int | None = None) -> None:
        """Ask the policy. Raises `Refused` by name; nothing is charged."""
        self._require_same_policy()
        owed = self._owed(study, place)
        others = {attempt for _, attempt in self.ledger.charged(place.study, place.round)} - {place.attempt}
        spent = self._spent_before(study, place)
        try:
            decide(
                self.policy,
                study,
                silo=self._me,
                roster_size=roster_size,
                spent_costs=[cost for _, cost in spent],
                round=place.round,
                attempt=place.attempt,
                charged_attempts=len(others) if owed else 0,
                study_spent=[cost for name, cost in spent if name == place.study],
            )
        except Refused as refusal:
            self._metrics.refusals.labels(refusal.reason).inc()
            raise

    def sealed(self, order: Order) -> Path | None:
        """The bytes that this order was sealed to before, None where it was not."""
        return self._state.sealed(order.place.study, order.label.digest)

    def contribute(self, order: Order, sealer: Sealer, masks: Masks, compute: Callable[[Place], Integers]) -> Path:
        """Sealed bytes of this order, from the outbox where they were sealed before.

        `compute` gets the place that was charged and returns the noised integers. What it returns is kept at most once
        per charge; it is called only after the charge is durable. Raises `Refused`, `LedgerError`, `StateError`,
        `OutOfTurnError`; then nothing has left.
        """
        study, label = order.place.study, order.label
        stored = self.sealed(order)
        if stored is not None:
            return stored
        self.decide(order.study, order.place, roster_size=len(order.participants))
        draw = self._charge(order)
        release = self._state.release(order.place, order.tensor, draw)
        if release is None:
            with self._metrics.compute_seconds.labels(order.tensor).time():
                integers = compute(replace(order.place, attempt=draw))
            self._state.keep_release(order.place, order.tensor, draw, integers, label.digest)
        elif release.label == label.digest or _carries_its_noise(order.study, order.tensor):
            integers = release.integers
        else:
            msg = f"the {order.tensor} of this attempt was drawn for another roster or model; begin a new attempt"
            raise OutOfTurnError(msg)
        kind = shapes.ring(order.study, order.tensor)
        return self._state.keep_sealed(study, label.digest, sealer.seal(kind, integers, label, masks))

    def close(self) -> None:
        """Let go of the ledger."""
        self.ledger.close()

    def _charge(self, order: Order) -> int:
        """Debit what this round still owes; returns the attempt under which this order's draw is charged."""
        place = order.place
        owed = self._owed(order.study, place)
        if owed:
            self.ledger.charge(Debit(place.study, self.policy.digest, place.round, place.attempt, owed))
            self._metrics.charges.inc()
            self._measure()
            log.info("charged", study=place.study[:12], round=place.round, attempt=place.attempt, tensors=sorted(owed))
        return max(attempt for name, attempt in self._draws(order.study, place) if name == order.tensor)

    def _owed(self, study: Study, place: Place) -> dict[str, Cost]:
        """Costs of this round that no earlier charge covers for this attempt."""
        paid = {tensor for tensor, _ in self._draws(study, place)}
        return {tensor: cost for tensor, cost in round_costs(study, place.round).items() if tensor not in paid}

    def _draws(self, study: Study, place: Place) -> dict[tuple[str, int], Cost]:
        """Charges of this round whose draws this attempt may send: with local noise any, else its own."""
        return {
            (tensor, attempt): cost
            for (tensor, attempt), cost in self.ledger.charged(place.study, place.round).items()
            if attempt == place.attempt or _carries_its_noise(study, tensor)
        }

    def _spent_before(self, study: Study, place: Place) -> list[tuple[str, Cost]]:
        """All that the data set has spent, by study, without what this attempt uses: the plan counts that."""
        reused = self._draws(study, place)
        return [
            (entry.debit.study, cost)
            for entry in self.ledger.entries()
            for tensor, cost in entry.debit.costs.items()
            if (entry.debit.study, entry.debit.round) != (place.study, place.round)
            or (tensor, entry.debit.attempt) not in reused
        ]

    def _require_same_policy(self) -> None:
        digest = load_policy(self._policy_path).digest
        if digest != self.policy.digest:
            raise Refused(
                Reason.POLICY_CHANGED,
                f"{self._policy_path.name} was changed while the agent runs; restart the agent to put it into force",
            )

    def _measure(self) -> None:
        spent = self.ledger.spent()
        self._metrics.epsilon_spent.set(spent)
        self._metrics.epsilon_left.set(self.ledger.left())


def _carries_its_noise(study: Study, tensor: str) -> bool:
    """Whether a release may be sent again to others: it is private by its own noise, or public without any."""
    return tensor == Tensor.ENCODER or study.privacy.mode != "distributed"
