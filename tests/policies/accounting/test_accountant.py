from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent
from scipy.special import log_ndtr

from policies.accounting import accountant
from policies.errors import CostError
from policies.plan.cost import MAX_COUNT, MAX_NOISE, MIN_RATE, Cost
from policies.plan.release import plan

DELTA = 1e-5


def training(rate: float, noise: float, count: int) -> Cost:
    return Cost("training", rate, noise, count)


def gaussian_by_hand(mu: float, delta: float) -> float:
    """Bisect the textbook formula with the standard library's erfc, which keeps its digits in the tail."""

    def phi(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    low, high = 0.0, 200.0
    for _ in range(200):
        middle = (low + high) / 2
        if phi(mu / 2 - middle / mu) - math.exp(middle) * phi(-mu / 2 - middle / mu) > delta:
            low = middle
        else:
            high = middle
    return high


def epsilon_by_hand(costs: list[Cost], delta: float) -> float:
    """Both directions of add/remove-one, each by convolving histograms of the privacy loss on a grid of 1e-3."""
    return max(_direction(costs, delta, removed=removed) for removed in (True, False))


def _direction(costs: list[Cost], delta: float, *, removed: bool) -> float:
    step, size = 2e-4, 1 << 18
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for cost in costs:
        q, s = cost.sampling_rate, cost.noise
        x = np.linspace(-14 * s, 14 * s + 1, 1_000_001)
        null = np.exp(-(x**2) / (2 * s * s))
        mixed = (1 - q) * null + q * np.exp(-((x - 1) ** 2) / (2 * s * s))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(mixed / null)
        ratio = np.where(np.isfinite(ratio), ratio, (2 * x - 1) / (2 * s * s) + math.log(q))
        loss, weight = (ratio, mixed) if removed else (-ratio, null)
        # Mass is split over the two neighbouring grid points, which keeps the mean loss exact.
        place = loss / step
        floor = np.floor(place)
        share = place - floor
        weight = weight / weight.sum()
        index = floor.astype(np.int64) % size
        histogram = np.bincount(index, weight * (1 - share), size)
        histogram += np.bincount((index + 1) % size, weight * share, size)
        spectrum *= np.fft.rfft(histogram) ** cost.count
    mass = np.clip(np.fft.irfft(spectrum, size), 0, None)
    losses = np.where(np.arange(size) < size * 3 // 4, np.arange(size), np.arange(size) - size) * step
    low, high = 0.0, float(losses.max())
    for _ in range(60):
        middle = (low + high) / 2
        above = losses > middle
        if np.sum(mass[above] * -np.expm1(middle - losses[above])) > delta:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.parametrize("mu", [0.01, 0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8, 1e-12])
def test_one_gaussian_has_its_textbook_epsilon(mu, delta):
    expected = gaussian_by_hand(mu, delta)
    assert accountant.gaussian_epsilon(mu, delta) == pytest.approx(expected, abs=1e-6)
    assert accountant.epsilon([training(1.0, 1 / mu, 1)], delta) == pytest.approx(expected, abs=1e-6)


def test_one_gaussian_beyond_every_budget_is_priced_up_to_ten_thousand():
    assert 5000 < accountant.gaussian_epsilon(100.0, DELTA) < 5500
    assert accountant.gaussian_epsilon(150.0, DELTA) == math.inf
    # The search ends at mu^2/2 + mu sqrt(2 ln(1/delta)), which is enough for every mu.
    tail = math.sqrt(2 * math.log(1 / DELTA))
    within, beyond = (math.sqrt(tail**2 + 2 * bound) - tail for bound in (9999.9, 10000.1))
    assert 9900 < accountant.gaussian_epsilon(within, DELTA) < accountant.gaussian_epsilon(beyond, DELTA) == math.inf


@given(st.lists(st.tuples(st.floats(2, 100), st.integers(1, 20)), min_size=1, max_size=6))
def test_gaussians_compose_to_one(parts):
    mu = math.sqrt(sum(count / noise**2 for noise, count in parts))
    assert accountant.epsilon([training(1, *part) for part in parts], DELTA) == pytest.approx(
        gaussian_by_hand(mu, DELTA), abs=1e-6
    )


# Rate, noise, steps; the fourth makes the fine grid, the last a noisy long run.
PLANS = [(0.02, 1.0, 1000), (0.01, 0.8, 400), (0.1, 2.0, 300), (0.001, 2.0, 4000), (0.01, 5.0, 5000)]


@pytest.mark.parametrize(("rate", "noise", "steps"), PLANS)
def test_sampled_gaussians_agree_with_opacus(rate, noise, steps):
    ours = accountant.epsilon([training(rate, noise, steps)], DELTA)
    independent, renyi = PRVAccountant(), RDPAccountant()
    independent.history = renyi.history = [(noise, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = independent.get_epsilon(DELTA, eps_error=0.002, delta_error=DELTA / 1000)
        bound = renyi.get_epsilon(DELTA)
    assert ours == pytest.approx(exact, rel=0.01, abs=0.0025)
    assert ours <= bound


MIXED = [
    [training(0.02, 1.0, 500), training(1.0, 10.0, 20)],
    [training(0.02, 1.2, 200), training(0.05, 3.0, 100), training(1.0, 8.0, 5), training(1.0, 20.0, 10)],
    [training(0.3, 4.0, 40), training(1.0, 5.0, 1)],
]


@pytest.mark.parametrize("costs", MIXED)
def test_mixed_plans_agree_with_an_independent_convolution(costs):
    assert accountant.epsilon(costs, DELTA) == pytest.approx(epsilon_by_hand(costs, DELTA), rel=0.01)


def test_the_published_figures_of_the_design():
    steps = training(0.02, 1.0, 1000)
    assert accountant.epsilon([steps], DELTA) == pytest.approx(3.90, abs=0.01)
    for noise, expected in ((20.0, 4.02), (10.0, 4.38), (5.0, 5.69)):
        assert accountant.epsilon([steps, training(1.0, noise, 20)], DELTA) == pytest.approx(expected, abs=0.01)


def test_no_costs_cost_nothing():
    assert accountant.epsilon([], DELTA) == 0.0


def test_equal_releases_are_merged():
    many = [training(0.02, 1.0, 1)] * 50
    assert accountant.epsilon(many, DELTA) == accountant.epsilon([training(0.02, 1.0, 50)], DELTA)


def test_sampling_is_credited_from_its_floor_on():
    at, below = (accountant.epsilon([training(0.01, noise, 1)], DELTA) for noise in (0.3, math.nextafter(0.3, 0)))
    assert at == pytest.approx(10.55, abs=0.01)
    assert below == pytest.approx(gaussian_by_hand(1 / 0.3, DELTA), abs=1e-6)


def test_beside_sampled_releases_a_plain_one_is_as_exact_as_alone():
    composed = accountant._gaussian(1.0, 1e-4).get_epsilon_for_delta(DELTA)
    assert gaussian_by_hand(1.0, DELTA) == pytest.approx(composed, abs=1e-6)


def test_two_cohorts_cost_the_larger_of_the_two():
    trained, measured = training(1.0, 4.0, 1), Cost("evaluation", 1.0, 3.0, 1)
    both = accountant.epsilon([trained, measured], DELTA)
    assert both == max(accountant.epsilon([trained], DELTA), accountant.epsilon([measured], DELTA))
    assert both == accountant.epsilon([measured], DELTA)


def test_parallel_composition_holds_for_a_transcript_that_alternates_between_the_cohorts():
    """Exact, by enumeration: randomized response on each cohort in turn, the second chosen after the first's output.

    Any patient lies in one cohort. Over every pair of neighbours and all four outputs, the transcript's loss must not
    exceed the larger of the two cohorts' own epsilons.
    """
    flips = {"training": (0.3, 0.3), "evaluation": (0.1, 0.4)}  # evaluation: flip chance depends on the first output

    def says(bit: int, flip: float, out: int) -> float:
        return 1 - flip if bit == out else flip

    def transcript(train: int, held: int) -> dict[tuple[int, int], float]:
        return {
            (a, b): says(train, flips["training"][0], a) * says(held, flips["evaluation"][a], b)
            for a in (0, 1)
            for b in (0, 1)
        }

    own = {
        "training": math.log(0.7 / 0.3),
        "evaluation": max(math.log((1 - flip) / flip) for flip in flips["evaluation"]),
    }
    for fixed in (0, 1):
        for first, second, cohort in (
            (transcript(0, fixed), transcript(1, fixed), "training"),
            (transcript(fixed, 0), transcript(fixed, 1), "evaluation"),
        ):
            loss = max(abs(math.log(first[out] / second[out])) for out in first)
            assert loss <= own[cohort] + 1e-12
            assert loss <= max(own.values()) + 1e-12


costs = st.builds(
    Cost,
    st.sampled_from(["training", "evaluation"]),
    st.sampled_from([1.0, 0.02, 0.1]),
    st.sampled_from([1.5, 4.0, 20.0]),
    st.integers(1, 30),
)


@settings(max_examples=10, deadline=None)
@given(st.lists(costs, max_size=4), costs)
def test_another_release_never_makes_it_cheaper(held, more):
    before, after = accountant.epsilon(held, DELTA), accountant.epsilon([*held, more], DELTA)
    assert after >= before * (1 - 5e-3)
    assert after >= accountant.epsilon([more], DELTA) * (1 - 5e-3)


@settings(max_examples=8, deadline=None)
@given(st.lists(costs, min_size=1, max_size=4), st.randoms())
def test_the_order_does_not_matter(held, random):
    shuffled = random.sample(held, len(held))
    assert accountant.epsilon(shuffled, DELTA) == pytest.approx(accountant.epsilon(held, DELTA), rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1.0, -1e-5, math.nan, math.inf])
def test_an_impossible_delta_is_refused(delta):
    with pytest.raises(CostError, match="delta"):
        accountant.epsilon([training(1.0, 1.0, 1)], delta)


@pytest.mark.parametrize(
    "cost",
    [
        training(1.0, 1e-9, 10),
        training(0.5, 2.0, 4_000_000),
        training(0.01, 0.05, 10),
        training(0.5, 0.31, 1_000_000),
        training(0.01, 10.0, 10**9),
    ],
)
def test_a_hostile_plan_is_dear_and_nothing_is_composed_for_it(cost, composed):
    assert accountant.epsilon([cost], DELTA) > 32
    assert composed() == (0, 0)


def test_a_plan_beyond_every_budget_by_its_renyi_bound_is_not_composed(composed):
    assert accountant.epsilon([training(0.5, 0.7, 31)], DELTA) == pytest.approx(40.62, abs=0.01)
    assert composed() == (0, 0)


def test_more_releases_than_any_study_has_are_not_composed_however_faint(composed):
    assert accountant.epsilon([training(1e-4, 100.0, 5_000_001)], DELTA) == pytest.approx(0.0449, abs=1e-4)
    assert composed() == (0, 0)


def test_where_rounding_leaves_nothing_of_delta_nothing_is_composed(composed):
    assert accountant.epsilon([training(0.01, 10.0, 400_000)], 1e-12) < 5
    assert composed() == (0, 0)


# Noise of 100 releases with a rate of 0.5, and the order at which their bound is least.
ORDERS = [(1, 2), (2, 3), (4, 4), (5, 6), (8, 8), (12, 12), (16, 16), (24, 24), (40, 32), (64, 64), (128, 128)]


def test_the_renyi_bound_agrees_with_opacus_at_every_order():
    orders = [order for _, order in ORDERS]
    for noise, best in ORDERS:
        for plain in (0.0, noise**-2):
            moments = compute_rdp(q=0.5, noise_multiplier=noise, steps=100, orders=orders)
            if plain:
                moments = moments + compute_rdp(q=1.0, noise_multiplier=noise, steps=1, orders=orders)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, order = get_privacy_spent(orders=orders, rdp=moments, delta=DELTA)
            merged = accountant._Merged(plain, (accountant._Sampled(0.5, noise, 100),))
            assert plain or order == best
            assert accountant._renyi_epsilon(merged, DELTA) == pytest.approx(expected, rel=1e-9)


def test_the_fine_grid_is_for_faint_releases_alone():
    """One release's loss has a deviation of rate * sqrt(exp(1/noise^2) - 1); the fine grid is for 5e-4 and less."""
    fine, coarse = 2e-5, 1e-4
    whole = math.sqrt(math.expm1(1 / 4))
    faint, loud = (accountant._Sampled(deviation / whole, 2.0, 100) for deviation in (4.99e-4, 5.01e-4))
    for sampled, precision, grid in (
        ((faint,), 0.0, fine),
        ((loud,), 0.0, coarse),
        ((faint, loud), 0.0, coarse),
        ((faint, loud._replace(times=1)), 0.0, fine),
        ((faint,), 2e-8, fine),
        ((faint,), 2e-7, coarse),
        ((accountant._Sampled(5e-5, 1.0, 9),), 0.0, fine),
        ((accountant._Sampled(5e-5, 0.99, 9),), 0.0, coarse),
    ):
        assert accountant._grid(accountant._Merged(precision, sampled)) == grid


def test_a_long_plan_of_faint_releases_keeps_its_precision():
    # The central limit: 400,000 losses of deviation 1e-4 are a Gaussian of mu = 0.001 / 10 * sqrt(400,000).
    faint = accountant.epsilon([training(0.001, 10.0, 400_000)], DELTA)
    assert faint == pytest.approx(gaussian_by_hand(0.001 * math.sqrt(400_000 * math.expm1(0.01)), DELTA), rel=0.02)


def test_calibration_asks_for_few_prices_from_wherever_it_begins(make_study, monkeypatch):
    """Each price of a sampled study costs tenths of a second, and the allowance for rounding belongs to all of them."""
    asked, priced = [], accountant._cohort_epsilon

    def price(merged, delta, *, rounded_up):
        asked.append(rounded_up)
        assert len(asked) <= 32
        return priced(merged, delta, rounded_up=rounded_up)

    monkeypatch.setattr(accountant, "_cohort_epsilon", price)
    fields = ("heads.pooled_noise", "heads.domain_noise", "encoder.noise", "evaluation.noise", "privacy.count_noise")
    for noise, targets in ((0.1, (0.01, 1.0)), (10.0, (0.3, 32.0)), (40_000.0, (0.01, 4.0, 32.0))):
        study = make_study({"encoder.sampling_rate": 1.0, **dict.fromkeys(fields, noise)})
        for target in targets:
            asked.clear()
            calibrated = accountant.calibrate(study, target)
            assert all(asked)
            asked.clear()
            assert 0.999 * target <= accountant.epsilon(plan(calibrated).costs(), DELTA) <= target


@pytest.mark.parametrize("target", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_calibration_reaches_its_target_from_below(target, make_study):
    calibrated = accountant.calibrate(make_study(), target)
    for cohort in ("training", "evaluation"):
        spent = accountant.epsilon([c for c in plan(calibrated).costs() if c.cohort == cohort], DELTA)
        assert 0.998 * target <= spent <= target


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_calibration_ends_below_a_target_that_the_price_jumps_across(least, make_study, monkeypatch):
    asked = []

    def price(merged, _delta, *, rounded_up):
        asked.append(rounded_up)
        assert len(asked) < 100
        return least if merged.precision < 1e-3 else 5.0

    monkeypatch.setattr(accountant, "_cohort_epsilon", price)
    calibrated = accountant.calibrate(make_study({"encoder.sampling_rate": 1.0}), 2.0)
    assert 0.999e-3 < accountant._merge(c for c in plan(calibrated).costs() if c.cohort == "training").precision < 1e-3


def test_calibration_leaves_a_study_that_costs_the_target_as_it_is(make_study):
    study = make_study({"encoder.sampling_rate": 1.0, "encoder.noise": 100.0})
    target = accountant.epsilon([c for c in plan(study).costs() if c.cohort == "training"], DELTA)
    calibrated = accountant.calibrate(study, target)
    assert (calibrated.encoder, calibrated.heads) == (study.encoder, study.heads)


def test_calibration_leaves_room_for_any_one_round_once_more(make_study):
    study = make_study({"encoder.sampling_rate": 1.0, "encoder.noise": 100.0})
    calibrated = accountant.calibrate(study, 1.0, repeated=True)
    for cohort, once in (("training", 0.96), ("evaluation", 0.999)):
        costs, *repeated = (
            [one for one in (*plan(calibrated).costs(), *extra) if one.cohort == cohort]
            for extra in ((), *plan(calibrated).repeats())
        )
        dearest = max(accountant.epsilon(one, DELTA) for one in repeated)
        assert 0.999 <= dearest <= 1.0
        assert accountant.epsilon(costs, DELTA) < once


def test_calibration_scales_all_training_noise_by_one_factor(make_study):
    study = make_study()
    calibrated = accountant.calibrate(study, 1.0)
    factor = calibrated.encoder.noise / study.encoder.noise
    assert calibrated.heads.pooled_noise == pytest.approx(study.heads.pooled_noise * factor)
    assert calibrated.heads.domain_noise == pytest.approx(study.heads.domain_noise * factor)
    assert calibrated.privacy.count_noise == pytest.approx(study.privacy.count_noise * factor)
    assert calibrated.model == study.model


def test_calibration_finds_noise_that_is_thousands_of_times_larger(make_study):
    fields = ("heads.pooled_noise", "heads.domain_noise", "encoder.noise", "evaluation.noise", "privacy.count_noise")
    study = make_study({"encoder.sampling_rate": 1.0, **dict.fromkeys(fields, 1.0)})
    calibrated = accountant.calibrate(study, 1e-3)
    assert calibrated.encoder.noise > 2400
    assert 0.999e-3 <= accountant.epsilon(plan(calibrated).costs(), DELTA) <= 1e-3


def test_calibration_refuses_a_target_below_what_the_largest_noise_costs(make_study):
    study = make_study({"encoder.sampling_rate": 1.0, "privacy.delta": 1e-12})
    with pytest.raises(CostError, match="no noise up to 1e\\+06 brings the study to epsilon 1e-09"):
        accountant.calibrate(study, 1e-9)


@pytest.mark.parametrize("target", [0.0, -1.0, 33.0, math.nan])
def test_calibration_refuses_targets_that_mean_nothing(target, make_study):
    with pytest.raises(CostError, match="cannot be aimed at"):
        accountant.calibrate(make_study(), target)


def test_a_growing_ledger_composes_what_is_new_alone(make_study, composed):
    study = make_study()
    held = [*plan(study).costs(), training(0.01, 1.1, 100)]
    accountant.epsilon(held, DELTA)
    kinds, sums = composed()
    for more in range(1, 4):
        held.append(training(0.01, 1.1, 100))
        for _ in range(2):
            accountant.epsilon(held, DELTA)
            assert composed() == (kinds, sums + more)


def test_a_release_without_noise_has_no_bound_and_no_calibration(make_study):
    costs = [Cost("training", 1.0, 20.0, 1), Cost("evaluation", 1.0, 0.0, 1)]
    assert math.isinf(accountant.epsilon(costs, 1e-5))
    fields = ("heads.pooled_noise", "heads.domain_noise", "encoder.noise", "evaluation.noise", "privacy.count_noise")
    unnoised = make_study({"privacy.mode": "none", **dict.fromkeys(fields, 0)})
    with pytest.raises(CostError, match="without noise has no epsilon"):
        accountant.calibrate(unnoised, 1.0)


@pytest.mark.parametrize("delta", [1e-5, 1e-8, 1e-9, 1e-10, 1e-12])
@pytest.mark.parametrize("releases", [1000, 20_000, 400_000])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_rounding_never_makes_many_releases_cheaper_than_they_are(mu, releases, delta):
    """Sampled with a rate of almost 1, so that they are composed by transforms and still have a closed form."""
    nearly_all = training(1 - 1e-12, math.sqrt(releases) / mu, releases)
    exact = gaussian_by_hand(mu, delta)
    assert exact <= accountant.epsilon([nearly_all], delta) <= 1.07 * exact


def tilted_delta(item: Cost, eps: float, grid: float) -> float:
    """delta at `eps` of a composition under an exponential tilt that puts its mean there: rounding stays relative."""
    pld = accountant._single(item.sampling_rate, item.noise, grid)
    found = []
    for pmf in (pld._pmf_remove, pld._pmf_add):
        dense, times = pmf.to_dense_pmf(), item.count
        probs, low = np.maximum(np.array(dense._probs), 1e-320), dense._lower_loss
        losses = (np.arange(len(probs)) + low) * grid

        def tilted(tilt: float, probs=probs, losses=losses) -> tuple[np.ndarray, float]:
            weights = np.log(probs) + tilt * losses
            top = weights.max()
            return np.exp(weights - top) / np.exp(weights - top).sum(), top + math.log(np.exp(weights - top).sum())

        below, above = 0.0, 200.0
        for _ in range(100):
            middle = (below + above) / 2
            below, above = (middle, above) if times * (tilted(middle)[0] @ losses) < eps else (below, middle)
        weights, logarithm = tilted(below)
        mean = weights @ losses
        spread = 14 * math.sqrt(times * (weights @ losses**2 - mean**2)) / grid
        size = 1 << math.ceil(math.log2(2 * (spread + len(probs))))
        circle = np.zeros(size)
        np.add.at(circle, (np.arange(len(probs)) + low) % size, weights)
        summed = np.fft.irfft(np.fft.rfft(circle) ** times, size)
        places = np.arange(round(times * mean / grid) - size // 2, round(times * mean / grid) + size // 2)
        sums = places * grid
        over = sums > eps
        scale = np.exp(times * logarithm - below * sums[over])
        found.append(float((summed[places[over] % size] * scale * -np.expm1(eps - sums[over])).sum()))
    return max(found)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [(0.01, 1.0, 20_000, 1e-10), (0.01, 2.0, 100_000, 1e-9), (0.02, 1.0, 1000, 1e-12), (0.02, 1.0, 1000, 1e-5)],
)
def test_sampled_releases_keep_their_delta_in_the_far_tail(rate, noise, steps, delta):
    item = training(rate, noise, steps)
    grid = accountant._grid(accountant._merge([item]))
    there = tilted_delta(item, accountant.epsilon([item], delta), grid)
    assert 1e-3 * delta < there <= delta


def test_the_allowance_counts_every_release_and_every_transform():
    one, other = accountant._Sampled(0.1, 2.0, 30), accountant._Sampled(0.2, 2.0, 7)
    for sampled, precision, expected in (
        ((one,), 0.0, 30 + 2 * 200),
        ((one,), 0.01, 30 + 3 * 200),
        ((one, other), 0.0, 37 + 4 * 200),
        ((one, other), 0.01, 37 + 5 * 200),
    ):
        found = accountant._allowance(accountant._Merged(precision, sampled))
        assert found == pytest.approx(expected * 2.0**-42, rel=1e-12)


@pytest.mark.parametrize("delta", [1e-12, 1e-8, 1e-5])
def test_the_allowance_is_many_times_what_rounding_did(delta):
    """The true delta at the epsilon that the transform alone gives, against the delta that was asked for."""
    for releases in (20_000, 100_000, 400_000):
        for mu in (0.5, 1.0, 2.0):
            item = training(1 - 1e-12, math.sqrt(releases) / mu, releases)
            eps = accountant.least_stated([item], delta)
            true = math.exp(log_ndtr(mu / 2 - eps / mu)) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu))
            assert true - delta < accountant._allowance(accountant._merge([item])) / 100


def test_a_figure_of_before_the_allowance_differs_by_the_allowance_alone():
    item = training(0.01, 1.0, 1000)
    older, now = accountant.least_stated([item], 1e-6), accountant.epsilon([item], 1e-6)
    assert older < now < older * (1 + 1e-4)
    plain = [training(1.0, 3.0, 5)]
    assert accountant.least_stated(plain, 1e-12) == accountant.epsilon(plain, 1e-12)


def test_a_sum_beyond_floats_is_a_price_without_bound():
    assert accountant.epsilon([training(1.0, 1e-154, 1), training(1.0, 1.01e-154, 1)], DELTA) == math.inf


def test_the_largest_noise_costs_next_to_nothing():
    faintest = training(1.0, MAX_NOISE, 1)
    assert 0 < accountant.epsilon([faintest], accountant.MIN_DELTA) < 5e-6
    assert accountant.epsilon([faintest], 4e-7) == 0.0


@given(
    noise=st.sampled_from([5e-324, 1e-300, 1e-160, 1e-3, MAX_NOISE]),
    rate=st.sampled_from([MIN_RATE, 1e-5, 0.5, 1.0]),
    count=st.sampled_from([1, MAX_COUNT]),
    delta=st.sampled_from([accountant.MIN_DELTA, 1e-5, 0.01]),
)
@settings(deadline=None)
def test_every_cost_has_a_price(noise, rate, count, delta):
    assert accountant.epsilon([Cost("training", rate, noise, count)], delta) >= 0
