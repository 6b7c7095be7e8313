import numpy as np
import pytest
from scipy.special import expit

from silo_agent.learning.figures.evaluation import auc, results_from_histograms
from silo_agent.learning.figures.fitted_auc import _area, fit
from silo_agent.learning.figures.intervals import share
from silo_agent.learning.outcomes.registry import family_of

BINS = 20
EDGES = family_of(2).edges(BINS)
LAWS = {
    "narrow": lambda r, n: r.normal(-2.25, 0.5, n),
    "wide": lambda r, n: r.normal(-3.2, 2.2, n),
    "skewed": lambda r, n: r.gamma(1.5, 0.7, n) - 3.2,
    "bent": lambda r, n: r.normal(-2.2, 1.2, n),
    "two groups": lambda r, n: np.where(r.random(n) < 0.75, r.normal(-3.2, 0.5, n), r.normal(-0.8, 0.7, n)),
}


def patients(law, r, n):
    """Logits of a model, and outcomes; in the bent law the risk rises less with the logit than the model says."""
    logits = LAWS[law](r, n)
    truth = np.where(logits < -2, 1.6 * logits + 1.2, 0.3 * logits - 1.4) if law == "bent" else logits
    return logits, (r.random(n) < expit(truth)).astype(np.int64)


def cells(logits, labels, r, noise):
    bins = np.searchsorted(EDGES[1:-1], logits, "right")
    counts = np.stack([np.bincount(bins[labels == c], minlength=BINS) for c in (0, 1)])
    return counts + r.normal(0, noise, counts.shape)


def covered(law, n, noise, draws):
    r = np.random.default_rng(17)
    truth = auc(*patients(law, r, 200_000))
    found = np.array([fit(cells(*patients(law, r, n), r, noise), noise, EDGES).auc() for _ in range(draws)])
    return float(((found[:, 1] <= truth) & (truth <= found[:, 2])).mean()), found[:, 0] - truth


def test_the_derivatives_are_those_of_the_area():
    r = np.random.default_rng(2)
    rows = r.uniform(0, 50, (2, BINS))
    area, *slopes = _area(*rows)
    for side, slope in enumerate(slopes):
        for number in range(BINS):
            more = rows.copy()
            more[side, number] += 1e-4
            assert (_area(*more)[0] - area) / 1e-4 == pytest.approx(slope[number], abs=1e-7)


def test_with_many_patients_and_no_noise_it_is_the_exact_area():
    r = np.random.default_rng(2)
    for law in LAWS:
        logits, labels = patients(law, r, 100_000)
        middle, low, high = fit(cells(logits, labels, r, 0.01), 0.01, EDGES).auc()
        assert middle == pytest.approx(auc(logits, labels), abs=0.006)
        assert 0.002 < high - low < 0.02


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e3])
def test_whatever_was_opened_gives_an_interval(noise):
    r = np.random.default_rng(3)
    for size in (0.0, 1.0, 1e5):
        middle, low, high = fit(size * r.random((2, BINS)) + r.normal(0, noise, (2, BINS)), noise, EDGES).auc()
        assert 0 <= low <= middle <= high <= 1
    lone = np.zeros((2, BINS))
    lone[:, 7] = 400
    middle, low, high = fit(lone, noise, EDGES).auc()
    assert 0 <= low <= middle <= high <= 1


@pytest.mark.parametrize(("places", "area"), [((0, -1), 0.98), ((-1, 0), 0.02)])
def test_an_area_is_never_said_to_be_nearer_to_none_or_all_than_this(places, area):
    counts = np.zeros((2, BINS))
    counts[0, places[0]] = counts[1, places[1]] = 1e4
    middle, low, high = fit(counts, 1.0, EDGES).auc()
    assert middle == area
    assert 0.0 < low < area < high < 1.0


@pytest.mark.parametrize("law", LAWS)
def test_intervals_hold_the_truth(law):
    share, errors = covered(law, 1000, 2.5, 50)
    assert share >= 0.88
    assert np.sqrt((errors**2).mean()) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("n", "noise"), [(300, 1.1), (1000, 1.1), (1000, 2.5), (3000, 3.7)])
def test_intervals_hold_the_truth_in_many_draws(law, n, noise):
    share, _ = covered(law, n, noise, 300)
    assert share >= 0.9


def test_the_study_says_which_estimator_is_meant():
    r = np.random.default_rng(4)
    counts = cells(*patients("narrow", r, 2000), r, 1.1)

    def found(*, fitted):
        rng = np.random.default_rng(0)
        return results_from_histograms(counts.ravel(), 1.1, family_of(2), count=1, bins=BINS, rng=rng, fitted=fitted)

    (plain,), (risk,) = found(fitted=False), found(fitted=True)
    assert (risk.auc.value, risk.auc.low, risk.auc.high) == fit(counts, 1.1, EDGES).auc()
    own = fit(counts, 1.1, EDGES).accuracy(family_of(2).right_cells(BINS))
    assert (risk.accuracy.value, risk.accuracy.low, risk.accuracy.high) == own
    assert risk.balanced_accuracy == plain.balanced_accuracy
    counts = cells(*patients("narrow", r, 60), r, 1.1)
    assert found(fitted=True) == found(fitted=False), "too few for a fit"


@pytest.mark.parametrize("law", ["wide", "bent", "two groups"])
def test_the_interval_of_accuracy_holds_the_truth_and_is_narrower_than_that_of_the_cells(law):
    r, right = np.random.default_rng(19), family_of(2).right_cells(BINS)
    logits, labels = patients(law, r, 200_000)
    truth, held, widths = ((logits >= 0) == labels).mean(), 0, []
    for _ in range(60):
        counts = cells(*patients(law, r, 1000), r, 3.7)
        narrow, wide = fit(counts, 3.7, EDGES).accuracy(right), share(counts.ravel(), right.ravel(), 3.7)
        held += narrow[1] <= truth <= narrow[2]
        widths.append((narrow[2] - narrow[1], wide[2] - wide[1]))
    assert held >= 53
    assert np.less(*np.median(widths, axis=0))


def test_an_accuracy_near_one_is_that_of_the_cells():
    counts = np.ones((2, BINS))
    counts[0, : BINS // 2] = counts[1, BINS // 2 :] = 400.0
    assert fit(counts, 0.5, EDGES).accuracy(family_of(2).right_cells(BINS)) is None
    plain, risk = (
        results_from_histograms(
            counts.ravel(), 0.5, family_of(2), count=1, bins=BINS, rng=np.random.default_rng(0), fitted=fitted
        )[0]
        for fitted in (False, True)
    )
    assert risk.accuracy == plain.accuracy
