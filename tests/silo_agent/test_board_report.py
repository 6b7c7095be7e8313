"""A hospital's report: every own figure is in a section that stays inside, with its interval, and none is made up."""

from dataclasses import replace

import pytest

from policies.plan.release import plan
from policies.reports.blocks import Bullets, Dots, Grid, Paragraph, RiskCurve
from silo_agent.board_report import INSIDE, FinishedStudy, report
from silo_agent.learning.figures.calibration_curve import CalibrationPoint
from silo_agent.learning.figures.evaluation import NumberQuality, Quality
from silo_agent.learning.figures.paired import PairedDifference
from silo_agent.learning.figures.subgroup_risks import SubgroupRisk
from silo_agent.models.beside_own import BesideOwn, GroupBeside
from silo_agent.models.evaluate import ModelEvaluation, PatientCounts
from silo_agent.models.jackknife import NO_SPREAD, Spread
from support.studies import tiny_study

STUDY = tiny_study()
CARD = {
    "fedward": "9.9",
    "model": {"sha256": "cd" * 32, "round": 2, "rounds": 2},
    "architecture": {"encoder": "mlp"},
    "unknown_domain": {"how": "mean of the domains"},
    "use": {"intended": "Purpose.", "limits": ["Not a device."]},
    "quality": [{"domain": "a", "metrics": {"auc": {"value": 0.8, "low": 0.7, "high": 0.9}}}],
}
QUALITY = Quality(0.75, 0.9, 0.8, 0.05, 1.1, 20)
EVALUATION = ModelEvaluation(
    study=STUDY.digest,
    name="tiny",
    round=2,
    file="secret.csv",
    scored="held out",
    patients=PatientCounts("patient", 40, 20, own=True),
    skipped=0,
    faults=(),
    domains=("a", "b"),
    shared=(QUALITY, replace(QUALITY, auc=None, records=3)),
    personal=None,
    shared_intervals=(Spread((0.625, 0.875), None, None, (0.9, 1.3)), NO_SPREAD),
    personal_intervals=None,
)
FOUND = FinishedStudy(STUDY, (), CARD, plan(STUDY).costs(), 8.0, None, EVALUATION)


def inside(**changes):
    """The sections that stay inside, by title."""
    found = report(replace(FOUND, evaluation=replace(EVALUATION, **changes)))
    return {one.title: one.blocks for one in found.sections if one.inside}


def cells(grid):
    return [[(cell.text, cell.note) if cell.note else cell.text for cell in row] for row in grid.rows]


def only(blocks, kind):
    return [block for block in blocks if isinstance(block, kind)]


def test_own_quality_is_exact_and_has_intervals_where_there_are_any():
    (found,) = inside().values()
    assert found[0].text == "Exact figures of 20 held-out patients, whom training never saw."
    (grid,) = only(found, Grid)
    assert grid.heads == ("Whom, and by which model", "Records", "AUC", "Accuracy", "Expected / observed")
    assert cells(grid) == [
        ["a, shared", "20", ("0.750", "0.625 to 0.875"), "0.900", ("1.100", "0.900 to 1.300")],
        ["b, shared", "3", "-", "0.900", "1.100"],
    ]


def test_records_that_do_not_say_whose_they_are_are_not_said_to_be_held_out():
    (found,) = inside(patients=None).values()
    assert found[0].text == "Exact figures of all records of the file, also of those who trained."


def test_own_models_stand_below_the_shared_one_and_the_chosen_is_named():
    own = {"personal": (QUALITY,) * 2, "personal_intervals": (NO_SPREAD,) * 2}
    more = {"chosen": (QUALITY,) * 2, "chosen_intervals": (NO_SPREAD,) * 2, "choice": "mixed", "why": "it is better"}
    (found,) = inside(**own, **more).values()
    assert [row[0] for row in cells(only(found, Grid)[0])] == [
        *("a, shared", "a, personal", "a, chosen", "b, shared", "b, personal", "b, chosen")
    ]
    assert found[-1].text == "This hospital predicts with the model called mixed: it is better."


def test_numbers_have_errors():
    (found,) = inside(shared=(NumberQuality(1.5, 0.25, -0.5, 20),) * 2, shared_intervals=(NO_SPREAD,) * 2).values()
    (grid,) = only(found, Grid)
    assert grid.heads[2:] == ("Absolute error", "R²", "Mean error")
    assert cells(grid)[0] == ["a, shared", "20", "1.500", "0.250", "-0.500"]


