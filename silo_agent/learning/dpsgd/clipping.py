"""From gradients by record to integers whose l2 norm the noise is scaled to. The sum of a step is exact.

Guarantees: the integers of a record have an l2 norm of at most `StepGrid.norm`, checked on the integers themselves, or
all of them are zero. They follow from the record's own gradient alone. They are added as integers, so no order of
addition and no other record changes a sum. So adding or removing a record moves a sum by at most `norm` exactly
(docs/design/noise.md, "Integers in a step").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Self

import torch

from silo_agent.learning.dpsgd.outer_products import Factors
from silo_agent.learning.dpsgd.rounded_gaussian import LEAST_SIGMA, MOST_SIGMA

_NORM = 2.0**20
"""Norm of a clipped record in steps of the grid. Sixteen records then add up to at most 2^24 in each coordinate, up to
which float32 holds every integer."""
_FINE_NORM = 2.0**26
"""The same where linear layers' gradients are products of two integers: each factor needs bits of its own."""
_FREE_NORM = 2.0**40
"""The same without noise, whose deviation is limited by the sampler."""
_MOST_PRODUCTS = 2.0**43
"""Of a record's products at all positions, without their signs: 2^10 records stay within 2^53."""
_POSITION_SLACK = 2.0**-34
"""Above the relative error of a sum over pairs of positions, of what it would be without signs: at most 2^16 pairs have
as many roundings of 2^-53, and their factors are exact or have fewer."""
_BY_CHANCE = 4.0
"""What rounding may add to the norm of a record that is cut, squared, in lengths of inputs: more than six deviations of
half a step each. No proof rests on it."""
_OUTPUT_BITS = 10
"""Bits of the norm that the gradients at a layer's output have more than its inputs: they differ more in size."""
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

