"""The loss of each step of a training that compares environments, and what it remembers between steps.

IRM's coefficient is annealed, and a loss with a coefficient above 1 is divided by it, as in the code of the paper.
GroupDRO's weights of the environments move once in each step, before its loss. Steps and weights go on from round to
round; the weights follow from a silo's records, so they are as private as these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import EncoderPlan, Personal
from policies.plan.terms import Weighted
from silo_agent.learning.terms.losses import group_dro
from silo_agent.learning.terms.registry import model_loss
from silo_agent.learning.terms.term import Seen, WholeModel

_CLOSE: Final = 1e-9


class Steps:
    """Losses of steps, in order. `weights` (E,): how much each environment counts in GroupDRO, of sum 1."""

    def __init__(
        self,
        plan: EncoderPlan | Personal,
        weights: NDArray[np.float64],
        taken: int = 0,
    ) -> None:
        """`taken`: how many steps came before."""
        self._plan, self.weights, self.taken = plan, weights, taken

    @classmethod
    def start(cls, plan: EncoderPlan | Personal, environments: int) -> Self:
        """Before the first step: all environments count alike."""
        return cls(plan, np.full(environments, 1.0 / environments))

    def loss(self, asked: Iterable[Weighted], seen: Seen, own: WholeModel, anchor: WholeModel) -> torch.Tensor:
        """The loss of the next step, a scalar, of the plan's terms. Raises ValueError without environments."""
        annealed = tuple(self._annealed(one) for one in asked)
        if any(one.term.name == "group_dro" for one in annealed):
            risks = group_dro.risks(seen, len(self.weights))
            self.weights = group_dro.moved(self.weights, risks, self._plan.group_rate)
            seen = replace(seen, groups=torch.tensor(self.weights, device=seen.phi.device))
        self.taken += 1
        divisor = max(1.0, *(one.coefficient for one in annealed if one.term.name == "irm"), 0.0)
        return model_loss(annealed, seen, own, anchor) / divisor

    def _annealed(self, one: Weighted) -> Weighted:
        if one.term.name != "irm" or self.taken >= self._plan.irm_after:
            return one
        return replace(one, coefficient=min(one.coefficient, 1.0))

    def to_array(self) -> NDArray[np.float64]:
        """Number of steps, then the weights: (1 + E,)."""
        return np.array([self.taken, *self.weights], np.float64)

    @classmethod
    def from_array(cls, plan: EncoderPlan | Personal, environments: int, flat: NDArray[np.float64]) -> Self:
        """Inverse of `to_array`. Raises ValueError for another length, and for values that no training gives."""
        require_state(flat, environments)
        return cls(plan, np.array(flat[1:], np.float64), int(flat[0]))


def require_state(flat: NDArray[np.float64], environments: int) -> None:
    """Raise ValueError unless `flat` is what `Steps.to_array` gives of so many environments."""
    fits = flat.shape == (1 + environments,) and bool(np.isfinite(flat).all())
    if not fits or flat.min() < 0.0 or abs(flat[1:].sum() - 1.0) > _CLOSE or not float(flat[0]).is_integer():
        msg = "the environments' weights have another size than the study says, or values that no training gives"
        raise ValueError(msg)
