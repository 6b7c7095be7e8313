"""What a study would cost, priced by tensor before anybody trains; and noise, clips and rounds that reach a target.

Guarantees: prices come from the same plan and the same accountant as the ledger's. A recommendation is rounded so that
the printed figures cost no more than the target. This module reads public constants only; decision.py decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policies.accounting import accountant, overlap
from policies.accounting.accountant import field_of, with_fields
from policies.documents.study import Study
from policies.errors import CostError
from policies.plan.cost import COHORTS, Cost
from policies.plan.release import noise_fields, plan

_DIGITS: Final = 4
"""Significant digits of a recommended noise."""
_CLOSE: Final = 1e-3
"""The search for the encoder's noise ends at this relative distance from the target, or between two noises."""
_WIDEN: Final = 1.5
"""Factor between the noises that are tried in search of a bracket."""
_LEAST_HEAD_CLIP: Final = 0.5
"""Below it probabilities were measured to come out too low (docs/design/heads.md, "Clip")."""
_LEAST_NOISE: Final = 0.5
"""Least noise of the encoder that is recommended. Smaller noise is slow to price and hides next to nobody."""
_MOST_NOISE: Final = 1e4
"""Largest noise of the encoder that is tried. With it the encoder adds nothing to any epsilon worth planning for."""


@dataclass(frozen=True)
class Prices:
    """Epsilons at one delta of a run in which no round is repeated; infinite if noise is missing."""

    delta: float
    total: float
    alone: dict[str, float]
    """By tensor: epsilon as if the tensor were the only one."""
    cohorts: dict[str, float]
    """By cohort, training and evaluation. The total is the larger one, because each patient is in one of them only."""
    dearest_round: float
    """Epsilon of the round that costs most by itself."""
    repeated: float
    """Epsilon of a run in which the round that adds most is charged once more."""
    spoilt: float
    """The same, if that attempt ended at a spoilt sum: all that the round releases is charged once more."""
    several: dict[int, float]
    """By number of hospitals: epsilon for a patient of that many of the study's hospitals (overlap.py)."""


@dataclass(frozen=True)
class Noises:
    """Recommended noise multipliers, and what the study then costs."""

    epsilon: float
    fields: dict[str, float]
    """Noise by field of the study, named `part.field`."""
    clips: dict[str, float]
    """Recommended clip by field of the study, named `part.field`; never above the study's own.

    The clips cost no epsilon. Where the noise multiplier grows, a smaller clip lets no more noise reach the model than
    the study plans, because the noise in the model is noise multiplier times clip. Where it falls, the clip stays: a
    larger one would pay epsilon and leave as much noise as before. The gradient keeps its direction and loses some of
    its size, as with the product of clip and learning rate in De et al. 2022, "Unlocking high-accuracy differentially
    private image classification".
    """


@dataclass(frozen=True)
class Advice:
    """Ways to reach a target; None for a way that cannot reach it alone."""

    target: float
    scaled: Noises
    """All noise is scaled, by one factor for training and by another for evaluation."""
    encoder_only: Noises | None
    """Only the encoder's noise is changed."""
    domain_rounds: int | None
    """Most rounds on the domain heads that fit the target with the noise unchanged; never more than the study has."""
    split: Noises | None = None
    """The noise with a given share of the budget for the encoder (`split`), if a share was given."""


def price(study: Study, delta: float) -> Prices:
    """Price a study at `delta`. Raises `CostError` for a delta outside [1e-12, 1)."""
    planned = plan(study)
    costs = planned.costs()
    rounds = (planned.round_costs(number).values() for number in range(len(planned.rounds)))
    repeated = {tuple(extra) for extra in planned.repeats()}
    spoilt = {tuple(extra) for extra in planned.repeats(spoilt=True)}
    # Without an encoder and with distributed noise both are the same, and an epsilon takes its time.
    runs = {extra: accountant.epsilon([*costs, *extra], delta) for extra in repeated | spoilt}
    return Prices(
        delta,
        accountant.epsilon(costs, delta),
        {tensor: accountant.epsilon(own, delta) for tensor, own in planned.tensor_costs().items()},
        {cohort: accountant.epsilon((c for c in costs if c.cohort == cohort), delta) for cohort in COHORTS},
        max(accountant.epsilon(own, delta) for own in rounds),
        max(runs[extra] for extra in repeated),
        max(runs[extra] for extra in spoilt),
        overlap.of_plan(costs, len(study.silos), delta),
    )


