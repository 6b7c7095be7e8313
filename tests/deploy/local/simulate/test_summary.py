"""Runs as a table and as plain data."""

import io
import math

import pytest
from rich.console import Console

from deploy.local.simulate.data.reading import LeftOut
from deploy.local.simulate.outcome import Exact, Outcome, RunMetrics
from deploy.local.simulate.summary import MOST_REASONS, RECORDS, TEST_RECORDS, Simulated, as_json, spread, table, title
from deploy.local.simulate.summary import _plain as plain
from deploy.local.simulate.summary import why_left_out as why
from silo_agent.data.errors import MisfitReason
from silo_agent.learning.figures.evaluation import DomainResult, Estimate, Results
from silo_agent.learning.model.shared import SharedModel
from support.studies import tiny_study

ROWS = """
                           AUC            alone        published     95 % interval      calibration   test records
 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────
 a              0.600 +- 0.141   0.400 +- 0.000   0.750 +- 0.212    0.650 to 0.825   1.250 +- 0.000             50
 b              0.900 +- 0.000   0.400 +- 0.000                -   too few to tell   1.250 +- 0.000             50

 mean           0.750 +- 0.071   0.400 +- 0.000
 worst domain   0.600 +- 0.141   0.400 +- 0.000
 all together   0.750 +- 0.000   0.400 +- 0.000                                      1.000 +- 0.000            100
"""
STUDY = tiny_study()
MODEL = SharedModel.start(STUDY)
SOME = Estimate(100.0, 90.0, 110.0)
UNKNOWN = Estimate(None, 0.0, 1.0)


def published(*by_domain):
    found = tuple(DomainResult(auc, *[SOME] * 6) for auc in by_domain)
    return Results(STUDY.digest, ("a", "b"), found, 8.0)


def run(seed, first, second, *told):
    exact = tuple(Exact(auc, 0.7, 1.25, 50, 20) for auc in (first, second))
    return Outcome(STUDY, seed, exact, Exact(0.75, 0.7, 1.0, 100, 40), model=MODEL, published=published(*told))


def reason(number, column="age"):
    return MisfitReason(column, f"a number of {number}", 9 - number, f"'{number}'", 7, "own.csv")


@pytest.fixture
def found():
    """Two seeds, whose sums tell of the first domain and not of the second."""
    told = Estimate(0.6, 0.5, 0.7), Estimate(0.9, 0.8, 0.95)
    runs = (run(1, 0.5, 0.9, told[0], UNKNOWN), run(2, 0.7, 0.9, told[1], None))
    alone = [
        RunMetrics(STUDY, seed, (Exact(0.4, 0.6, 1.0, 50, 20),) * 2, Exact(0.4, 0.6, 1.0, 100, 40)) for seed in (1, 2)
    ]
    left_out = {RECORDS: LeftOut(3, (reason(1), reason(2, ""))), TEST_RECORDS: LeftOut()}
    return Simulated(STUDY, runs, "made for a test", {"north": 40, "south": 41}, left_out, {"alone": alone})


def shown(found):
    out = io.StringIO()
    Console(file=out, width=140, highlight=False).print(table(found))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_table_has_a_row_for_each_domain_and_a_column_for_whatever_was_run(found):
    head, prices, *rows = shown(found)
    assert head == f"tiny {STUDY.digest[:12]}: 2 silos, 2 seeds, public records (made for a test), 3 records left out"
    assert prices.startswith("epsilon at delta 1e-05: training ")
    assert "\n".join(rows) == ROWS


def test_the_title_says_what_was_simulated(found):
    assert title(found).splitlines()[0].endswith("public records (made for a test), 3 records left out")
    made_up = Simulated(STUDY, found.runs[:1], None, {"north": 40})
    assert shown(made_up)[3].split() == ["AUC", "published", "95", "%", "interval", "calibration", "test", "records"]
    assert title(made_up).splitlines()[0].endswith(": 1 silos, 1 seeds, made-up records")


def test_the_most_frequent_reasons_are_told_and_how_many_more_there_are(found):
    assert why(found) == [
        "left out, 8 records: age: expected a number of 1 (own.csv, row 7: '1')",
        "left out, 7 records: expected a number of 2 (own.csv, row 7: '2')",
    ]
    many = {TEST_RECORDS: LeftOut(99, tuple(map(reason, range(MOST_REASONS + 3))))}
    lines = why(Simulated(STUDY, found.runs, "made for a test", {}, many))
    assert len(lines) == MOST_REASONS + 1
    assert lines[-1] == "and 3 more reasons to leave out test records; JSON has all"
    exactly = {TEST_RECORDS: LeftOut(99, tuple(map(reason, range(MOST_REASONS))))}
    assert len(why(Simulated(STUDY, found.runs, "made for a test", {}, exactly))) == MOST_REASONS


def test_plain_data_tell_records_and_test_records_apart(found):
    told = as_json(found)
    assert (told["left_out"], told["test_left_out"], told["test_reasons"]) == (3, 0, [])
    assert [one["column"] for one in told["reasons"]] == ["age", ""]
    assert set(told["runs"]) == {"study", "alone"}
    assert "model" not in told["runs"]["alone"][0]
    own = told["runs"]["study"][1]
    assert (own["seed"], own["mean"], own["worst"], own["model"]) == (2, 0.8, 0.7, MODEL.digest)
    assert own["published"][1]["auc"] is None


@pytest.mark.parametrize(
    ("values", "shown"),
    [([0.5], "0.500"), ([0.5, 0.7], "0.600 +- 0.141"), ([None, math.nan], "-"), ([0.5, None], "0.500")],
)
def test_a_spread_has_the_mean_and_the_deviation_of_what_is_known(values, shown):
    assert spread(values) == shown


def test_plain_data_hold_no_number_that_json_does_not_know():
    assert plain({"a": [1.0, math.inf, (math.nan, "x")]}) == {"a": [1.0, None, [None, "x"]]}
