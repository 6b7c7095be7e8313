"""The price tag of a release: how many draws, over which cohort, with how much noise.

Guarantees: every `Cost` that exists can be accounted for. Equal costs are written alike, so the ledger has one
canonical form for each. release.py says which releases a study has; accounting/accountant.py adds costs up.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, Literal, get_args

from policies.errors import CostError

Cohort = Literal["training", "evaluation"]
COHORTS: Final[tuple[Cohort, ...]] = get_args(Cohort)
MAX_COUNT: Final = 10**9
MIN_RATE: Final = 1e-9
_LARGEST: Final = sys.float_info.max
MAX_NOISE: Final = 1e6
"""A single release with this much noise costs an epsilon below 5e-6 at every delta that a policy can state, and none at
a delta of 4e-7 or more."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`count` releases over one cohort, each of l2 sensitivity 1 for one patient, with Gaussian noise.

    Attributes:
        cohort: the cohort whose patients are read.
        sampling_rate: chance that a patient takes part in one release (Poisson); 1 means that every patient does.
        noise: noise multiplier, the standard deviation for a sensitivity of 1. A noise of 0 has no finite price
            ("unbounded"); it is allowed only for data that the policy declares public.
        count: number of such releases.

    Raises `CostError` on construction if a value cannot be accounted for.
    """

    cohort: Cohort
    sampling_rate: float
    noise: float
    count: int

    def __post_init__(self) -> None:
        if self.cohort not in COHORTS:
            msg = f"cohort {self.cohort!r} is unknown; it must be one of {', '.join(COHORTS)}"
            raise CostError(msg)
        for name, value in (("sampling_rate", self.sampling_rate), ("noise", self.noise)):
            if not finite(value):
                msg = f"{name} is not a finite number: {str(value)[:20]!r}; write one"
                raise CostError(msg)
        if not MIN_RATE <= self.sampling_rate <= 1:
            msg = f"sampling_rate {self.sampling_rate} must lie between {MIN_RATE:g} and 1"
            raise CostError(msg)
        if not 0 <= self.noise <= MAX_NOISE:
            msg = f"noise {self.noise} must lie between 0 and {MAX_NOISE:g}"
            raise CostError(msg)
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 1 <= self.count <= MAX_COUNT:
            msg = f"count {self.count!r} must be a whole number from 1 to {MAX_COUNT}"
            raise CostError(msg)
        # Always floats, so that 1 and 1.0 have one canonical form in the ledger.
        object.__setattr__(self, "sampling_rate", float(self.sampling_rate))
        object.__setattr__(self, "noise", float(self.noise))


def finite(value: object) -> bool:
    """Whether the value is a number that a float can hold; a whole number of 400 digits is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
