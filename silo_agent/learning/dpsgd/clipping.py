"""From gradients by record to integers whose l2 norm the noise is scaled to. The sum of a step is exact.

Guarantees: the integers of a record have an l2 norm of at most `StepGrid.norm`, checked on the integers themselves, or
all of them are zero. They follow from the record's own gradient alone. They are added as integers, so no order of
addition and no other record changes a sum. So adding or removing a record moves a sum by at most `norm` exactly
(docs/design/noise.md, "Integers in a step").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch

from silo_agent.learning.dpsgd.rounded_gaussian import LEAST_SIGMA, MOST_SIGMA

_NORM = 2.0**20
"""Norm of a clipped record in steps of the grid. Sixteen records then add up to at most 2^24 in each coordinate, up to
which float32 holds every integer."""
_TOGETHER = 16
_VALUES = 1 << 22
"""Values of a record that are added at once."""
_ROW = 64
"""Squares that float32 adds up before float64 goes on."""
_SLACK = 2.0**-18
"""Above the relative error of a norm that is computed by `_norms`: a row's sum of 64 squares has at most 65 roundings
of 2^-24, its root has half of that and one of its own, and float64 adds next to nothing."""
_ROOM = 1.0 + 2.0**-17
"""By how much a record above the clip is brought below the norm, so that it passes the check in spite of both errors.
No proof rests on it."""


@dataclass(frozen=True)
class StepGrid:
    """The public integers of one release: a clipped record's l2 norm, the noise's deviation, and a unit's worth.

    `sigma` / `norm` is at least the charged noise. `sigma` is 0 if there is none.
    """

    clip: float
    norm: float
    sigma: float
    unit: float
    """Worth of the integer 1 in a gradient: clip / norm."""

    @classmethod
    def of(cls, clip: float, noise: float) -> Self:
        """The grid for a clip above 0 and a noise of 0 or more.

        A norm of 2^20, or less where the noise is so large that its integers would not fit the sampler.
        """
        sigma = min(max(noise * _NORM, LEAST_SIGMA), MOST_SIGMA) if noise else 0.0
        norm = _NORM if noise * _NORM <= MOST_SIGMA else MOST_SIGMA / noise * (1.0 - 2.0**-50)
        return cls(clip, norm, sigma, clip / norm)


def to_integers(gradients: Sequence[torch.Tensor], grid: StepGrid) -> list[torch.Tensor]:
    """Clip, scale and truncate the gradients of b records, (b, ...) for each parameter; overwrites them.

    Returns integers in float32, (b, n) for each parameter. All of a record's are zero if its gradient is not finite or
    cannot be brought to the norm.
    """
    flat = [gradient.reshape(len(gradient), -1) for gradient in gradients]
    scale = (grid.norm / (_norms(flat) * _ROOM).clamp(min=grid.clip)).to(flat[0].dtype)
    for part in flat:
        part.mul_(scale[:, None]).trunc_()
    # A norm that is not a number fits nothing. Only this check bounds what a record adds, and not the scale above.
    lost = ~(_norms(flat) * (1.0 + _SLACK) <= grid.norm)
    for part in flat:
        part.masked_fill_(lost[:, None], 0.0)
    return flat


def add_integers(totals: Sequence[torch.Tensor], integers: Sequence[torch.Tensor], count: int) -> None:
    """Add the first `count` records' integers, of `to_integers`, to int64 totals (n,) of each parameter. Exact."""
    for total, part in zip(totals, integers, strict=True):
        for first in range(0, count, _TOGETHER):
            rows = part[first : min(first + _TOGETHER, count)]
            for begin in range(0, len(total), _VALUES):
                values = slice(begin, begin + _VALUES)
                total[values].add_(rows[:, values].sum(dim=0).to(torch.int64))


def _norms(flat: Sequence[torch.Tensor]) -> torch.Tensor:
    """The l2 norm of every record over all its parts, float64 (b,), within `_SLACK` if no square underflows."""
    squares = flat[0].new_zeros(len(flat[0]), dtype=torch.float64)
    for part in flat:
        whole = part.shape[1] // _ROW * _ROW
        rows = part[:, :whole].reshape(len(part), whole // _ROW, _ROW)
        squares += torch.linalg.vector_norm(rows, dim=2).double().square().sum(dim=1)
        squares += torch.linalg.vector_norm(part[:, whole:], dim=1).double().square()
    return squares.sqrt()
