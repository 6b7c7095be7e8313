"""The accountant: what a list of costs adds up to, as (epsilon, delta) for adding or removing one patient.

Guarantees: `epsilon` is an upper bound. For plans of practical size it lies within 1 % of the exact value at a delta of
1e-7 or more (tests compare it with the closed form and with Opacus), and some per cent above it at a smaller delta. A
delta outside [1e-12, 1) is refused; a cost that cannot be accounted for cannot be made (plan/cost.py). The accountant
keeps no state but caches; the ledger remembers what was spent.

**How.** Plain Gaussian releases compose exactly to one Gaussian of noise (sum count/noise^2)^-1/2 (Dong, Roth and Su
2022, "Gaussian differential privacy", Cor. 3.3). Its epsilon has a closed form (Balle and Wang 2018, Thm. 8).
Poisson-sampled releases are composed as privacy loss distributions (dp-accounting, "connect the dots", Doroshenko et
al. 2022: pessimistic at any grid). The result is then composed with that one Gaussian. Equal releases are merged before
anything is computed.

Two upper bounds keep a hostile plan from exhausting memory. First, noise below `SAMPLED_FLOOR` is charged as if every
patient took part; this is an upper bound because sampling only amplifies privacy, by joint convexity of the
hockey-stick divergence. Second, two kinds of plan are charged their Renyi bound: a plan whose Renyi bound passes
`CEILING`, which lies above every budget that a policy can state, and a plan with more releases than any study has.

Rounding moves the delta of the composed distribution by less than `_allowance`, so that much less is asked for. If
nothing is left of delta, the answer is the Renyi bound, which needs no transform. A patient is in one cohort, so the
larger epsilon of the two cohorts counts, and not their sum.

Proofs: docs/design/noise.md, "Rounding in the accountant", "Two cohorts" and "What the accountant assumes".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from policies.documents.study import Study
from policies.errors import CostError
from policies.plan.cost import COHORTS, MAX_NOISE, Cohort, Cost
from policies.plan.release import noise_fields, plan

CEILING: Final = 40.0
"""Epsilon above which the Renyi bound replaces the exact sum; no budget exceeds 32 (documents/policy.py)."""
MIN_DELTA: Final = 1e-12
MAX_TARGET: Final = 32.0
"""Largest epsilon to which noise is calibrated; also the largest budget of a policy."""
ROUNDING: Final = 1e-6
"""Largest relative difference of a price due to the order of its costs or to another machine's floating point."""
SAMPLED_FLOOR: Final = 0.3
"""Noise below which Poisson sampling is given no credit."""
_COARSE, _FINE = 1e-4, 2e-5
"""Steps of the privacy-loss grid. The fine step is for many releases that each lose little."""
_FINE_NOISE: Final = 1.0
_RENYI_ORDERS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_MAX_GAUSSIAN: Final = 1e4
"""Epsilon above which the closed form is not solved; every budget is far below."""
_MAX_RELEASES: Final = 5_000_000
"""Number of sampled releases above which the Renyi bound replaces the exact sum; the largest study has 4 million."""
_RELEASE_ROUNDING: Final = 2.0**-42
_INVERSE_ROUNDING: Final = 200 * _RELEASE_ROUNDING
"""Most by which rounding moves delta, for each sampled release and for each inverse transform."""
_FACTOR_STEP: Final = 1e-9
"""Width of the bracket around the factor's logarithm at which the search ends if epsilon jumps across the target."""


class _Sampled(NamedTuple):
    rate: float
    noise: float
    times: int


class _Merged(NamedTuple):
    precision: float
    """Sum of count / noise^2 over plain Gaussian releases; 0 if there are none."""
    sampled: tuple[_Sampled, ...]


def epsilon(costs: Iterable[Cost], delta: float) -> float:
    """Upper bound on epsilon at `delta` for adding or removing a patient.

    It is 0.0 for no costs, and infinite if a cost lacks noise. Raises `CostError` for a delta outside [1e-12, 1); at a
    smaller delta, rounding in float64 would decide the result.
    """
    return _epsilon(costs, delta, rounded_up=True)


def least_stated(costs: Iterable[Cost], delta: float) -> float:
    """Epsilon without the allowance for rounding, as `epsilon` was before version 0.5: the least any ledger may state.

    It serves to check figures that were charged then and still stand, never to charge. Raises what `epsilon` raises.
    """
    return _epsilon(costs, delta, rounded_up=False)