def test_the_curve_is_of_all_patients():
    point, other = CalibrationPoint(0.25, 0.5, 0.4, 0.6, 30), CalibrationPoint(0.9, 0.9, 0.8, 1.0, 30)
    found = inside(curves={"shared": ((other,), (), (point,)), "personal": ((), (), ())})
    (curve,) = only(found["Its risks among this hospital's own patients"], RiskCurve)
    assert [(one.predicted, one.observed, one.low, one.high) for one in curve.points] == [(0.25, 0.5, 0.4, 0.6)]
    assert "0.25 and 0.50" in curve.text


def test_a_model_of_own_records_stands_beside_and_where_shared_is_worse_it_is_said():
    worse = GroupBeside("b", 31, 0.79, 0.817, PairedDifference(-0.03, -0.05, -0.01), "worse")
    few = GroupBeside("a", 3, None, None, PairedDifference(0.1, None, None), "too few patients")
    whole = GroupBeside(None, 34, 0.8, 0.79, PairedDifference(0.01, -0.0625, 0.03), "no clear difference")
    blocks = inside(beside=BesideOwn("boosting", "AUC", (whole, few, worse)))[
        "Beside a model of this hospital's records alone"
    ]
    (dots,), (grid,), (said,) = (only(blocks, kind) for kind in (Dots, Grid, Bullets))
    assert (dots.low, dots.high, dots.reference) == (-0.0625, 0.0625, 0.0)
    assert [[(dot.value, dot.low, dot.high) for dot in row.dots] for row in dots.rows] == [
        [(0.01, -0.0625, 0.03)],
        [],
        [(-0.03, -0.05, -0.01)],
    ]
    assert cells(grid) == [
        ["all patients", "34", "0.800", "0.790", ("+0.010", "-0.062 to +0.030"), "no clear difference"],
        ["a", "3", "-", "-", "+0.100", "too few patients"],
        ["b", "31", "0.790", "0.817", ("-0.030", "-0.050 to -0.010"), "worse"],
    ]
    assert len(said.items) == 1
    assert "For the domain b the shared model is worse" in said.items[0]
    assert "boosting" in blocks[0].text


def test_groups_at_another_risk_are_listed_and_otherwise_none_is_said():
    out = SubgroupRisk("sex", "f", 50, 12, (0.5, 0.4, 0.6), stands_out=True)
    fine = SubgroupRisk("sex", "m", 50, 12, (1.0, 0.8, 1.2), stands_out=False)
    few = SubgroupRisk("ward", "x", 5, 1, None, stands_out=False)
    title = "Groups that are predicted at another risk than they have"
    blocks = inside(subgroups={"shared": (out, fine, few), "personal": (fine, few)})[title]
    (grid,), (none,) = only(blocks, Grid), only(blocks, Paragraph)
    assert cells(grid) == [["sex f", "50", "12", ("0.500", "0.400 to 0.600")]]
    assert grid.caption == "The shared model: 1 of 2 groups by listed columns"
    assert none.text == "The personal model: none of 1 groups by listed columns."


def test_the_line_above_all_says_that_it_stays_only_if_something_does():
    assert report(FOUND).warning == INSIDE
    bare = report(replace(FOUND, evaluation=None))
    assert bare.warning == ""
    assert not any(one.inside for one in bare.sections)
    said = [block.text for one in bare.sections for block in only(one.blocks, Paragraph)]
    assert any(text.startswith("Not measured: no records") for text in said)


@pytest.mark.parametrize(("took", "told"), [(("north", "west"), {"north", "west"}), ((), set())])
def test_who_was_in_the_last_sum(took, told):
    section = next(one for one in report(replace(FOUND, took_part=took)).sections if one.title == "Who took part")
    grids = only(section.blocks, Grid)
    found = {row[0] for grid in grids for row in cells(grid) if row[1] == "in the last sum"}
    assert found == told
    assert len(grids) == bool(took)


def test_the_cards_limits_stand_in_the_card_and_in_tripod():
    found = {one.title: one.blocks for one in report(FOUND).sections}
    assert only(found["Model card"], Bullets)[0].items == ("Not a device.",)
    assert ["26", "Limits", "Not a device."] in cells(only(found["TRIPOD+AI"], Grid)[0])
    assert "0.800" in str(cells(only(found["How good the model is, and for whom"], Grid)[0]))


def test_no_own_figure_and_no_file_is_outside_of_its_sections():
    outside = str([one.blocks for one in report(FOUND).sections if not one.inside])
    assert "0.750" not in outside
    assert "0.625" not in outside
    assert "secret.csv" not in str(report(FOUND).plain())
