import numpy as np
import pytest
from scipy.special import expit, softmax

from silo_agent.learning.figures.evaluation import results_from_histograms, score_histograms
from silo_agent.learning.figures.expected_observed import expected_observed
from silo_agent.learning.figures.fitted_auc import fit
from silo_agent.learning.outcomes.registry import family_of

BINS = 20


def told(probabilities, labels, noise, rng, *, fitted=False, bins=BINS):
    """What the noised cells of one domain tell."""
    family, n = family_of(probabilities.shape[1]), len(labels)
    cells = score_histograms(probabilities, labels, np.zeros(n, int), np.ones(n), family, count=1, bins=bins)
    sums = cells + rng.normal(0, noise, len(cells))
    (found,) = results_from_histograms(sums, noise, family, count=1, bins=bins, rng=rng, smallest=20, fitted=fitted)
    return found.expected_observed


def two(risk):
    return np.column_stack([1 - risk, risk])


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("too_low", [0.0, 0.8])
def test_it_tells_by_how_much_risks_are_too_low(fitted, too_low):
    rng = np.random.default_rng(1)
    score = rng.normal(-1.5, 1.0, 200_000)
    risk, said = expit(score), expit(score - too_low)
    found = told(two(said), (rng.random(len(score)) < risk).astype(int), 2.0, rng, fitted=fitted)
    assert found.value == pytest.approx(said.mean() / risk.mean(), abs=0.01)
    assert found.low <= said.mean() / risk.mean() <= found.high
    assert found.high - found.low < 0.05


@pytest.mark.parametrize("fitted", [True, False])
def test_the_interval_holds_the_truth_of_few_patients_under_much_noise(fitted):
    rng, held, draws, widths = np.random.default_rng(2), 0, 120, []
    for draw in range(draws):
        steep = (0.6, 1.4)[draw % 2]
        score = rng.normal(-1.5, 1.2, 800)
        happened = rng.random(800) < expit(-1.2 + steep * (score + 1.5))
        many = rng.normal(-1.5, 1.2, 40_000)
        truth = expit(many).mean() / expit(-1.2 + steep * (many + 1.5)).mean()
        found = told(two(expit(score)), happened.astype(int), 3.0, rng, fitted=fitted)
        held += found.low <= truth <= found.high
        widths.append(found.high - found.low)
    assert held >= 0.89 * draws
    assert np.median(widths) < (0.45 if fitted else 0.55)


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize(("bins", "middle"), [(20, -4.0), (20, -4.5), (20, -5.5), (10, -4.0), (10, -5.0), (2, -1.5)])
def test_a_rare_outcome_has_no_ratio_or_one_whose_interval_holds_the_truth(fitted, bins, middle):
    """The lowest bin has no lower end, and most scores lie in it."""
    rng, given, held = np.random.default_rng(5), 0, 0
    for _ in range(12):
        risk = expit(rng.normal(middle, 0.6, 5000))
        found = told(two(risk), (rng.random(5000) < risk).astype(int), 2.0, rng, fitted=fitted, bins=bins)
        given += found.value is not None
        held += found.value is not None and found.low <= 1.0 <= found.high
    assert given - held <= 1
    assert given == 12 or (bins, middle) != (20, -4.0)
    assert not given or middle > -5.0


def test_of_more_classes_it_is_the_confidence_over_the_share_that_is_right():
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(60_000, 4)) * 1.5
    labels = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((len(logits), 1))).sum(axis=1)
    said = softmax(logits * 1.6, axis=1)
    right = said.argmax(axis=1) == labels
    assert told(said, labels, 3.0, rng).value == pytest.approx(said.max(axis=1).mean() / right.mean(), abs=0.01)


@pytest.mark.parametrize("fitted", [True, False])
def test_where_nothing_tells_the_rate_no_ratio_is_given(fitted):
    rng = np.random.default_rng(4)
    for labels in (np.zeros(400, int), np.arange(400) == 0):
        found = told(two(np.full(400, 0.01)), labels.astype(int), 4.0, rng, fitted=fitted)
        assert (found.value, found.low, found.high) == (None, 0.0, 100.0)


@pytest.mark.parametrize("classes", [2, 4])
def test_an_interval_under_noise_is_as_wide_as_its_ratios_scatter(classes):
    """Of 20,000 patients only the noise is drawn again: a fitted risk of two classes, sums of more."""
    rng, family, noise = np.random.default_rng(11), family_of(classes), 40.0
    said = two(expit(rng.normal(-1.0, 1.0, 20_000))) if classes == 2 else softmax(rng.normal(0, 1, (20_000, 4)), axis=1)
    labels = (said.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    sums = score_histograms(said, labels, np.zeros(20_000, int), np.ones(20_000), family, count=1, bins=BINS)
    edges, ratios, widths = family.edges(BINS), [], []
    for _ in range(200):
        cells = (sums + rng.normal(0, noise, sums.size)).reshape(classes, -1)
        found = fit(cells, noise, edges) if classes == 2 else None
        value, low, high = expected_observed(cells, noise, edges, family, found)
        ratios.append(value)
        widths.append(high - low)
    assert np.median(widths) == pytest.approx(2 * 1.96 * np.std(ratios), rel=0.25)
