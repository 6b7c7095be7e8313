"""A study's figures for a board: intervals in the main table, too few patients with how many, never an error of 0."""

import pytest

from policies.documents.sections.evaluation import METRICS
from policies.reports.blocks import Dots, Grid
from policies.reports.published import NAMES, PublishedFigure, figures_of, sections
from support.studies import tiny_study, with_label

STUDY = tiny_study(expected={"patients": [100], "prevalence": 0.25})


def figure(domain, metric, value, low=None, high=None):
    """With an interval of .1 at each side, unless it is given."""
    middle = 0.0 if value is None else value
    return PublishedFigure(
        domain, metric, value, middle - 0.1 if low is None else low, middle + 0.1 if high is None else high
    )


def blocks(kind, figures, study=STUDY):
    return [
        block for one in sections(study, figures, source="Ours.") for block in one.blocks if isinstance(block, kind)
    ]


def told(figures, study=STUDY):
    """All sentences."""
    return " ".join(
        getattr(block, "text", "") for one in sections(study, figures, source="Ours.") for block in one.blocks
    )


def test_every_metric_has_a_name_for_people():
    assert set(NAMES) == set(METRICS)


def test_without_figures_it_says_so():
    (one,) = sections(STUDY, (), source="Ours.")
    assert [block.text for block in one.blocks] == ["Not known: the study publishes no figures."]


def test_the_table_has_figures_with_intervals_by_domain():
    figures = [
        figure("a", "auc", 0.8),
        figure("a", "patients", 40.4),
        figure("b", "auc", None),
        figure("b", "patients", 11.6),
        figure("all patients", "auc", 0.75),
        figure("a", "calibration", 0.0, 0.0, 0.051),
    ]
    (table,) = blocks(Grid, figures)
    assert table.heads == ("Whom", "Patients held out", "AUC", "Calibration error")
    rows = [[(cell.text, cell.note) for cell in row] for row in table.rows]
    assert rows == [
        [("a", ""), ("40", ""), ("0.800", "0.700 to 0.900"), ("below 0.051", "0.000 to 0.051")],
        [("b", ""), ("12", ""), ("too few (about 12 patients)", ""), ("-", "")],
        [("all patients", ""), ("-", ""), ("0.750", "0.650 to 0.850"), ("-", "")],
    ]
    assert [row[0].mark for row in table.rows] == ["", "", "first"]


@pytest.mark.parametrize(
    ("metric", "low", "ends", "reference"),
    [
        ("auc", 0.6, (0.5, 1.0), None),
        ("auc", 0.4, (0.0, 1.0), 0.5),
        ("balanced_accuracy", 0.6, (0.0, 1.0), 0.5),
        ("r2", -0.25, (-0.25, 1.0), 0.0),
        ("r2", 0.25, (0.0, 1.0), 0.0),
    ],
)
def test_the_first_figure_that_says_how_good_is_drawn(metric, low, ends, reference):
    (drawn,) = blocks(Dots, [figure("a", metric, 0.7, low, 0.9), figure("b", metric, None)])
    assert ((drawn.low, drawn.high), drawn.reference, drawn.axis) == (ends, reference, NAMES[metric])
    first, second = drawn.rows
    assert (first.dots[0].value, first.dots[0].low, first.dots[0].high) == (0.7, low, 0.9)
    assert (second.dots, second.text) == ((), "too few held-out patients to tell")


def test_an_auc_is_drawn_before_other_figures_and_errors_never():
    (drawn,) = blocks(Dots, [figure("a", "accuracy", 0.7), figure("a", "auc", 0.8)])
    assert drawn.axis == "AUC"
    assert blocks(Dots, [figure("a", "mae", 0.7)]) == []


@pytest.mark.parametrize(
    ("value", "low", "high", "said"),
    [
        (1.3, 1.1, 1.5, "risks are too high in the mean"),
        (0.8, 0.7, 0.9, "risks are too low in the mean"),
        (1.02, 0.9, 1.2, "risks are right in the mean, as far as can be told"),
        (0.6, 0.2, 1.5, "too uncertain to say whether risks are right in the mean"),
        (None, 0.0, 9.0, "too few patients to compare what was predicted"),
    ],
)
def test_calibration_is_a_sentence(value, low, high, said):
    assert said in told([figure("a", "expected_observed", value, low, high)])


def test_of_more_classes_nobody_falls_ill():
    several = with_label({"column": "kind", "classes": [[1], [2], [3]]})
    said = told([figure("a", "expected_observed", 1.3, 1.1, 1.5)], several)
    assert "1.30 times as many right answers were expected as came (1.10 to 1.50): risks are too high" in said
    assert "ill" not in said


def test_the_error_of_risks_is_told_and_never_as_0():
    assert "A: predicted and true risks differ by less than 0.051 in the mean." in told(
        [figure("a", "calibration", 0.0, 0.0, 0.051)]
    )
    assert "differ by 0.040 in the mean" in told([figure("a", "calibration", 0.04)])
    assert len(sections(STUDY, [figure("a", "auc", 0.8)], source="Ours.")) == 1, "nothing on risks without a figure"


def test_the_threshold_is_said_where_figures_depend_on_it():
    assert "from a risk of 0.25 on" in told([figure("a", "false_negatives", 0.3)])
    assert "from a risk" not in told([figure("a", "auc", 0.8)])


def test_how_far_a_liar_could_move_figures_is_told_at_its_worst():
    figures = [
        figure("a", "auc", 0.8),
        figure("a", "auc_moved", 0.02),
        figure("b", "auc_moved", 0.05),
        figure("a", "calibration_moved", 0.0),
    ]
    assert "moved figures at most so far: AUC by 0.050 (b)." in told(figures)
    assert "moved" not in told(figures[:1])


def test_opened_figures_are_read_as_a_card_has_them():
    one = {"value": 0.8, "low": 0.7, "high": 0.9}
    quality = [{"domain": "a", "metrics": {"auc": one, "false_negatives": None, "sizes": [3.0, 4.0]}}]
    assert figures_of(quality) == [PublishedFigure("a", "auc", 0.8, 0.7, 0.9)]
