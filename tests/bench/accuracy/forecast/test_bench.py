"""What the bench of forecasts judges: every wanted figure can be missed."""

from dataclasses import replace

import pytest

from bench.accuracy.forecast import __main__ as bench
from bench.accuracy.forecast import laws, measuring, packaged
from bench.accuracy.forecast.cases import CASES, GROUPS
from bench.accuracy.forecast.measuring import Result
from silo_agent.forecast.forecast import ForecastInterval, Row

AROUND = ForecastInterval(0.7, 0.68, 0.72)
ROW = Row(0.7, AROUND, AROUND, AROUND, AROUND, ForecastInterval(0.0, -0.01, 0.01), AROUND, AROUND, 0.1, 0.5)
GOOD = Result("", ROW, AROUND, named=False, told=False, mean=0.7, worst=0.69, plain_mean=0.7, alone=0.69)
LOST, GAINED = {"alone": 0.71, "told": True}, {"alone": 0.6}


def missed(**changed):
    """Names of figures that 40 studies miss if `changed` says, by number of the study, what is otherwise."""
    own = {f"study_{number}": LOST for number in range(10)} | {f"study_{number}": GAINED for number in range(10, 20)}
    results = []
    for number, case in enumerate(CASES):
        key = f"study_{number}"
        results.append(replace(GOOD, name=case.name, **(own.get(key, {}) | changed.get(key, {}))))
    return [figure.name for figure in bench.figures(results) if not figure.met]


def each(numbers, **change):
    return {f"study_{number}": change for number in numbers}


def test_forty_good_forecasts_miss_nothing():
    assert len(CASES) == 40
    assert [case.name for case in CASES[30:]] == list(packaged.TABLES)
    assert missed() == []


@pytest.mark.parametrize(
    ("numbers", "change", "figure"),
    [
        (range(20, 27), {"mean": 0.75, "plain_mean": 0.75}, "outcome in the 90 % interval"),
        (range(37, 40), {"mean": 0.75}, "of the packaged tables"),
        (range(2), {"told": False}, "no better than staying alone, and told so"),
        (range(10, 13), {"told": True}, "told so, but better by more than 0.02"),
        (range(20, 27), {"plain_mean": 0.72}, "gap to the fit without privacy in its interval"),
        (range(20, 40), {"said": ForecastInterval(0.7, 0.65, 0.75)}, "median width of the intervals"),
    ],
)
def test_each_figure_is_missed_by_one_study_too_many(numbers, change, figure):
    assert missed(**each(numbers, **change)) == [figure]
    assert missed(**each(numbers[:-1], **change)) == []


def test_coins_are_named_and_what_is_named_is_one():
    low = ForecastInterval(0.54, 0.5, 0.6)
    coin = {"mean": 0.54, "said": low, "alone": 0.53, "plain_mean": 0.54}
    assert missed(study_20=coin) == ["studies below 0.55 that were not named a coin toss"]
    assert missed(study_20=coin | {"named": True}) == []
    assert missed(study_20={"named": True}) == ["of the studies named so, below 0.58"]


def test_another_cohort_has_other_patients_of_the_same_population():
    law = laws.LawOfPatients((300,), GROUPS, 0.12, 2.2, 0.8)
    (first, tested), (again, _), (other, others) = law.records(1), law.records(1), law.records(1, cohort=1)
    assert (first["hospital-0"].inputs == again["hospital-0"].inputs).all()
    assert not (first["hospital-0"].inputs == other["hospital-0"].inputs).any()
    centres = [[part.inputs[part.domains == m].mean(axis=0) for m in range(5)] for part in (tested, others)]
    for mine, theirs in zip(*centres, strict=True):
        assert mine == pytest.approx(theirs, abs=0.03)


def test_a_test_of_few_patients_widens_the_interval():
    few, many = (measuring.widened(AROUND, [count], 0.2) for count in (200.0, 20_000.0))
    assert few.high - few.low > many.high - many.low > 0.04
    assert few.middle == many.middle == 0.7