def advise(study: Study, target: float, delta: float, encoder_share: float | None = None) -> Advice:
    """Ways in which the whole study costs at most `target` at `delta`. `encoder_share`: see `split`.

    Raises `CostError` for a study without noise, a target outside (0, 32], or a target that no rounded noise meets, and
    what `split` raises.
    """
    return Advice(
        target,
        scaled(study, target, delta),
        _encoder_only(study, target, delta),
        _fewer_rounds(study, target, delta),
        None if encoder_share is None else split(study, target, delta, encoder_share),
    )


def split(study: Study, target: float, delta: float, encoder_share: float) -> Noises:
    """Noise with which the study costs at most `target`, and the encoder takes this share of it.

    Shares are those of squares, in which Gaussian releases add up: with a share s the encoder alone costs what a
    Gaussian of sqrt(s) times the mu of the target costs. Noise of counts and heads is scaled by one factor, so that all
    together cost the target. Raises `CostError` for a share outside (0, 1), a study that trains no encoder, a share so
    small or large that no noise of the encoder gives it, and as `advise`.
    """
    if not 0 < encoder_share < 1:
        msg = f"the encoder's share {encoder_share!r} must lie between 0 and 1; encoder.rounds 0 leaves the encoder out"
        raise CostError(msg)
    accountant.require_aim(study, target)
    at_delta = with_fields(study, {"privacy.delta": delta})
    if "encoder" not in plan(study).tensor_costs():
        msg = "the study trains no encoder (encoder.rounds is 0), so it cannot have a share of the budget"
        raise CostError(msg)
    alone = accountant.gaussian_epsilon(math.sqrt(encoder_share) * _mu(target, delta), delta)

    def cost(noise: float) -> float:
        return accountant.epsilon(plan(with_fields(study, {"encoder.noise": noise})).tensor_costs()["encoder"], delta)

    if cost(_MOST_NOISE) > alone:
        msg = f"no noise of the encoder costs as little as {encoder_share:g} of epsilon {target:g}; raise the share"
        raise CostError(msg)
    own = {"encoder.noise": _up(_least(cost, study.encoder.noise, alone))}
    scaled = accountant.calibrate(with_fields(at_delta, own), target, keep=own)
    return _rounded(study, {field: field_of(scaled, field) for field in noise_fields(COHORTS, study)}, target, delta)