def _epsilon(costs: Iterable[Cost], delta: float, *, rounded_up: bool) -> float:
    if not MIN_DELTA <= delta < 1:
        msg = f"delta {delta!r} must lie between {MIN_DELTA:g} and 1; choose one well below 1 / number of patients"
        raise CostError(msg)
    held = list(costs)
    if any(cost.noise == 0 for cost in held):
        return math.inf
    parts = (_merge(c for c in held if c.cohort == cohort) for cohort in COHORTS)
    return max(_cohort_epsilon(part, delta, rounded_up=rounded_up) for part in parts)


def _merge(costs: Iterable[Cost]) -> _Merged:
    """Merge equal releases. First appearance sets their order, so that a growing ledger reuses what is composed."""
    plain: dict[float, int] = {}
    sampled: dict[tuple[float, float], int] = {}
    for cost in costs:
        if cost.sampling_rate == 1 or cost.noise < SAMPLED_FLOOR:
            plain[cost.noise] = plain.get(cost.noise, 0) + cost.count
        else:
            key = (cost.sampling_rate, cost.noise)
            sampled[key] = sampled.get(key, 0) + cost.count
    return _Merged(
        precision(plain.items()), tuple(_Sampled(rate, noise, count) for (rate, noise), count in sampled.items())
    )


def precision(releases: Iterable[tuple[float, int]]) -> float:
    """Sum of count / noise^2 over plain Gaussian releases, given as (noise, count); infinite if no float holds it."""
    try:
        return math.fsum(count / noise / noise for noise, count in releases)
    except OverflowError:  # every term is finite, but their sum exceeds a float
        return math.inf


@lru_cache(maxsize=4096)
def _cohort_epsilon(merged: _Merged, delta: float, *, rounded_up: bool) -> float:
    if not merged.sampled:
        return gaussian_epsilon(math.sqrt(merged.precision), delta) if merged.precision else 0.0
    bound = _renyi_epsilon(merged, delta)
    rest = delta - _allowance(merged) if rounded_up else delta
    if bound > CEILING or sum(item.times for item in merged.sampled) > _MAX_RELEASES or rest <= 0:
        return bound
    grid = _grid(merged)
    total = _composed(merged.sampled, grid)
    if merged.precision:
        total = total.compose(_gaussian(merged.precision, grid))
    return min(bound, max(0.0, float(total.get_epsilon_for_delta(rest))))


def _allowance(merged: _Merged) -> float:
    """Most that rounding has taken from the composed distribution's delta.

    Each kind of release needs a power and its inverse transform. Each further kind needs a product and its inverse
    transform; both factors of the product are transformed anew, which counts as 2 releases and is within the 200.
    """
    transforms = 2 * len(merged.sampled) + bool(merged.precision)
    return sum(item.times for item in merged.sampled) * _RELEASE_ROUNDING + transforms * _INVERSE_ROUNDING


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon at `delta` of a Gaussian release with sensitivity / deviation = mu > 0.

    Solves delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu) (Balle and Wang 2018, Thm. 8). An epsilon
    above 10,000 is given as infinite.
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    def excess(eps: float) -> float:
        first = math.exp(log_ndtr(mu / 2 - eps / mu))
        return first - math.exp(min(0.0, eps + log_ndtr(-mu / 2 - eps / mu))) - delta

    if excess(0.0) <= 0:
        return 0.0
    # Tail bound: eps = mu^2/2 + mu sqrt(2 ln(1/delta)) is always enough.
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    if not high <= _MAX_GAUSSIAN:
        return math.inf
    return float(brentq(excess, 0.0, high, xtol=1e-12, rtol=1e-12))


def _renyi_epsilon(merged: _Merged, delta: float) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=_RENYI_ORDERS)
    if merged.precision:
        accountant.compose(GaussianDpEvent(1 / math.sqrt(merged.precision)))
    for rate, noise, count in merged.sampled:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), count)
    return float(accountant.get_epsilon(delta))


def _grid(merged: _Merged) -> float:
    """Step of the loss grid: well below the deviation of one release's loss, if that can be afforded.

    A grid of step h adds a variance of about h^2 per release. The loss of one sampled Gaussian has a variance of about
    rate^2 (exp(1/noise^2) - 1).
    """
    releases = sum(item.times for item in merged.sampled)
    variance = merged.precision + math.fsum(n * rate**2 * math.expm1(noise**-2) for rate, noise, n in merged.sampled)
    affordable = all(item.noise >= _FINE_NOISE for item in merged.sampled)
    return _FINE if affordable and math.sqrt(variance / releases) < 5 * _COARSE else _COARSE


@lru_cache(maxsize=64)
def _single(rate: float, noise: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=grid, use_connect_dots=True
    )


