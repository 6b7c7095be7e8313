"""The operator's report: published figures, who took part, nothing of a hospital's own, of finished studies alone."""

import pytest

from coordinator.errors import OperatorError
from coordinator.reporting import figures_of, report, require_finished
from policies.reports.blocks import Grid
from policies.reports.guarantee import guarantee
from protos.messages import AgreedFigure, Figure, SignedPublication, StudyResults
from protos.status import MemberStatus, StudyStatus
from support.studies import tiny_study

STUDY = tiny_study(publish=["auc", "patients"])
MEMBERS = (
    MemberStatus("north", "active", "", 0.0),
    MemberStatus("south", "left", "its budget is spent", 0.0),
    MemberStatus("west", "lost", "", 0.0),
)
RESULTS = StudyResults(
    STUDY.digest,
    "tiny",
    3,
    (
        AgreedFigure(Figure("a", "auc", 0.8, 0.7, 0.9), 3),
        AgreedFigure(Figure("b", "auc", None, 0.0, 1.0), 3),
        AgreedFigure(Figure("b", "patients", 12.0, 5.0, 20.0), 3),
    ),
    tuple(SignedPublication(silo, b"{}", b"s" * 64, b"pem") for silo in ("north", "west")),
)


def status(state="finished", study=STUDY.digest):
    return StudyStatus(study, "tiny", state, "", 2, 2, 1, "", None, (), MEMBERS)


def sections(results=RESULTS, forecast=None):
    return {one.title: one.blocks for one in report(STUDY, status(), results, forecast).sections}


def cells(blocks):
    (grid,) = [block for block in blocks if isinstance(block, Grid)]
    return [[cell.text for cell in row] for row in grid.rows]


def test_it_has_the_published_figures_and_who_signed_them():
    found = sections()["How good the model is, and for whom"]
    assert cells(found) == [["a", "-", "0.800"], ["b", "12", "too few (about 12 patients)"]]
    assert "2 hospitals signed what they read; a figure stands here if at least 3 of them" in found[0].text
    assert len(figures_of(RESULTS)) == 3


def test_it_says_what_became_of_every_hospital():
    assert cells(sections()["Who took part"]) == [
        ["north", "took part to the end"],
        ["south", "left, or did not join"],
        ["west", "was missing from the last sum"],
    ]
    assert "budget is spent" not in str(sections()), "why a hospital left is between it and the operator"


def test_nothing_is_said_to_stay_inside_and_no_charge_of_a_hospital_is_in_it():
    found = report(STUDY, status(), RESULTS, None)
    assert found.warning == ""
    assert not any(one.inside for one in found.sections)
    assert [row[0] for row in cells(sections()["What it cost"])] == [
        "By the study's plan",
        "Of the plan, for a patient of 2 of its hospitals",
        "Of the plan, for a patient of 3 of its hospitals",
    ]
    assert found.sections[0].blocks[0].cards[0].value == f"{guarantee(STUDY, None).planned:.2f}"
    assert [one.title for one in found.sections] == [
        "In short",
        "What was asked",
        "Who took part",
        "How good the model is, and for whom",
        "What was forecast",
        "What it cost",
        "What was protected, and from whom",
        "TRIPOD+AI",
    ]


def test_a_study_that_publishes_nothing_has_a_report_all_the_same():
    text = sections(results=None)["How good the model is, and for whom"][0].text
    assert text == "Not known: the study publishes no figures."


@pytest.mark.parametrize("state", ["created", "running", "paused", "waiting", "ended", "aborted"])
def test_a_study_that_is_not_finished_has_none(state):
    with pytest.raises(OperatorError, match=f"tiny is {state}; a report is of a finished study"):
        report(STUDY, status(state), RESULTS, None)


def test_another_study_of_the_name_is_refused():
    with pytest.raises(OperatorError, match="give the file with which the study was created"):
        report(STUDY, status(study="ab" * 32), RESULTS, None)
    require_finished(STUDY, status())
