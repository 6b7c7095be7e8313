"""The one plan: what a study releases in each round, with how much noise, in which size and ring.

Guarantees: every sum that leaves a silo is one `Release` of `plan(study)`, and the study's public constants alone
determine the plan. One and the same object is decided on, charged, drawn, sealed, logged and explained, so none of
these can differ from another. Sizes, prices, the order of a round at both ends, the gate, the learner and its log all
read it. Code that draws noise takes a `Release` and cannot be called without one.

What is released in which round, with which noise: docs/design/noise.md, "Accounting". At most one tensor of a round
needs the noise of everybody who takes part, and this tensor is the round's first (docs/design/sums.md, "Voided lists").

With distributed noise the cost is the same: the noise of all honest silos together has the standard deviation that is
named here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal

from policies.documents.study import Study
from policies.errors import CostError
from policies.plan import shapes
from policies.plan.cost import Cohort, Cost

Ring = Literal["ckks", "ring32", "ring64"]


@dataclass(frozen=True, slots=True)
class Kind:
    """Facts about a tensor that hold in every study."""

    cohort: Cohort
    """The cohort whose patients it reads."""
    noises: tuple[str, ...]
    """Fields of the study, as `part.field`, that set its noise."""
    solved: bool = False
    """Whether one silo of the roster solves the opened sum; the others then check and adopt its solution."""
    local_noise: bool = False
    """Whether every silo draws the whole noise, whatever `privacy.mode` says, except in sealed steps."""


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "counts": Kind("training", ("privacy.count_noise",)),
        "heads": Kind("training", ("heads.pooled_noise", "heads.domain_noise"), solved=True),
        "encoder": Kind("training", ("encoder.noise",), local_noise=True),
        "metrics": Kind("evaluation", ("evaluation.noise",)),
    }
)


CALIBRATION_NOISE: Final = "heads.calibration_noise"
"""Sets the noise of the heads' last sum in studies that calibrate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One tensor of one round, as a silo releases it. Raises `CostError` for noise that cannot be accounted for.

    Attributes:
        tensor: its name on the wire.
        cohort: the cohort whose patients are read.
        noise: standard deviation of each draw's noise, for an l2 sensitivity of 1; 0 only in a study of public data.
        sampling_rate: chance that a patient takes part in one draw (Poisson); 1 means that every patient does.
        count: number of draws: the steps of DP-SGD, else 1.
        values: length of the summed vector.
        ring: the ring in which it is summed (docs/design/sums.md, "Rings").
        solved: whether one silo solves the opened sum; the others then check and adopt its solution.
        resendable: whether a draw may be sent again under a new roster without a new charge. It may if it carries all
            of its noise, or if the study has no noise, as long as no sum of the round was spoilt since.
    """

    tensor: str
    cohort: Cohort
    noise: float
    sampling_rate: float
    count: int
    values: int
    ring: Ring
    solved: bool
    resendable: bool

    def __post_init__(self) -> None:
        _ = self.cost

    @property
    def cost(self) -> Cost:
        """Its price, as the ledger charges it."""
        return Cost(self.cohort, self.sampling_rate, self.noise, self.count)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every release of a study, by round, in the order in which the round sums them."""

    name: str
    rounds: tuple[tuple[Release, ...], ...]

    @property
    def last(self) -> int:
        """Number of the last round, which follows the training rounds and sums the metrics."""
        return len(self.rounds) - 1

    def round(self, number: int) -> tuple[Release, ...]:
        """Releases of one attempt of a round. Round 0 counts patients, the last sums metrics, those between train.

        Raises `CostError` for a round that the study does not have, so that an unknown round never passes as free.
        """
        if not 0 <= number <= self.last:
            msg = f"round {number} is not in the plan of study {self.name}; its rounds are 0 to {self.last}"
            raise CostError(msg)
        return self.rounds[number]

    def release(self, number: int, tensor: str) -> Release:
        """The release of a tensor in a round. Raises `CostError` if the round has none."""
        for release in self.round(number):
            if release.tensor == tensor:
                return release
        released = ", ".join(self.tensors(number))
        msg = f"round {number} of study {self.name} does not release {str(tensor)!r}; it releases {released}"
        raise CostError(msg)

    def tensors(self, number: int) -> tuple[str, ...]:
        """Names of what a round sums, in order. Raises `CostError` for an unknown round."""
        return tuple(release.tensor for release in self.round(number))

    def ring(self, tensor: str) -> Ring:
        """The ring of a tensor, the same in every round. Raises `CostError` if the study never releases it."""
        for release in self:
            if release.tensor == tensor:
                return release.ring
        msg = f"study {self.name} does not release {str(tensor)!r}; it releases {', '.join(self.tensor_costs())}"
        raise CostError(msg)

    def round_costs(self, number: int) -> dict[str, Cost]:
        """Costs of one attempt of a round, by tensor. Raises `CostError` for an unknown round."""
        return {release.tensor: release.cost for release in self.round(number)}

    def costs(self, first: int = 0) -> list[Cost]:
        """Costs of the rounds from `first` to the last, in the order of charging, if no round is repeated.

        Raises `CostError` for an unknown round.
        """
        _ = self.round(first)
        return [release.cost for releases in self.rounds[first:] for release in releases]

    def repeated_costs(self, number: int, attempts: int, renewed: int = 0) -> list[Cost]:
        """Costs of a round that was charged for `attempts` attempts, at least 1; `renewed` of them were made anew.

        A resendable release is drawn and charged once, and once more for each renewal after a spoilt sum, any other
        release once for each attempt. Raises `CostError` for an unknown round.
        """
        times = {True: min(1 + renewed, attempts), False: attempts}
        return [release.cost for release in self.round(number) for _ in range(times[release.resendable])]

    def repeats(self, *, spoilt: bool = False) -> list[list[Cost]]:
        """What a second charged attempt at a round adds, for each kind of round, the cheapest ones included.

        There is always one; it is empty where nothing is drawn again. With `spoilt` the first attempt ended at a spoilt
        sum, and nothing that it drew is sent again.
        """
        kinds: dict[tuple[Cost, ...], None] = {}
        for releases in self.rounds:
            kinds.setdefault(tuple(release.cost for release in releases if spoilt or not release.resendable))
        return [list(kind) for kind in kinds]

    def tensor_costs(self) -> dict[str, list[Cost]]:
        """Costs by tensor of a run in which no round is repeated; tensors stand in the order of their first release."""
        by_tensor: dict[str, list[Cost]] = {}
        for release in self:
            by_tensor.setdefault(release.tensor, []).append(release.cost)
        return by_tensor

    def __iter__(self) -> Iterator[Release]:
        return (release for releases in self.rounds for release in releases)