@lru_cache(maxsize=16)
def _composed(items: tuple[_Sampled, ...], grid: float) -> Any:
    """Composition of sampled releases: the last item is added to the rest, which is cached."""
    *rest, last = items
    grown = _single(last.rate, last.noise, grid).self_compose(last.times)
    return _composed(tuple(rest), grid).compose(grown) if rest else grown


def _gaussian(precision: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / math.sqrt(precision), value_discretization_interval=grid, use_connect_dots=True
    )


def calibrate(study: Study, epsilon: float, *, keep: Collection[str] = (), repeated: bool = False) -> Study:
    """The study with its noise scaled so that a run without repeated rounds costs at most `epsilon` at its delta.

    With `repeated` a run costs at most `epsilon` in which any one round is charged twice. One factor scales all
    training noise (counts, heads, encoder), another the evaluation noise, so that each cohort costs between 99.9 % and
    100 % of the target. Noise of the fields in `keep` stays as it is; what they name must cost
    less than the target. Raises `CostError` for a target outside (0, 32], for one that no noise up to 1e6 reaches, and
    for a study without noise.
    """
    require_aim(study, epsilon)
    training = _factor(study, epsilon, "training", keep, repeated=repeated)
    evaluation = _factor(study, epsilon, "evaluation", keep, repeated=repeated)
    return _scaled(study, training, evaluation, keep)


def require_aim(study: Study, epsilon: float) -> None:
    """Raise `CostError` for a target outside (0, 32] and for a study without noise."""
    if study.privacy.mode == "none":
        msg = "a study without noise has no epsilon to aim at; choose another privacy.mode and give it noise"
        raise CostError(msg)
    if not 0 < epsilon <= MAX_TARGET:
        msg = f"epsilon {epsilon!r} cannot be aimed at; choose one above 0 and at most {MAX_TARGET:g}"
        raise CostError(msg)


def _scaled(study: Study, training: float, evaluation: float, keep: Collection[str]) -> Study:
    factors = dict.fromkeys(noise_fields(["training"], study), training)
    factors |= dict.fromkeys(noise_fields(["evaluation"], study), evaluation)
    changed = {field: field_of(study, field) * factor for field, factor in factors.items() if field not in keep}
    return with_fields(study, changed)


def field_of(study: Study, field: str) -> float:
    """The number in a field of the study, named `part.field`."""
    part, name = field.split(".")
    return float(getattr(getattr(study, part), name))


def with_fields(study: Study, fields: Mapping[str, object]) -> Study:
    """The study with some fields replaced, each named `part.field`."""
    for field, value in fields.items():
        part, name = field.split(".")
        changed = getattr(study, part).model_copy(update={name: value})
        study = study.model_copy(update={part: changed})
    return study


def _factor(study: Study, target: float, cohort: Cohort, keep: Collection[str], *, repeated: bool) -> float:
    """A factor on a cohort's noise with which the cohort costs between 99.9 % and 100 % of `target`.

    The search brackets the logarithm of the factor, then interpolates between the logarithms of the epsilons at both
    ends.
    """
    noises = {field: field_of(study, field) for field in noise_fields([cohort], study) if field not in keep}

    def cost(log_factor: float) -> float:
        factor = math.exp(log_factor)
        tried = with_fields(study, {field: noise * factor for field, noise in noises.items()})
        releases = plan(tried)
        planned = [c for c in releases.costs() if c.cohort == cohort]
        again = [[c for c in extra if c.cohort == cohort] for extra in releases.repeats()] if repeated else [[]]
        return max(
            _cohort_epsilon(_merge([*planned, *extra]), study.privacy.delta, rounded_up=True)
            for extra in again
            if extra or not any(again)
        )

    most = math.log((1 - 1e-12) * MAX_NOISE / max(noises.values()))
    high, step = 0.0, 0.25
    cost_high = cost(high)
    while cost_high > target:
        if high >= most:
            msg = f"no noise up to {MAX_NOISE:g} brings the study to epsilon {target:g}; raise the target"
            raise CostError(msg)
        high, step = min(high + step, most), step * 2
        cost_high = cost(high)
    low, step = high, 0.25
    cost_low = cost_high
    while cost_low <= target:
        high, cost_high = low, cost_low
        low, step = low - step, step * 2
        cost_low = cost(low)
    while cost_high < 0.999 * target and high - low > _FACTOR_STEP:
        share = 0.5
        if cost_high > 0 and math.isfinite(cost_low):
            aim = math.log(cost_low / (0.9995 * target)) / math.log(cost_low / cost_high)
            share = min(0.95, max(0.05, aim))
        middle = low + share * (high - low)
        cost_middle = cost(middle)
        if cost_middle <= target:
            high, cost_high = middle, cost_middle
        else:
            low, cost_low = middle, cost_middle
    return math.exp(high)
