"""A forecast is shown as it was printed before the study, and only that of the same study."""

import json

import pytest

from policies.reports.forecast_section import ForecastFileError, read_forecast, section
from support.studies import tiny_study

STUDY = tiny_study()
ONE = {"middle": 0.8, "low": 0.7, "high": 0.9}
ROW = {"effect": 0.85, "mean": ONE, "worst": {**ONE, "middle": 0.75}, "plain_mean": ONE, "alone": None}
FORECAST = {"figure": "auc", "draws": 24, "rows": [ROW], "sentences": ["It may gain nothing."]}


@pytest.fixture
def write(tmp_path):
    def write(**changes):
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"digest": STUDY.digest, "forecast": FORECAST} | changes))
        return path

    return write


def test_it_is_shown_as_it_was_printed(write):
    found = section(read_forecast(write(), STUDY))
    table, sentences = found.blocks
    assert table.heads == ("If the features reach", "AUC 0.85")
    assert [tuple(cell.text for cell in row) for row in table.rows] == [
        ("Mean of the domains", "0.800 (0.700 to 0.900)"),
        ("Worst domain", "0.750 (0.700 to 0.900)"),
        ("The same without noise", "0.800"),
        ("One hospital alone, no privacy", "-"),
    ]
    assert sentences.items == ("It may gain nothing.",)
    assert "24 runs" in table.caption


def test_figures_that_are_not_known_are_a_dash(write):
    unknown = {"middle": None, "low": None, "high": None}
    path = write(forecast=FORECAST | {"rows": [ROW | {"mean": unknown}], "figure": "r2"})
    table = section(read_forecast(path, STUDY)).blocks[0]
    assert (table.rows[0][1].text, table.heads[1]) == ("-", "R² 0.85")


def test_without_one_it_says_so():
    assert section(None).blocks[0].text == "No forecast was handed in with this report."


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"digest": "cd" * 32}, "forecasts another study (cdcdcdcdcdcd, not "),
        ({"forecast": {"figure": "auc"}}, "holds no 'rows'"),
        ({"forecast": []}, "is not what"),
        ({"forecast": FORECAST | {"draws": float("inf")}}, "is not what"),
        ({"forecast": FORECAST | {"rows": [3]}}, "is not what"),
    ],
)
def test_what_is_no_forecast_of_this_study_is_refused_with_a_fix(write, changes, why):
    with pytest.raises(ForecastFileError) as caught:
        read_forecast(write(**changes), STUDY)
    assert why in str(caught.value)
    assert "fedward-silo plan STUDY.yaml --format json > plan.json" in str(caught.value)


def test_a_file_that_is_absent_damaged_or_without_a_forecast_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    for content, why in ((None, "cannot be read"), ("{", "is not what"), ("{}", "holds no 'digest'")):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ForecastFileError, match=why):
            read_forecast(path, STUDY)
