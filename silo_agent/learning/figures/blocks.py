"""Blocks of the metric sum: one for each domain, and one of all patients if the study gives it a share.

Guarantees l2 sensitivity 1 if the domains' cells have it: a patient adds sqrt(1 - s) times as much to its domain's
block and sqrt(s) times to that of all patients, for a share s, so by Pythagoras no more than before. A patient whose
records lie in several domains is a mean over them, which adds no more either. What is read from opened blocks is
post-processing. Source: docs/design/evaluation.md, "All patients together".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from policies.plan import shapes

Floats = NDArray[np.float64]
_ROOM: Final = 1.0 - 2.0**-24
"""Leaves room for the rounding of scaled sums: each of 2^28 patients' cells is wrong by 2^-53 of itself at most."""


@dataclass(frozen=True, repr=False, eq=False)
class OpenedBlocks:
    """What opened blocks say of the cells: `domains` (M, cells) and `whole` (cells,), with the noise's deviation."""

    domains: Floats
    domain_sd: float
    whole: Floats
    whole_sd: float


@dataclass(frozen=True)
class MetricBlocks:
    """How a metric sum is laid out: `domains` = M, and the `share` of the block of all patients, 0 if there is none."""

    domains: int
    share: float

    @classmethod
    def of(cls, study: Study) -> Self:
        """As the study says."""
        domains = len(study.data.domains)
        return cls(domains, study.evaluation.together_share if shapes.metric_blocks(study) > domains else 0.0)

    @property
    def scales(self) -> Floats:
        """What each block's cells are multiplied by: (M,), or (M + 1,) with that of all patients last."""
        if not self.share:
            return np.ones(self.domains)
        own = [math.sqrt(1.0 - self.share)] * self.domains
        return _ROOM * np.array([*own, math.sqrt(self.share)])

    def laid_out(self, cells: Floats) -> Floats:
        """The statistic of the domains' cells (M x cells,), flat."""
        by_domain = cells.reshape(self.domains, -1)
        if not self.share:
            return cells
        return np.asarray(self.scales[:, None] * np.vstack([by_domain, by_domain.sum(axis=0)])).ravel()

    def combined(self, values: Floats, sd: float) -> OpenedBlocks:
        """The most precise cells from opened `values`, flat, with noise of deviation `sd` on each.

        Without a block of its own all patients are the domains' sum. With one there are two measurements of each of
        their cells, and least squares move the domains' cells evenly, so that they add up to the better one.
        """
        blocks = values.reshape(len(self.scales), -1)
        if not self.share:
            return OpenedBlocks(blocks, sd, blocks.sum(axis=0), sd * math.sqrt(self.domains))
        count = self.domains
        domains, own = blocks[:-1] / self.scales[0], blocks[-1] / self.scales[-1]
        of_domain, of_own = self.scales[0] ** -2, self.scales[-1] ** -2  # variances in units of that of `sd`
        added, of_added = domains.sum(axis=0), count * of_domain
        trust = of_added / (of_added + of_own)
        whole, of_whole = added + trust * (own - added), trust * of_own
        moved = domains + (whole - added) / count
        of_moved = of_domain * (1.0 - 1.0 / count) + of_whole / count**2
        return OpenedBlocks(moved, sd * math.sqrt(of_moved), whole, sd * math.sqrt(of_whole))
