import numpy as np
import pytest
from scipy.special import expit

from silo_agent.learning.evaluation.evaluation import auc, results_from_histograms
from silo_agent.learning.evaluation.fitted import _area, fitted_auc
from silo_agent.learning.families.registry import family_of

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
    found = np.array([fitted_auc(cells(*patients(law, r, n), r, noise), noise, EDGES) for _ in range(draws)])
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
        middle, low, high = fitted_auc(cells(logits, labels, r, 0.01), 0.01, EDGES)
        assert middle == pytest.approx(auc(logits, labels), abs=0.006)
        assert 0.002 < high - low < 0.02


@pytest.mark.parametrize("noise", [0.0, 1.0, 1e3])
def test_whatever_was_opened_gives_an_interval(noise):
    r = np.random.default_rng(3)
    for size in (0.0, 1.0, 1e5):
        middle, low, high = fitted_auc(size * r.random((2, BINS)) + r.normal(0, noise, (2, BINS)), noise, EDGES)
        assert 0 <= low <= middle <= high <= 1
    lone = np.zeros((2, BINS))
    lone[:, 7] = 400
    middle, low, high = fitted_auc(lone, noise, EDGES)
    assert 0 <= low <= middle <= high <= 1


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
    assert (risk.auc.value, risk.auc.low, risk.auc.high) == fitted_auc(counts, 1.1, EDGES)
    assert risk.accuracy == plain.accuracy
    counts = cells(*patients("narrow", r, 60), r, 1.1)
    assert found(fitted=True) == found(fitted=False), "too few for a fit"
