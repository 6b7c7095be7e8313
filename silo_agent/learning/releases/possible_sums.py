"""What a sum of honest contributions may be, by what was opened before it: an opened sum beyond that is refused.

Nobody reads one silo's contribution, so a silo that sends garbage shows in the sum alone. A patient adds at most 1 in
l2 to a statistic, and the counts of round 0 say how many patients there are, but for their noise. So a sum of n
patients has a norm of at most n and the noise's; no curvature and no number of patients is negative. Guarantees that a
sum of honest contributions is refused with a probability below `_CHANCE` for each of these rules, and that the answer
follows from opened sums and public constants alone, so that all silos give the same one.

What lies within these bounds passes, for example contributions that are flipped and no longer than honest ones
(docs/design/evaluation.md, "What one hospital can move").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from silo_agent.learning.errors import SumError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_PART: Final = 1 << 16
"""Values of a long sum that are looked at together."""
_CHANCE: Final = 1e-15
_MOST_HELD_OUT: Final = 0.5
"""The largest share of its patients that a hospital's policy may hold out."""


@dataclass(frozen=True, eq=False)
class MostPatients:
    """At most so many training patients are behind a sum, by domain (M,) and in all, by the opened counts.

    A silo's counts are clamped to `clamp`, `privacy.max_patients`. Below it no silo's can have been, and the number is
    that of the patients. From there on it bounds each clamped value of a later sum, but not the sum's length.
    """

    by_domain: Floats
    total: float
    clamp: float

    @classmethod
    def of(cls, counts: Floats, sd: float, rounding: float, *, uncounted: int, clamp: float) -> Self:
        """From the noised sizes (M,), with the deviation of their noise and most that the grid moves each.

        `uncounted` silos of the sum at hand were not among the counted ones; nothing is known of these but the clamp.
        """
        others, domains = uncounted * clamp, len(counts)
        own = counts + noise_margin(sd, domains) + rounding
        total = float(counts.sum()) + noise_margin(sd * math.sqrt(domains), 1) + rounding * domains
        return cls(np.maximum(own, 0.0) + others, max(total, 0.0) + others, clamp)

    @classmethod
    def unknown(cls, domains: int, silos: int, clamp: float) -> Self:
        """If nothing is counted yet: what the clamp allows so many silos."""
        return cls(np.full(domains, silos * clamp), silos * clamp, clamp)

    def of_blocks(self, blocks: int) -> list[float]:
        """The same for each block of a sum: all patients, the domains, or the domains and then all."""
        if blocks == 1:
            return [self.total]
        return [*map(float, self.by_domain), self.total][:blocks]

    def held_out(self) -> list[float]:
        """At most so many held-out patients by domain.

        Each patient is held out by chance, at most one of two. If n of p patients train, p lies below the solution of
        p/2 - z sqrt(p)/2 = n, and at most p/2 + z sqrt(p)/2 are held out.
        """
        z = _deviations(len(self.by_domain))
        patients = ((z + np.sqrt(z * z + 8.0 * self.by_domain)) / 2.0) ** 2
        return [float(most) for most in _MOST_HELD_OUT * (patients + z * np.sqrt(patients))]


@dataclass(frozen=True)
class Judge:
    """Judges vectors of one opened sum. `sd`: of the noise on every value; `rounding`: most that the grid moves one."""

    tensor: str
    sd: float
    rounding: float
    clamp: float

    def within(self, values: Floats | Integers, most: float) -> None:
        """Raise `SumError` unless so many patients can give the vector (d,), each at most 1 in l2."""
        self.inside(values, most)
        length = most + norm_margin(self.sd, values.size) + self.rounding * math.sqrt(values.size)
        self._refuse_if(
            most < self.clamp and _norm(values) > length,
            "it is longer than the counted patients can make it",
        )

    def within_reach(self, values: Floats | Integers, most: float, patients: MostPatients) -> None:
        """The same for vectors that are `most` long in all; nothing if the patients may not all have been counted."""
        if patients.total < self.clamp:
            Judge(self.tensor, self.sd, self.rounding, math.inf).within(values, most)

    def inside(self, values: Floats | Integers, most: float) -> None:
        """Raise `SumError` if a value's size is above `most`, noise aside."""
        self._refuse_if(
            _largest(values) > most + noise_margin(self.sd, values.size) + self.rounding,
            "a value exceeds what the counted patients can give",
        )

    def not_negative(self, values: Floats) -> None:
        """Raise `SumError` if a number of patients lies below 0 by more than its noise."""
        self._refuse_if(
            float(values.min(initial=0.0)) < -noise_margin(self.sd, values.size) - self.rounding,
            "a number of patients is negative",
        )

    def at_most(self, values: Floats, most: float) -> None:
        """Raise `SumError` if numbers of patients add up to more than `most`, noise aside."""
        margin = noise_margin(self.sd * math.sqrt(values.size), 1) + self.rounding * values.size
        self._refuse_if(
            most < self.clamp and float(values.sum()) > most + margin,
            "there are more patients than the counted ones allow",
        )

    def curved(self, hessian: Floats, most: float) -> None:
        """Raise `SumError` if a curvature (W, W), in the units of svec, has a negative direction beyond its noise.

        The noise of a symmetric matrix with svec of deviation sd has a largest eigenvalue of at most sd sqrt(2 W) in
        the mean, and it is Lipschitz in sd. Clamped values may bend a curvature.
        """
        width = len(hessian)
        edge = self.sd * (math.sqrt(2.0 * width) + _deviations(1)) + self.rounding * width
        self._refuse_if(
            most < self.clamp and float(np.linalg.eigvalsh(hessian).min(initial=0.0)) < -edge, "a curvature is negative"
        )

    def _refuse_if(self, wrong: object, what: str) -> None:
        if wrong:
            msg = f"the opened {self.tensor} is no sum of honest contributions: {what}"
            raise SumError(msg)


def _largest(values: Floats | Integers) -> float:
    """The largest size of a value, without a copy of the vector."""
    return max(float(values.max(initial=0)), -float(values.min(initial=0)))


def _norm(values: Floats | Integers) -> float:
    """The l2 norm, without a copy of the vector."""
    flat = values.reshape(-1)
    parts = (flat[begin : begin + _PART].astype(np.float64) for begin in range(0, flat.size, _PART))
    return math.sqrt(math.fsum(float(part @ part) for part in parts))


def most_drawn(patients: float, rate: float) -> float:
    """At most so many of independent draws at `rate` succeed (Bernstein), and all of them if that is more."""
    z = _deviations(1)
    return min(patients, patients * rate + z * math.sqrt(patients * rate) + z * z / 3.0) if rate < 1.0 else patients


def noise_margin(sd: float, values: int) -> float:
    """None of so many values with noise of deviation `sd` lies further out than this."""
    return sd * _deviations(max(values, 1))


def norm_margin(sd: float, values: int) -> float:
    """The noise of so many values has at most this l2 norm: its mean is below sd sqrt(d), and it is Lipschitz in sd."""
    return sd * (math.sqrt(values) + _deviations(1))


def _deviations(values: int) -> float:
    """How many standard deviations out none of so many values lies, but with probability `_CHANCE`."""
    return math.sqrt(2.0 * math.log(2.0 * values / _CHANCE))
