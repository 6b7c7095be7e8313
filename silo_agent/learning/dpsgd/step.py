"""The one step that trains: the exact sum of the patients' integers, the step's noise, and the move of the weights.

Guarantees that no float is made of a sum before its noise was added. What comes after is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.plan.terms import Weighted
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.noise_ahead import Ahead
from silo_agent.learning.terms.registry import step_gradient


class PrivateStep:
    """Adds up the integers of a step's patients, adds the step's noise, and moves the weights once."""

    def __init__(
        self,
        optimizer: torch.optim.SGD,
        grid: StepGrid,
        batch_size: int,
        noise: Ahead | None,
        rates: Iterable[float],
        *,
        terms: Sequence[Weighted] = (),
        drawn: Sequence[nn.Parameter] = (),
    ) -> None:
        """`rates`: the learning rates of the steps, one for each.

        `terms`: those that read weights alone, and `drawn`: the weights that they read and move.
        """
        self._optimizer, self._noise, self._worth = optimizer, noise, grid.unit / batch_size
        self._rates = iter(rates)
        self.params = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._terms, self._starts = tuple(terms), [(one, one.detach().clone()) for one in drawn] if terms else []
        self.totals = [torch.zeros(one.numel(), dtype=torch.int64, device=one.device) for one in self.params]

    def draw(self) -> NDArray[np.int64] | None:
        """Noise for every trained value, (n,), in the order of the parameters; None if the release has none."""
        return None if self._noise is None else self._noise.take()

    def take(self) -> None:
        """Take the step, and begin the next sum at zero."""
        noise, first = self.draw(), 0
        for parameter, total in zip(self.params, self.totals, strict=True):
            if noise is not None:
                total.add_(torch.from_numpy(noise[first : first + len(total)]).to(total.device))
            first += len(total)
            # What the noise covers ends here. The rest reads noised integers and public constants.
            parameter.grad = (total.double() * self._worth).to(parameter.dtype).view_as(parameter)
            total.zero_()
        for parameter, start in self._starts:
            own = step_gradient(self._terms, parameter.detach(), start)
            if own is not None and parameter.grad is not None:
                parameter.grad.add_(own)
        rate = next(self._rates)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad()
