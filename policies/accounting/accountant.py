"""The accountant: what a list of costs adds up to, as (epsilon, delta) for adding or removing one patient.

Guarantees: `epsilon` is an upper bound, within 1 % of the exact value for plans of practical size at a delta of 1e-7 or
more (tests compare it with the closed form and with Opacus), and some per cent above it at smaller ones; it refuses a
delta outside [1e-12, 1), and costs refuse themselves (costs.py). It keeps no state but caches: remembering what was
spent is ledger.py.

**How.** Plain Gaussian releases compose exactly to one of noise (sum count/noise^2)^-1/2 (Dong, Roth and Su 2022,
"Gaussian differential privacy", Cor. 3.3), whose epsilon has a closed form (Balle and Wang 2018, Thm. 8).
Poisson-sampled ones are composed as privacy loss distributions (dp-accounting, "connect the dots", Doroshenko et al.
2022: pessimistic at any grid), then with that one Gaussian. Equal releases are merged before anything is computed.
Two upper bounds keep a hostile plan from exhausting memory: noise below `SAMPLED_FLOOR` is charged as if every patient
took part (sampling only amplifies, by joint convexity of the hockey-stick divergence), and a plan whose Renyi bound
passes `CEILING`, above every budget that a policy can state, or that has more releases than any study, is charged that
bound.

**Rounding.** The composition is a fast Fourier transform in float64. Its error in delta is absolute: it grows with the
releases and decides alone where delta is small. So the composed distribution is asked for delta less `_allowance`, and
where nothing is left of delta the Renyi bound, which needs no transform, is the answer. The allowance is a worst case,
some thousand times what was ever measured (0.3 * 2^-52 per release). With u = 2^-53 and N <= 2^23 grid points: every
output of a transform is a sum over paths of log2 N <= 23 levels, each with a relative error of at most 4.6 u for the
radices of pocketfft (a complex product sqrt(5) u, Brent, Percival and Zimmermann 2007; its factor u; the additions),
together 106 u. The power n multiplies this by n, and its logarithm's phase, up to pi, adds 10 u per release. These
errors e_k are in frequency. delta at epsilon weighs the losses with max(0, 1 - exp(epsilon - loss)), of variation at
most 2 around the circle, so |error of delta| <= max |e_k| (1 + 2/pi (ln(2N/pi) + 0.58)) < 11.3 max |e_k|: less than
1311 u < 2^-42 for each release. An inverse transform adds at most 106 u sqrt(N) < 200 * 2^-42.

**Two cohorts, one patient: why the larger epsilon and not the sum.** A public hash of the patient's own identity puts
each patient into the training or the evaluation cohort. Let D' be D plus patient x, and let x hash into training. Then
D' and D have the same evaluation cohort, because the hash of one patient reads nothing about another. Every release
on it is, given the earlier outputs, the same random function in both worlds, that is post-processing of what is
already out, also when releases on the two cohorts alternate and each is chosen after seeing the others. So for this
pair the whole transcript is as private as the training releases alone: delta(eps) <= delta_T(eps). If x hashes into
evaluation, delta(eps) <= delta_E(eps). Every neighbouring pair is of one of the two kinds, hence
eps(delta) <= max(eps_T(delta), eps_E(delta)) with the one delta: no factor of two, since no patient is in both
(McSherry 2009, "PINQ", Thm. 4, for a partition by a public predicate, adaptively).
It needs, and others keep: the hash reads the identity only, never a row number or a rank (silo_agent/data); its salt
(the data set's id) and `holdout` never change, else a patient could have been read in both cohorts (the ledger's
genesis binds both); all records of one patient go together; noise and scales use public constants. Where the unit is
the record, a corrected row is another record with its own draw, so only rows are protected, not the person behind them.

**What is assumed.** Costs within a study are fixed by the study before the first release. That a later study may be
chosen after seeing earlier releases is covered exactly for plain Gaussians (Smith and Thakurta 2022, fully adaptive
composition); for Poisson-sampled ones the sum treats the choice as made beforehand, which is the custom. A policy that
lists its studies' digests makes it literally so. The discrete Gaussian on the fine release grid is charged as the
continuous one of the same deviation; release.py raises the deviation for rounding and for summing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from policies.documents.study import Study
from policies.errors import CostError
from policies.plan.costs import COHORTS, Cost, study_costs

CEILING: Final = 40.0
"""Epsilon above which the Renyi bound stands in for the exact sum; budgets end at 32 (policy.py)."""
MIN_DELTA: Final = 1e-12
MAX_TARGET: Final = 32.0
"""Largest epsilon that noise is calibrated to, and the largest budget of a policy."""
SAMPLED_FLOOR: Final = 0.3
"""Noise below which Poisson sampling is given no credit."""
_COARSE, _FINE = 1e-4, 2e-5
"""Steps of the privacy-loss grid; the fine one for many releases that each lose little."""
_FINE_NOISE: Final = 1.0
_RENYI_ORDERS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
_MAX_GAUSSIAN: Final = 1e4
"""Epsilon beyond which the closed form is not solved for; any budget is far below."""
_MAX_RELEASES: Final = 5_000_000
"""Sampled releases above which the Renyi bound stands in; the largest study has 4 million."""
_RELEASE_ROUNDING: Final = 2.0**-42
_INVERSE_ROUNDING: Final = 200 * _RELEASE_ROUNDING
"""What rounding may move delta by, for each sampled release and each inverse transform (see above)."""
_FACTOR_STEP: Final = 1e-9
"""Where the search for a noise factor ends if epsilon jumps across the target."""


class _Sampled(NamedTuple):
    rate: float
    noise: float
    times: int


class _Merged(NamedTuple):
    precision: float
    """Sum of count / noise^2 over plain Gaussian releases, 0 for none."""
    sampled: tuple[_Sampled, ...]


def epsilon(costs: Iterable[Cost], delta: float) -> float:
    """Upper bound on epsilon at `delta` for adding or removing a patient; 0.0 for no costs, inf where one lacks noise.

    Raises `CostError` for a delta outside [1e-12, 1): below it, rounding in float64 would decide.
    """
    return _epsilon(costs, delta, rounded_up=True)


def least_stated(costs: Iterable[Cost], delta: float) -> float:
    """What `epsilon` was before version 0.5, without allowance for rounding: the least that any ledger may state.

    For checking figures that were charged then and stand for good; never for a charge. Raises what `epsilon` raises.
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
    """Equal releases together. First appearance sets the order, so that a growing ledger reuses what is composed."""
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
    """Sum of count / noise^2 over plain Gaussian releases, given as (noise, count); infinite beyond floats."""
    try:
        return math.fsum(count / noise / noise for noise, count in releases)
    except OverflowError:  # finite terms of an infinite sum
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
    """What rounding may have taken from the composed distribution's delta.

    Each kind has a power and its inverse transform, each further kind a product and its own, where both factors are
    transformed anew (2 releases, within the 200).
    """
    transforms = 2 * len(merged.sampled) + bool(merged.precision)
    return sum(item.times for item in merged.sampled) * _RELEASE_ROUNDING + transforms * _INVERSE_ROUNDING


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Exact epsilon at `delta` of a Gaussian release with sensitivity / deviation = mu > 0.

    Solves delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu) (Balle and Wang 2018, Thm. 8); infinite above
    10,000.
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
    """Step of the loss grid: well below the deviation of one release's loss, where that can be afforded.

    A grid of step h adds about h^2 of variance per release; the loss of one sampled Gaussian has variance of about
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
    """Composition of sampled releases, one item on top of the cached rest."""
    *rest, last = items
    grown = _single(last.rate, last.noise, grid).self_compose(last.times)
    return _composed(tuple(rest), grid).compose(grown) if rest else grown


def _gaussian(precision: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        1 / math.sqrt(precision), value_discretization_interval=grid, use_connect_dots=True
    )


def calibrate(study: Study, epsilon: float) -> Study:
    """The study with its noise scaled so that an undisturbed run costs at most `epsilon` at the study's delta.

    One factor scales all training noise (counts, heads, encoder), another the evaluation noise, so that each cohort
    costs between 99.9 % and 100 % of the target. Raises `CostError` for a target outside (0, 32].
    """
    if study.privacy.mode == "none":
        msg = "a study without noise has no epsilon to aim at; give it noise"
        raise CostError(msg)
    if not 0 < epsilon <= MAX_TARGET:
        msg = f"epsilon {epsilon!r} cannot be aimed at; choose one above 0 and at most {MAX_TARGET:g}"
        raise CostError(msg)
    training = _factor(study, epsilon, "training")
    evaluation = _factor(study, epsilon, "evaluation")
    return _scaled(study, training, evaluation)


def _scaled(study: Study, training: float, evaluation: float) -> Study:
    privacy, heads, encoder = study.privacy, study.heads, study.encoder
    return study.model_copy(
        update={
            "privacy": privacy.model_copy(update={"count_noise": privacy.count_noise * training}),
            "heads": heads.model_copy(
                update={
                    "pooled_noise": heads.pooled_noise * training,
                    "domain_noise": heads.domain_noise * training,
                }
            ),
            "encoder": encoder.model_copy(update={"noise": encoder.noise * training}),
            "evaluation": study.evaluation.model_copy(update={"noise": study.evaluation.noise * evaluation}),
        }
    )


def _factor(study: Study, target: float, cohort: str) -> float:
    """A factor on a cohort's noise at which it costs between 99.9 % and 100 % of `target`.

    Brackets the logarithm of the factor, then interpolates between the logarithms of both ends' epsilons.
    """

    def cost(log_factor: float) -> float:
        factor = math.exp(log_factor)
        planned = (c for c in study_costs(_scaled(study, factor, factor)) if c.cohort == cohort)
        return _cohort_epsilon(_merge(planned), study.privacy.delta, rounded_up=True)

    high, step = 0.0, 0.25
    cost_high = cost(high)
    while cost_high > target:
        high, step = high + step, step * 2
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