# Few: a study that no policy has allowed may be large, and whoever offers many must not fill the memory with them.
@lru_cache(maxsize=8)
def plan(study: Study) -> Plan:
    """The releases of every round of a study, round 0 first. They are computed once for as long as a study is used."""
    domains = len(study.data.domains)
    counts = _release(study, "counts", noise=study.privacy.count_noise, values=domains)
    cells = shapes.metric_blocks(study) * shapes.metric_values(study)
    metrics = _release(study, "metrics", noise=study.evaluation.noise, values=cells)
    training = [tuple(_training(study, number)) for number in range(1, study.rounds + 1)]
    return Plan(study.name, ((counts,), *training, (metrics,)))


def _training(study: Study, number: int) -> Iterator[Release]:
    """What a training round sums."""
    joint = shapes.joint_heads(study, number)
    if shapes.head_round(study, number) is not None and not joint:
        yield _heads(study, number)
    if shapes.sums_encoder(study, number):
        yield encoder_release(study, joint)


def encoder_release(study: Study, heads: int = 0) -> Release:
    """The encoder's update or sealed step, the same in every round that has one but for `heads` trained with it.

    Every step is charged, that of a part which stays at the silo too: what the silo sends later follows from it.
    """
    encoder = study.encoder
    return _release(
        study,
        "encoder",
        noise=encoder.noise,
        values=shapes.encoder_sum_values(study, heads),
        sampling_rate=encoder.sampling_rate,
        count=1 if encoder.sealed_steps else encoder.head_steps + encoder.steps,
        ring=encoder.sealing,
    )


def noise_fields(cohorts: Iterable[Cohort], study: Study | None = None) -> tuple[str, ...]:
    """Fields of a study, as `part.field`, that set the noise of the releases that read these cohorts.

    Without a study, those that every study has.
    """
    wanted = set(cohorts)
    every = tuple(field for kind in KINDS.values() if kind.cohort in wanted for field in kind.noises)
    calibrated = study is not None and study.heads.calibration != "none" and "training" in wanted
    return (*every, CALIBRATION_NOISE) if calibrated else every


def noise_field(study: Study, number: int, tensor: str) -> str:
    """The field of a study, as `part.field`, that sets the noise of a tensor in a round that releases it."""
    if tensor != "heads":
        return KINDS[tensor].noises[0]
    if shapes.is_calibration(study, number):
        return CALIBRATION_NOISE
    pooled, domain = KINDS["heads"].noises
    return pooled if shapes.is_pooled(study, number) else domain


def _heads(study: Study, number: int) -> Release:
    part, field = noise_field(study, number, "heads").split(".")
    noise: float = getattr(getattr(study, part), field)
    return _release(study, "heads", noise=noise, values=shapes.head_values(study, number))


def _release(
    study: Study,
    tensor: str,
    *,
    noise: float,
    values: int,
    sampling_rate: float = 1.0,
    count: int = 1,
    ring: Ring = "ckks",
) -> Release:
    kind = KINDS[tensor]
    return Release(
        tensor=tensor,
        cohort=kind.cohort,
        noise=noise,
        sampling_rate=sampling_rate,
        count=count,
        values=values,
        ring=ring,
        solved=kind.solved,
        resendable=(kind.local_noise and not study.encoder.sealed_steps) or study.privacy.mode != "distributed",
    )
