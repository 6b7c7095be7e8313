"""What a study costs, release by release: the one plan that is decided on, charged and trained.

Guarantees: every tensor that leaves a silo has a `Cost`, drawn from the study's public constants alone, so that no
price depends on private data. Adding the costs up is accountant.py, remembering them is ledger.py; that the noise
named here is really drawn is the trainer's duty.

The plan, with R training rounds (docs/design/noise.md, "Accounting"; docs/architecture.md, "The round"):

| tensor | rounds | cohort | release |
| --- | --- | --- | --- |
| counts | 0 | training | one Gaussian of `privacy.count_noise` |
| heads | 1 .. R | training | one Gaussian, `heads.pooled_noise` in pooled rounds, then `heads.domain_noise` |
| encoder | 1 .. R-1 | training | `encoder.steps` Poisson-sampled Gaussians of `encoder.noise` |
| metrics | R | evaluation | one Gaussian of `evaluation.noise` |

With distributed noise the cost is the same: the sum of the honest silos' noise has the standard deviation named here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, Literal, get_args

from policies.documents.study import Study
from policies.errors import CostError

Cohort = Literal["training", "evaluation"]
COHORTS: Final[tuple[Cohort, ...]] = get_args(Cohort)
MAX_COUNT: Final = 10**9
MIN_RATE: Final = 1e-9
_LARGEST: Final = sys.float_info.max
MAX_NOISE: Final = 1e6
"""A single release with that much costs an epsilon below 5e-6 at every delta that a policy can state, and nothing from
4e-7 on."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`count` releases over one cohort, each of l2 sensitivity 1 for one patient, with Gaussian noise.

    Attributes:
        cohort: whose patients are read.
        sampling_rate: chance with which a patient takes part in one release (Poisson); 1 means every patient does.
        noise: noise multiplier, the standard deviation for a sensitivity of 1; 0 has no finite price ("unbounded") and
            is allowed for data that the policy declares public, nowhere else.
        count: how many such releases.

    Raises `CostError` on construction for anything that cannot be accounted for.
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
                msg = f"{name} is not a finite number but {str(value)[:20]!r}; write one"
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
        # One spelling per cost, so that 1 and 1.0 have one canonical form in the ledger.
        object.__setattr__(self, "sampling_rate", float(self.sampling_rate))
        object.__setattr__(self, "noise", float(self.noise))


def finite(value: object) -> bool:
    """Whether this is a number that a float can hold; a whole number of 400 digits is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def round_costs(study: Study, round: int) -> dict[str, Cost]:  # noqa: A002 - the protocol's word
    """Costs of one attempt of a round, by tensor. Round 0 counts, rounds 1 to `study.rounds` train.

    Raises `CostError` for a round that the study does not have.
    """
    last = study.rounds
    if not 0 <= round <= last:
        msg = f"round {round} is not in the plan of study {study.name}; its rounds are 0 to {last}"
        raise CostError(msg)
    if round == 0:
        return {"counts": Cost("training", 1.0, study.privacy.count_noise, 1)}
    plan = study.heads
    head_noise = plan.pooled_noise if round <= plan.pooled_rounds else plan.domain_noise
    costs = {"heads": Cost("training", 1.0, head_noise, 1)}
    if round < last:
        encoder = study.encoder
        costs["encoder"] = Cost("training", encoder.sampling_rate, encoder.noise, encoder.steps)
    else:
        costs["metrics"] = Cost("evaluation", 1.0, study.evaluation.noise, 1)
    return costs


def study_costs(study: Study) -> list[Cost]:
    """Costs of a run in which no round has to be repeated, in order of charging."""
    return remaining_costs(study, 0)


def remaining_costs(study: Study, first: int) -> list[Cost]:
    """Costs of the rounds from `first` to the last, one attempt each. Raises `CostError` for an unknown round."""
    _ = round_costs(study, first)  # an unknown round must not pass as an empty, free plan
    return [cost for number in range(first, study.rounds + 1) for cost in round_costs(study, number).values()]


def tensor_costs(study: Study) -> dict[str, list[Cost]]:
    """Costs of a run in which no round has to be repeated, by tensor, in the order in which they appear."""
    by_tensor: dict[str, list[Cost]] = {}
    for number in range(study.rounds + 1):
        for tensor, cost in round_costs(study, number).items():
            by_tensor.setdefault(tensor, []).append(cost)
    return by_tensor


def repeated_costs(study: Study, round: int, attempts: int) -> list[Cost]:  # noqa: A002 - the protocol's word
    """Costs of a round that was charged in so many attempts, from 1.

    Only sums whose noise is distributed are drawn and charged anew; the encoder's update, and every sum under local
    noise, is sent again as it is. Raises `CostError` for an unknown round.
    """
    again = study.privacy.mode == "distributed"
    return [
        cost
        for tensor, cost in round_costs(study, round).items()
        for _ in range(attempts if again and tensor != "encoder" else 1)
    ]
