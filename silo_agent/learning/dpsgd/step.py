"""The one step that trains: the exact sum of the patients' integers, the step's noise, and the move of the weights.

Guarantees that no float is made of a sum before its noise was added. What comes after is post-processing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.plan.terms import Weighted
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.noise_ahead import PIECE, Ahead
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

    def draw(self) -> list[Iterator[NDArray[np.int64]]] | None:
        """Noise for every trained value: of each parameter in pieces, to be read in order. None if there is none."""
        return None if self._noise is None else [self._noise.take(len(total)) for total in self.totals]

    def take(self) -> None:
        """Take the step, parameter by parameter, and begin the next sum at zero.

        Raises LookupError, and moves nothing, if there is no noise left for the step.
        """
        drawn = self.draw() or [iter(())] * len(self.totals)
        rate = next(self._rates)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        starts = {id(parameter): start for parameter, start in self._starts}
        for parameter, total, pieces in zip(self.params, self.totals, drawn, strict=True):
            first = 0
            for noise in pieces:
                total[first : first + len(noise)].add_(torch.from_numpy(noise).to(total.device))
                first += len(noise)
            # What the noise covers ends here. The rest reads noised integers and public constants.
            parameter.grad = torch.empty_like(parameter)
            flat = parameter.grad.view(-1)
            for begin in range(0, len(total), PIECE):
                part = slice(begin, begin + PIECE)
                flat[part] = total[part].double() * self._worth
            total.zero_()
            if id(parameter) in starts:
                own = step_gradient(self._terms, parameter.detach(), starts[id(parameter)])
                if own is not None:
                    parameter.grad.add_(own)
            # The optimizer moves what has a gradient, and only one parameter has one at a time: a network may be large.
            self._optimizer.step()
            self._optimizer.zero_grad()
