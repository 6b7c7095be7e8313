"""From a statistic of l2 sensitivity 1 to noised integers. Counts, heads and metrics leave the silo only this way.

Guarantees: the integers lie on a public grid and within public bounds. The noise covers the sensitivity after rounding,
1 + step sqrt(d) (docs/design/noise.md, "Discrete Gaussian"). No private value makes this code refuse. Without noise
nothing is released, unless the mode is `none`, which is for public data.

Left to others: the maker of a statistic ensures that it is finite and has sensitivity 1. The gate ensures that the
ledger was charged, and that the data are public if no noise is asked for.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crypto.rings.grid import to_grid
from crypto.stream import KeyStream
from policies.plan import grids
from policies.plan.release import Release
from silo_agent.learning.errors import NoiseParametersError
from silo_agent.learning.noise.gaussian import discrete_gaussian

Mode = Literal["local", "distributed", "none"]


def noised(
    statistic: NDArray[np.float64],
    release: Release,
    *,
    mode: Mode,
    silos: int,
    colluders: int,
    step: float,
    bound: float,
    limit: int,
    stream: KeyStream,
) -> NDArray[np.int64]:
    """Clamp to +-bound, round to the grid, add the silo's share of discrete Gaussian noise (mode `none`: no noise).

    `statistic`: float64 (d,), l2 sensitivity 1. `release` is what the ledger was charged for. Its noise is the standard
    deviation in units of the sensitivity. Returns int64 (d,), |v| <= limit; times `step` it estimates the statistic.
    Raises `NoiseParametersError` if the public parameters cannot give this noise, or the statistic has another length.
    """
    if not 0.0 < bound / step <= limit:
        msg = f"bound {bound:g} on a grid of {step:g} exceeds {limit} steps; lower privacy.max_patients"
        raise NoiseParametersError(msg)
    if statistic.shape != (release.values,):
        msg = f"{release.tensor} has {statistic.size} values; the study's plan says {release.values}"
        raise NoiseParametersError(msg)
    sd = share_sd(release, mode=mode, silos=silos, colluders=colluders, step=step)
    sigma = sd / step
    if mode != "none" and not sigma >= grids.LEAST_SIGMA:  # `grids.require` has refused such a study before the charge
        msg = f"noise {release.noise:g} is too small for a grid of {step:g}; raise the noise in the study"
        raise NoiseParametersError(msg)
    # The makers of statistics leave out records that are not finite, so `nan_to_num` has nothing to replace. It would
    # protect nobody: a zero in place of a sum differs from it by all its patients. But an error would reveal something
    # about a patient too, and give no result.
    integers = to_grid(np.nan_to_num(statistic, nan=0.0, posinf=bound, neginf=-bound), step, bound)
    if mode != "none":
        integers = integers + discrete_gaussian(stream, sigma, release.values)
    return np.asarray(np.clip(integers, -limit, limit), np.int64)


def check_noise(noise: float, mode: Mode) -> None:
    """Raise `NoiseParametersError` unless noise is exactly 0 in mode `none`, and finite and above 0 in the others."""
    if mode == "none" and noise != 0.0:
        msg = f"noise {noise:g} in mode none, which draws none; write noise 0, or another privacy.mode"
        raise NoiseParametersError(msg)
    if mode != "none" and not 0.0 < noise < math.inf:
        msg = f"noise {noise:g} in mode {mode} protects nobody; raise the noise in the study"
        raise NoiseParametersError(msg)


def share_sd(release: Release, *, mode: Mode, silos: int, colluders: int, step: float) -> float:
    """Standard deviation of one silo's noise on each coordinate, in units of the statistic.

    In mode `distributed`, the colluders do not count, nor one more silo: the one whose patient is protected, since it
    knows its own noise. The noise of the others alone must reach the charged noise (`grids.share_sd`). Raises
    `NoiseParametersError` as `noised`.
    """
    check_noise(release.noise, mode)
    shared = mode == "distributed"
    if shared and silos - 1 - colluders < 1:
        msg = f"{silos} silos with {colluders} colluders cannot share noise; invite more silos or use mode local"
        raise NoiseParametersError(msg)
    return grids.share_sd(release, distributed=shared, silos=silos, colluders=colluders, step=step)


def sum_sd(release: Release, *, mode: Mode, silos: int, colluders: int, step: float) -> float:
    """Standard deviation of the noise on each coordinate of the opened sum, in units of the statistic."""
    share = share_sd(release, mode=mode, silos=silos, colluders=colluders, step=step)
    return share * math.sqrt(silos)


def rounding_sd(*, silos: int, step: float) -> float:
    """Standard deviation that rounding to the grid alone gives each coordinate of the opened sum."""
    return step * math.sqrt(silos / 12.0)
