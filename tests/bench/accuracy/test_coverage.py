import numpy as np
import pytest

from bench.accuracy import coverage
from bench.accuracy.coverage import CoverageCount


def found(held=955, told=1000, **others):
    one = {name: CoverageCount(told, held * told // 1000, 0.1) for name in coverage.FIGURES}
    return {("law", "20 events"): one | others}


def met(counts):
    return [one.met for one in coverage.figures_of(counts, 1000)]


def test_all_is_met_where_intervals_hold_what_they_should():
    assert met(found()) == [True, True, True]


@pytest.mark.parametrize(("held", "mean"), [(939, False), (941, True), (969, True), (971, False)])
def test_the_mean_lies_within_its_bounds(held, mean):
    assert met(found(held))[0] is mean


def test_one_figure_below_the_binomial_limit_is_named():
    counts = found(auc=CoverageCount(1000, 910, 0.1))
    assert met(counts) == [True, False, True]
    assert "auc, law, 20 events 0.910" in coverage.figures_of(counts, 1000)[1].measured
    assert met(found(auc=CoverageCount(1000, 935, 0.1)))[1], "within what chance gives among six"


@pytest.mark.parametrize(("told", "enough"), [(900, True), (899, False), (0, False)])
def test_a_figure_that_is_hardly_ever_told_is_named(told, enough):
    counts = found(auc=CoverageCount(told, told, 0.1))
    assert met(counts)[2] is enough


def test_every_law_has_the_prevalence_and_a_risk_that_is_right_or_not():
    for law in coverage.LAWS:
        offset = coverage.offset_of(law)
        said, labels = coverage.patients(law, offset, np.random.default_rng(3), 200_000)
        assert labels.mean() == pytest.approx(coverage.PREVALENCE, abs=0.003)
        ratio = said[:, 1].mean() / labels.mean()
        assert (abs(ratio - 1) < 0.03) == (law.slope == 1.0)


def test_a_draw_counts_what_was_told_and_held():
    counts = coverage.covered(coverage.LAWS[0], 400, 10, 20)
    assert set(counts) == set(coverage.FIGURES)
    assert counts["accuracy"].told == 20
    assert 15 <= counts["accuracy"].held <= 20
    assert 0.0 < counts["auc"].width < 1.0