NO_FACTORS: Final[Mapping[int, Factors]] = MappingProxyType({})


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
    coarse: int
    """Worth of the integer 1 of a whole gradient, in units: these integers stay within 2^20, and so within float32."""
    input_steps: int
    """Integers between 0 and 1 at a linear layer's input."""

    @classmethod
    def of(cls, clip: float, noise: float, *, most: float = _NORM) -> Self:
        """The grid for whole gradients, a clip above 0 and a noise of 0 or more.

        A norm of 2^20, or less where the noise is so large that its integers would not fit the sampler.
        """
        sigma = min(max(noise * most, LEAST_SIGMA), MOST_SIGMA) if noise else 0.0
        norm = most if noise * most <= MOST_SIGMA else MOST_SIGMA / noise * (1.0 - 2.0**-50)
        bits = math.log2(norm)
        coarse = 1 << max(0, math.ceil(bits - math.log2(_NORM)))
        return cls(clip, norm, sigma, clip / norm, coarse, 1 << max(0, int(bits - _OUTPUT_BITS) // 2))

    @classmethod
    def fine(cls, clip: float, noise: float) -> Self:
        """The grid for linear layers' gradients as outer products, among others.

        A norm of 2^26, or less as above, or 2^40 without noise.
        """
        return cls.of(clip, noise, most=_FINE_NORM if noise else _FREE_NORM)


def to_integers(
    gradients: Sequence[torch.Tensor], grid: StepGrid, outer: Mapping[int, Factors] = NO_FACTORS
) -> list[torch.Tensor]:
    """Clip and scale the gradients of b records, (b, ...) for each parameter, and make them integers; overwrites them.

    `outer`: places of weights at which the factors of gradients stand (`outer_products`). Returns integers in float32,
    whole gradients as (b, n): the record's gradient is these, times `grid.coarse`, and at `outer` the sum of the
    factors' products. All of a record's are zero if its gradient is not finite or cannot be brought to the norm.
    """
    flat = [one if place in outer else one.flatten(1) for place, one in enumerate(gradients)]
    whole, pairs = _parted(flat, outer)
    for pair in pairs:
        pair.inputs.mul_(grid.input_steps).round_()
    squares = _norms(whole, flat[0]).square()
    added_by_rounding = torch.zeros_like(squares)
    for pair in pairs:
        squares += pair.squares(grid) / grid.input_steps**2
        added_by_rounding += _BY_CHANCE * pair.lengths(grid).sum(dim=1)
    cut = (grid.norm - added_by_rounding.sqrt()).clamp(min=0.0) / (squares.clamp(min=0.0).sqrt() * _ROOM)
    scale = cut.clamp(max=grid.norm / grid.clip)
    for part in whole:
        part.mul_((scale / grid.coarse).to(part.dtype)[:, None]).trunc_()
    for pair in pairs:
        pair.outputs.mul_((scale / grid.input_steps).to(pair.outputs.dtype)[:, None, None]).round_()
    # A norm that is not a number fits nothing. Only this check bounds what a record adds, and not the scale above.
    lost = ~(_bound(whole, pairs, flat[0], grid) <= grid.norm**2)
    for part in flat:
        part.masked_fill_(lost.view(-1, *[1] * (part.dim() - 1)), 0.0)
    return flat


def add_integers(
    totals: Sequence[torch.Tensor],
    integers: Sequence[torch.Tensor],
    count: int,
    grid: StepGrid,
    outer: Mapping[int, Factors] = NO_FACTORS,
) -> None:
    """Add the first `count` records' integers, of `to_integers`, to int64 totals (n,) of each parameter. Exact.

    At most 2^10 records.
    """
    for place, part in enumerate(integers):
        if place in outer:
            own = part[:count].flatten(0, 1).double()
            inputs, outputs = own[:, : outer[place].inputs], own[:, outer[place].inputs :]
            _add_products(totals[place].view(outputs.shape[1], inputs.shape[1]), inputs, outputs)
            if outer[place].bias:
                totals[place + 1].add_((outputs.sum(dim=0) * grid.input_steps).to(torch.int64))
        elif part.shape[1]:
            _add_whole(totals[place], part[:count], grid.coarse)


def _add_products(total: torch.Tensor, inputs: torch.Tensor, outputs: torch.Tensor) -> None:
    """Add the outer products of integers (b, i) and (b, o) to the total (o, i).

    A record's products are at most 2^43 in all (`_MOST_PRODUCTS`), so 2^10 records stay within 2^53, up to which
    float64 holds every integer in any order of additions.
    """
    together = max(_VALUES // inputs.shape[1], 1)
    for begin in range(0, len(total), together):
        part = slice(begin, begin + together)
        total[part].add_((outputs[:, part].T @ inputs).to(torch.int64))


def _add_whole(total: torch.Tensor, part: torch.Tensor, coarse: int) -> None:
    for first in range(0, len(part), _TOGETHER):
        rows = part[first : first + _TOGETHER]
        for begin in range(0, len(total), _VALUES):
            values = slice(begin, begin + _VALUES)
            total[values].add_(rows[:, values].sum(dim=0).to(torch.int64), alpha=coarse)


@dataclass(frozen=True, repr=False, eq=False)
class _Pair:
    """The factors of a layer's gradients: inputs (b, T, i) and gradients at outputs (b, T, o), at T positions."""

    inputs: torch.Tensor
    outputs: torch.Tensor
    bias: bool

    def lengths(self, grid: StepGrid) -> torch.Tensor:
        """Squares of the inputs' norms as integers, with a bias as one more input, float64 (b, T)."""
        return self.inputs.double().square().sum(dim=2) + self._bias(grid)

    def squares(self, grid: StepGrid) -> torch.Tensor:
        """Squares of the norms of the records' gradients, float64 (b,)."""
        if self.outputs.shape[1] == 1:
            return self.outputs.double().square().sum(dim=(1, 2)) * self.lengths(grid)[:, 0]
        outputs, inputs = self.outputs.double(), self.inputs.double()
        products = (outputs @ outputs.transpose(1, 2)) * (inputs @ inputs.transpose(1, 2) + self._bias(grid))
        return products.sum(dim=(1, 2))

    def most(self, grid: StepGrid) -> torch.Tensor:
        """Squares of the most that the records' products may be in all, float64 (b,): no norm is larger."""
        norms = self.outputs.double().square().sum(dim=2) * self.lengths(grid)
        return norms.sqrt().sum(dim=1).square()

    def _bias(self, grid: StepGrid) -> float:
        return float(grid.input_steps**2) if self.bias else 0.0


def _parted(flat: Sequence[torch.Tensor], outer: Mapping[int, Factors]) -> tuple[list[torch.Tensor], list[_Pair]]:
    """Whole gradients, and factors."""
    whole = [part for place, part in enumerate(flat) if place not in outer]
    pairs = [
        _Pair(flat[place][:, :, : own.inputs], flat[place][:, :, own.inputs :], own.bias)
        for place, own in outer.items()
    ]
    return whole, pairs


def _bound(whole: Sequence[torch.Tensor], pairs: Sequence[_Pair], like: torch.Tensor, grid: StepGrid) -> torch.Tensor:
    """At least the square of every record's norm, float64 (b,).

    Products of single positions enter exactly while the sum is at most 2^53, and what has passed 2^53 stays above it.
    With noise the square of the grid's norm is at most 2^52, so the comparison with it is exact. Sums over positions
    enter with `_POSITION_SLACK` and whole gradients with `_SLACK` above them. Without noise nothing is charged, and the
    comparison has float64's errors. A record whose products are too many for an exact sum has no norm that fits.
    """
    squares = (_norms(whole, like) * ((1.0 + _SLACK) * grid.coarse)).square()
    for pair in pairs:
        own = pair.squares(grid)
        if pair.outputs.shape[1] > 1:
            most = pair.most(grid)
            own = (own + _POSITION_SLACK * most).masked_fill(~(most <= _MOST_PRODUCTS**2), torch.inf)
        squares += own  # each at least the integer that it stands for, so rounding cannot bring the sum below theirs
    return squares


def _norms(flat: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The l2 norm of every record over all its parts, float64 (b,), within `_SLACK` if no square underflows."""
    squares = like.new_zeros(len(like), dtype=torch.float64)
    for part in flat:
        whole = part.shape[1] // _ROW * _ROW
        rows = part[:, :whole].reshape(len(part), whole // _ROW, _ROW)
        squares += torch.linalg.vector_norm(rows, dim=2).double().square().sum(dim=1)
        squares += torch.linalg.vector_norm(part[:, whole:], dim=1).double().square()
    return squares.sqrt()
