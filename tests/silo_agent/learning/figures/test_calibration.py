import numpy as np
import pytest
from scipy.special import expit, softmax

from silo_agent.learning.figures.calibration import calibration_error
from silo_agent.learning.figures.evaluation import quality, score_histograms
from silo_agent.learning.outcomes.registry import family_of


def cohort(r, n, classes, separation, sharpness):
    """Probabilities that are right where `sharpness` is 1, too bold above, too shy below."""
    if classes == 2:
        y = (r.random(n) < 0.25).astype(np.int64)
        logits = separation * (r.normal(size=n) + separation * y) - separation**2 / 2 + np.log(1 / 3)
        p = expit(sharpness * logits)
        return np.stack([1 - p, p], axis=1), y
    y = r.integers(0, classes, n)
    scores = r.normal(size=(n, classes))
    scores[np.arange(n), y] += separation
    return softmax(sharpness * separation * scores, axis=1), y


def opened(r, n, classes, bins, sd, *model):
    p, y = cohort(r, n, classes, *model)
    family = family_of(classes)
    cells = score_histograms(p, y, np.zeros(n, np.int64), np.ones(n), family, count=1, bins=bins)
    return (cells + r.normal(0, 1, cells.shape) * sd).reshape(classes, -1), quality(p, y, bins, family).calibration


def estimate(cells, sd, classes, bins):
    family = family_of(classes)
    return calibration_error(cells, sd, family.edges(bins), np.random.default_rng(0), family)


MODELS = [(1.5, 1.0), (1.5, 2.0), (2.0, 0.5), (4.0, 1.0)]


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("bins", [9, 20])
@pytest.mark.parametrize("model", MODELS)
def test_of_many_patients_without_noise_it_is_the_exact_error(classes, bins, model):
    cells, exact = opened(np.random.default_rng(0), 60_000, classes, bins, 0.0, *model)
    assert estimate(cells, 0.0, classes, bins)[0] == pytest.approx(exact, abs=0.006)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("n", "sd"), [(400, 0.0), (2000, 5.0)])
@pytest.mark.parametrize("model", MODELS[:2])
def test_the_interval_covers_the_truth_under_noise_and_sampling(classes, n, sd, model):
    truth = opened(np.random.default_rng(9), 100_000, classes, 10, 0.0, *model)[1]
    covered, values = 0, []
    for seed in range(60):
        cells, _ = opened(np.random.default_rng(seed), n, classes, 10, sd, *model)
        value, low, high = estimate(cells, sd, classes, 10)
        assert 0 <= low <= value <= high <= 1
        covered += low <= truth <= high
        values.append(value)
    assert covered / 60 >= 0.85
    assert abs(np.mean(values) - truth) < 0.03


def test_noise_is_not_taken_for_error():
    sums, found = [], []
    for seed in range(30):
        cells, _ = opened(np.random.default_rng(seed), 2000, 2, 20, 12.0, 1.5, 1.0)
        claimed = expit(np.arange(-4.75, 5, 0.5))
        sums.append(np.abs(cells[1] - claimed * cells.sum(axis=0)).sum() / cells.sum())
        found.append(estimate(cells, 12.0, 2, 20))
    values, lows, _ = np.array(found).T
    assert np.mean(sums) > 0.08
    assert np.mean(values) < 0.3 * np.mean(sums)
    assert np.mean(lows == 0.0) > 0.9


@pytest.mark.parametrize("bins", [2, 3, 256])
@pytest.mark.parametrize("classes", [2, 5])
def test_any_number_of_bins_and_odd_sums_give_a_number(bins, classes):
    r = np.random.default_rng(2)
    width = bins if classes == 2 else 2 * bins
    for cells in (r.normal(1, 40, (classes, width)) + 30, np.eye(classes, width), np.full((classes, width), 0.5)):
        found = estimate(cells, 0.0, classes, bins)
        assert np.isfinite(found).all()
        value, low, high = found
        assert 0 <= low <= value <= high <= 1
