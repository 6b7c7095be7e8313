"""The public grid on which a study's sums are noised, and whether its noises are fit for it.

Guarantees: a study that passes `require` gives every silo a noise that it can draw, in every round and under every
roster. So nobody is charged for a draw that cannot be made. It reads public constants alone. `plan`, the coordinator,
who creates a study, and every silo, before it charges, call `require`; the study's schema does not, so that studies of
earlier versions can still be read.

A share of noise has at least `LEAST_SIGMA` steps of the grid. Above it a sum of up to 1,000 discrete Gaussians is one
discrete Gaussian to within 1e-60 (Kairouz, Liu, Steinke 2021, Theorem 5: 10 sum_k exp(-2 pi^2 sigma^2 k/(k+1))), so the
accountant's Gaussian covers it. Noise that is too large to be drawn cannot be stated: 1e6 on the finest grid, that of a
sealed step, is less than the sampler's 2^40 steps. The noise of the encoder's own updates is drawn without a grid.

The rooms `crypto` and `policies` do not know each other; a test compares `limit` with the ring's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policies.documents.study import Study
from policies.plan.release import Release, noise_field, plan
from policies.refusals import Reason, Refused, Why

FINEST: Final = 2.0**-16
LEAST_SIGMA: Final = 4.0
SEALED_NORM: Final = 1 << 20
"""L: the largest norm of a patient's integers in a sealed step, whose grid is 1 / L (docs/design/noise.md)."""
_MOST_VALUE, _MOST_SUM = 1 << 30, 1 << 35
"""Largest magnitude of one silo's value and of a sum, of the ring that counts, heads and metrics are summed in."""
_LISTED: Final = 3
"""Most fields that a refusal names."""


@dataclass(frozen=True)
class Sums:
    """The grid of a study's sums: a statistic is clamped to +-`bound` and rounded to whole multiples of `step`."""

    step: float
    bound: float


def limit(silos: int) -> int:
    """The largest integer that one of so many silos may send, so that the sum of all fits."""
    return min(_MOST_VALUE, _MOST_SUM // silos)


def sums_of(max_patients: int, most: int) -> Sums:
    """The finest grid, a power of two of at least 2^-16, with bound / step <= `most` / 2.

    A patient adds at most 1 to a coordinate, so the study's `max_patients` bounds every sum. The statistic takes half
    of `most`, the largest integer that a silo may send, and leaves as much room for noise. A finer step needs less
    noise: the factor is 1 + step sqrt(d).
    """
    return Sums(max(FINEST, 2.0 ** math.ceil(math.log2(max_patients / (most // 2)))), float(max_patients))


def share_sd(release: Release, *, distributed: bool, silos: int, colluders: int, step: float) -> float:
    """Standard deviation of one silo's noise on each coordinate, in units of the statistic. At least one honest silo.

    It is that of the release, raised for rounding to a grid of `step`. In a sum of `silos` with distributed noise each
    draws a part; the colluders' do not count, nor that of the silo whose patient is protected, which knows its own.
    """
    full = release.noise * (1.0 + step * math.sqrt(release.values))
    return full / math.sqrt(silos - 1 - colluders) if distributed else full


def require(study: Study) -> None:
    """Raise `Refused` if a silo could not draw a noise of the study on the grid of its sums."""
    faults = list(dict.fromkeys(_faults(study)))
    if faults:
        more = f"; and {len(faults) - _LISTED} more" if len(faults) > _LISTED else ""
        raise Refused(Reason.BOUNDS, "; ".join(faults[:_LISTED]) + more)


def faults(study: Study) -> Iterator[Why]:
    """The same as reasons of a refusal; none if the study is fit."""
    try:
        require(study)
    except Refused as refusal:
        yield from refusal.reasons


def _faults(study: Study) -> Iterator[str]:
    if study.privacy.mode == "none":
        return
    grid = sums_of(study.privacy.max_patients, limit(len(study.silos)))
    for number, releases in enumerate(plan(study).rounds):
        for release in releases:
            if release.tensor != "encoder":
                yield from _fault(study, release, noise_field(study, number, release.tensor), grid.step)
            elif study.encoder.sealed_steps:
                yield from _fault(study, release, noise_field(study, number, release.tensor), 1.0 / SEALED_NORM)


def _fault(study: Study, release: Release, field: str, step: float) -> Iterator[str]:
    """What is wrong with a noise, and what to write."""
    sigma = _sigma(study, release, step)
    if sigma >= LEAST_SIGMA:
        return
    yield (
        f"study.{field} is {release.noise:g}; on the grid of {step:g} that study.privacy.max_patients"
        f" {study.privacy.max_patients:,} and {len(study.silos)} study.silos give, a silo's noise has a deviation of"
        f" {sigma:.2g} steps, and {LEAST_SIGMA:g} are needed. Set study.{field} to"
        f" {_rounded_up(release.noise * LEAST_SIGMA / sigma):g} or more{_fewer(study, release)}"
    )


def _sigma(study: Study, release: Release, step: float) -> float:
    """Deviation of a share in steps of the grid, in the largest roster, which has the smallest shares."""
    shared, colluders = study.privacy.mode == "distributed", study.privacy.colluders
    return share_sd(release, distributed=shared, silos=len(study.silos), colluders=colluders, step=step) / step


def _fewer(study: Study, release: Release) -> str:
    """The largest `max_patients` with which the noise would do, as the end of a sentence; nothing if there is none."""
    step, half = FINEST, limit(len(study.silos)) // 2
    if release.tensor == "encoder" or _sigma(study, release, step) < LEAST_SIGMA:
        return ""
    while _sigma(study, release, 2.0 * step) >= LEAST_SIGMA:
        step *= 2.0
    return f", or study.privacy.max_patients to {int(step * half):,} or less"


def _rounded_up(value: float) -> float:
    """With three digits, so that what is written is enough."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit
