"""Expected outcomes, and what is left of each to 1, both with all their digits.

Where a prediction is nearly sure, 1 - p has lost its digits, and so has everything that is made of it: the residual of
the class that came true, the curvature. A norm that was computed from such values may be far from that of the term. So
what is left to 1 is never a difference: it is a sum of what the other classes have (docs/design/heads.md, "Rounding").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True, repr=False, eq=False)
class ExpectedOutcomes:
    """What a family expects of n records, by logit: `mean` (n, R) and `rest` = 1 - mean (n, R).

    Of classes both are sums and quotients of positive values, so their relative error is a few last bits.
    """

    mean: torch.Tensor
    rest: torch.Tensor

    def of(self, records: torch.Tensor) -> ExpectedOutcomes:
        """That of some records, chosen by index or mask."""
        return ExpectedOutcomes(self.mean[records], self.rest[records])

    def split(self, rows: int) -> Iterator[ExpectedOutcomes]:
        """In chunks of `rows` records."""
        chunks = zip(torch.split(self.mean, rows), torch.split(self.rest, rows), strict=True)
        return (ExpectedOutcomes(mean, rest) for mean, rest in chunks)

    def sound(self) -> tuple[ExpectedOutcomes, torch.Tensor]:
        """The same without values that are not finite, and which records (n,) had none."""
        finite = (torch.isfinite(self.mean) & torch.isfinite(self.rest)).all(dim=1)
        return ExpectedOutcomes(torch.nan_to_num(self.mean), torch.nan_to_num(self.rest)), finite


def others(values: torch.Tensor) -> torch.Tensor:
    """Of every value of a row the sum of all others, (n, R) from (n, R) >= 0. It adds up and never subtracts."""
    nothing = values.new_zeros(len(values), 1)
    before = torch.cat([nothing, values[:, :-1]], dim=1).cumsum(dim=1)
    after = torch.cat([values[:, 1:], nothing], dim=1).flip(1).cumsum(dim=1).flip(1)
    return before + after