def _mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian that costs this epsilon, from below."""
    low, high = 0.0, 1.0
    while accountant.gaussian_epsilon(high, delta) <= epsilon:
        low, high = high, 2 * high
    while high - low > _CLOSE * _CLOSE * high:
        middle = (low + high) / 2
        low, high = (middle, high) if accountant.gaussian_epsilon(middle, delta) <= epsilon else (low, middle)
    return low


def scaled(study: Study, target: float, delta: float, *, repeated: bool = False) -> Noises:
    """All noise, scaled by one factor for training and another for evaluation. Raises what `advise` raises.

    With `repeated` the target also covers one round that is charged twice, whichever it is.
    """
    calibrated = accountant.calibrate(with_fields(study, {"privacy.delta": delta}), target, repeated=repeated)
    fields = {field: field_of(calibrated, field) for field in noise_fields(COHORTS, study)}
    return _rounded(study, fields, target, delta, repeated=repeated)


def _encoder_only(study: Study, target: float, delta: float) -> Noises | None:
    """The least noise of the encoder that does; None if the rest costs too much or there is no encoder sum."""

    def cost(noise: float) -> float:
        return _epsilon(with_fields(study, {"encoder.noise": noise}), delta)

    if "encoder" not in plan(study).tensor_costs() or cost(_MOST_NOISE) > target:
        return None
    return _rounded(study, {"encoder.noise": _least(cost, study.encoder.noise, target)}, target, delta)


def _least(cost: Callable[[float], float], start: float, target: float) -> float:
    """A noise between `_LEAST_NOISE` and `_MOST_NOISE` that costs at most `target`, and little less if possible.

    The search brackets the noise starting at `start`, because small noise is slow to price. It then interpolates
    between the logarithms of the costs at both ends.
    """
    high, cost_high = start, cost(start)
    while cost_high > target:
        high = min(high * _WIDEN, _MOST_NOISE)
        cost_high = cost(high)
    low, cost_low = high, cost_high
    while cost_low <= target and low > _LEAST_NOISE:
        high, cost_high = low, cost_low
        low = max(low / _WIDEN, _LEAST_NOISE)
        cost_low = cost(low)
    if cost_low <= target:
        return low
    while cost_high < (1 - _CLOSE) * target and high / low > 1 + _CLOSE:
        share = math.log(cost_low / target) / math.log(cost_low / cost_high) if math.isfinite(cost_low) else 0.5
        middle = low * (high / low) ** min(0.95, max(0.05, share + _CLOSE))
        cost_middle = cost(middle)
        if cost_middle <= target:
            high, cost_high = middle, cost_middle
        else:
            low, cost_low = middle, cost_middle
    return high


def _fewer_rounds(study: Study, target: float, delta: float) -> int | None:
    """The largest number of domain rounds within the target; epsilon grows with their number."""

    def fits(rounds: int) -> bool:
        return _epsilon(with_fields(study, {"heads.domain_rounds": rounds}), delta) <= target

    return _largest(fits, study.heads.domain_rounds)


def _largest(fits: Callable[[int], bool], most: int) -> int | None:
    """The largest number from 0 to `most` that fits; None if 0 does not. All numbers below one that fits must fit."""
    if fits(most):
        return most
    if not fits(0):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rounded(study: Study, fields: dict[str, float], target: float, delta: float, *, repeated: bool = False) -> Noises:
    """The noises rounded up to a few digits, so that the printed figures cost no more than those that were found."""
    upward = {field: _up(noise) for field, noise in fields.items()}
    reached = _epsilon(with_fields(study, upward), delta, repeated=repeated)
    if reached > target:  # the accountant's grid can make epsilon jump a little
        upward = {field: _up(noise * (1 + _CLOSE)) for field, noise in upward.items()}
        reached = _epsilon(with_fields(study, upward), delta, repeated=repeated)
    if reached > target:
        msg = f"no noise was found that costs at most epsilon {target:g} at delta {delta:g}; raise the target a little"
        raise CostError(msg)
    return Noises(reached, upward, _clips(study, upward))


def _clips(study: Study, noises: dict[str, float]) -> dict[str, float]:
    clips: dict[str, float] = {}
    for clip, noise, least in (
        ("encoder.clip", "encoder.noise", 0.0),
        ("heads.clip", "heads.domain_noise", min(_LEAST_HEAD_CLIP, study.heads.clip)),
    ):
        if noise in noises:
            own = field_of(study, clip)
            same = own * field_of(study, noise) / noises[noise]
            clips[clip] = own if same >= own else float(f"{max(least, same):.{_DIGITS - 1}g}")
    return clips


def _up(noise: float) -> float:
    places = _DIGITS - 1 - math.floor(math.log10(noise))
    step = 10.0**-places
    return round(math.ceil(noise / step - 1e-9) * step, max(places, 0))


def _epsilon(study: Study, delta: float, *, repeated: bool = False) -> float:
    planned = plan(study)
    again: list[list[Cost]] = planned.repeats() if repeated else [[]]
    return max(accountant.epsilon([*planned.costs(), *extra], delta) for extra in again)
