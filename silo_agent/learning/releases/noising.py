"""Adds noise to counts, heads and metrics, with one function for all three, and logs each draw.

Guarantees that the draw and its entry in the training log come from the same `Release`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crypto.hkdf import KEY_BYTES
from crypto.rings.grid import from_grid
from crypto.rings.rings import ring_of
from crypto.stream import KeyStream
from policies.documents.study import Study
from policies.plan import grids
from policies.plan.release import Release
from protos.messages import Place
from silo_agent.learning.noise import noised_sum as private
from silo_agent.learning.releases.contribution import Integers, Setting
from silo_agent.learning.releases.possible_sums import Judge


@dataclass(frozen=True)
class SumGrid:
    """The public grid of a study's sums. A statistic is clamped to +-`bound`, a silo's integers to +-`limit`."""

    step: float
    bound: float
    limit: int

    @classmethod
    def of(cls, study: Study) -> SumGrid:
        """The grid that `study.privacy.max_patients` implies."""
        limit = ring_of("ckks").limit(len(study.silos))
        sums = grids.sums_of(study.privacy.max_patients, limit)
        return cls(sums.step, sums.bound, limit)


def draw(
    setting: Setting,
    statistic: NDArray[np.float64],
    release: Release,
    place: Place,
    *,
    silos: int,
    grid: SumGrid | None = None,
) -> Integers:
    """The statistic, float64 (d,) of l2 sensitivity 1, as this silo's noised integers (d,).

    Raises `NoiseParametersError`.

    `grid`: None for that of `SumGrid.of`.
    """
    privacy, on = setting.study.privacy, grid or SumGrid.of(setting.study)
    integers = private.noised(
        statistic,
        release,
        mode=privacy.mode,
        silos=silos,
        colluders=privacy.colluders,
        step=on.step,
        bound=on.bound,
        limit=on.limit,
        stream=KeyStream(setting.entropy.bytes(KEY_BYTES), release.tensor.encode()),
    )
    setting.log.record(place, release)
    return integers


def summed(study: Study, total: Integers, release: Release, silos: int) -> tuple[NDArray[np.float64], float]:
    """The opened sum (d,) in units of the statistic, and the standard deviation of the noise on each coordinate."""
    step = SumGrid.of(study).step
    privacy = study.privacy
    sd = private.sum_sd(release, mode=privacy.mode, silos=silos, colluders=privacy.colluders, step=step)
    return from_grid(total, step), sd


def judge(
    study: Study, total: Integers, release: Release, silos: int, *, grid: SumGrid | None = None
) -> tuple[NDArray[np.float64], Judge]:
    """The opened sum (d,) in units of the statistic, and what judges whether it can be one of honest contributions.

    `grid`: None for that of `SumGrid.of`.
    """
    privacy, on = study.privacy, grid or SumGrid.of(study)
    sd = private.sum_sd(release, mode=privacy.mode, silos=silos, colluders=privacy.colluders, step=on.step)
    return from_grid(total, on.step), Judge(release.tensor, sd, silos * on.step, on.bound)
