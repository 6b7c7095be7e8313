"""A network that is trained beside the personal model and goes on where it was left, with its optimiser (AdamW)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

_MOMENTS: Final = ("exp_avg", "exp_avg_sq")
_SEED: Final = 1


def public_layers(widths: Sequence[int]) -> nn.ModuleList:
    """Linear layers between the widths, always from the same public weights: uniform within 1 / sqrt(inputs)."""
    drawn, layers = torch.Generator().manual_seed(_SEED), nn.ModuleList()
    for inputs, outputs in itertools.pairwise(widths):
        layer, bound = nn.Linear(inputs, outputs), inputs**-0.5
        for values in layer.parameters():
            nn.init.uniform_(values, -bound, bound, generator=drawn)
        layers.append(layer)
    return layers


class Resumable:
    """A network and its AdamW. `named` is what an error calls it."""

    def __init__(self, network: nn.Module, rate: float, named: str) -> None:
        self._network, self._named = network, named
        self._optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
        for parameter in network.parameters():
            moments = {name: torch.zeros_like(parameter) for name in _MOMENTS}
            self._optimizer.state[parameter] = {"step": torch.zeros(()), **moments}

    def descend(self, loss: Callable[[], torch.Tensor], steps: int) -> None:
        """Take so many steps against the gradient of `loss`, which is called before each."""
        with torch.enable_grad():
            for _ in range(steps):
                self._optimizer.zero_grad()
                torch.autograd.backward(loss())
                self._optimizer.step()
        self._optimizer.zero_grad()

    @property
    def size(self) -> int:
        """Length of `to_array`."""
        return (1 + len(_MOMENTS)) * sum(parameter.numel() for parameter in self._network.parameters()) + 1

    def to_array(self) -> NDArray[np.float32]:
        """Weights and the optimiser's moments, flat, the step last."""
        parts: list[torch.Tensor] = []
        step = torch.zeros(())
        for parameter in self._network.parameters():
            state = self._optimizer.state[parameter]
            parts += [parameter.detach(), *(state[name] for name in _MOMENTS)]
            step = state["step"]
        return np.concatenate([*(part.cpu().numpy().ravel() for part in parts), [float(step)]]).astype(np.float32)

    def load(self, flat: NDArray[np.float32]) -> None:
        """Inverse of `to_array`. Raises ValueError for another length, and for values that training never gives."""
        if flat.shape != (self.size,) or not np.isfinite(flat).all() or flat[-1] < 0 or flat[-1] % 1:
            msg = f"the {self._named} has another size than its study says, or a value that training never gives"
            raise ValueError(msg)
        start = 0
        with torch.no_grad():
            for parameter in self._network.parameters():
                state = self._optimizer.state[parameter]
                parts = []
                for _ in range(1 + len(_MOMENTS)):
                    part = torch.tensor(flat[start : start + parameter.numel()], device=parameter.device)
                    parts.append(part.view_as(parameter))
                    start += parameter.numel()
                if (parts[-1] < 0).any():
                    msg = f"the {self._named} has a negative mean square of its gradients, which training never gives"
                    raise ValueError(msg)
                parameter.copy_(parts[0])
                state["step"] = torch.tensor(float(flat[-1]))
                state.update(zip(_MOMENTS, parts[1:], strict=True))
