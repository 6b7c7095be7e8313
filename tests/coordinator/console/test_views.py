from __future__ import annotations

import itertools

import pytest

from coordinator.console import views
from coordinator.core.rights import Action
from crypto.pki.identity import Identity, Role
from policies.reports.published import PublishedFigure
from protos.audit import AuditEntry
from protos.messages import Tensor
from protos.status import MemberStatus, PhaseTime, StudyStatus, UploadSize
from support.studies import tiny_study

OPS, ADA, VERA = (
    Identity(Role(role), name) for role, name in (("operator", "ops"), ("author", "ada"), ("viewer", "v"))
)


def status(state="running", **changes):
    fields = {
        "round": 1,
        "rounds": 3,
        "attempt": 1,
        "phase": "gather",
        "tensor": None,
        "waiting_for": (),
        "members": (),
    }
    return StudyStatus("d" * 64, "ward", state, "", **{**fields, **changes})


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


@pytest.mark.parametrize(
    ("state", "possible"),
    [
        ("created", ["start", "delete"]), ("running", ["pause", "abort"]), ("paused", ["resume", "abort"]),
        ("waiting", ["resume", "pause", "abort"]), ("finished", ["archive"]), ("ended", ["archive"]),
        ("aborted", ["archive"]), ("unheard of", []),
    ],
)  # fmt: skip
def test_what_can_be_done_follows_from_state_and_role(state, possible):
    for who in (OPS, ADA):
        assert views.actions(status(state), who) == possible
    assert views.actions(status(state), VERA) == []
    assert Action.ARCHIVE not in views.actions(status(state, archived=True), OPS)


def test_a_study_is_shown_with_whom_it_waits_for_and_in_a_sentence():
    look = views.look(status(waiting_for=("a", "b", "c", "d", "e")))
    assert look.waits == "a, b, c and 2 more"
    assert views.look(status(waiting_for=tuple("abcdefg"))).waits == "a, b, c and 4 more"
    assert views.look(status(waiting_for=tuple("abc"))).waits == "a, b, c"
    assert look.said == "ward is running, round 1 of 3, step Train"
    assert (look.badge, look.per_cent, look.ends) == ("busy", 25, "")
    assert views.look(status("paused")).said == "ward is paused, round 1 of 3"
    assert views.look(status("a state of another version")).badge == "off"
    times = (PhaseTime(0, 1, "offer", None, 60.0),)
    assert views.look(status(times=times, since=1_700_000_000.0)).ends == "2023-11-14 22:16:20 UTC"


def test_silos_are_shown_with_what_waiting_cost():
    slow = MemberStatus("north", "away", "gone", 1_700_000_000.0, 90.0, 600.0, 2)
    table = views.members(status(members=(slow, MemberStatus("south", "active", "", 0.0)), waiting_for=("north",)))
    assert texts(table) == [
        ["north", "away", "yes", "2023-11-14 22:13:20 UTC", "90 s of 10 min, 2 attempts", "gone"],
        ["south", "active", "", "never", "", ""],
    ]
    assert [row[1].badge for row in table.rows] == ["wait", "good"]


def test_history_adds_up_by_round_and_by_silo():
    uploads = tuple(
        UploadSize(0, 1, Tensor.HEADS, "sealed", silo, count) for silo, count in (("b", 5), ("a", 7), ("b", 6))
    )
    times = (PhaseTime(0, 1, "offer", None, 60.0), PhaseTime(0, 2, "gather", None, 30.0))
    rounds, sent = views.history(status(uploads=uploads, times=times))
    assert [(row.label, row.value) for row in rounds.blocks[0].rows] == [("Round 0", 90.0)]
    assert [(row.label, row.value, row.text) for row in sent.blocks[0].rows] == [
        ("a", 7.0, "7 B"),
        ("b", 11.0, "11 B"),
    ]
    assert views.history(status()) == []


# --- plots ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("area", [0.5, 0.7, 0.9, 0.05])
def test_the_area_below_the_curve_is_the_published_auc(area):
    points = views.roc(area)
    assert (points[0], points[-1]) == ((0.0, 0.0), (1.0, 1.0))
    assert list(points) == sorted(points)
    drawn = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in itertools.pairwise(points))
    assert drawn == pytest.approx(area, abs=0.012)
    assert 0 <= views.roc(0.0)[20][1] < views.roc(1.0)[20][1] <= 1


def figure(metric, value, low=0.0, high=1.0, domain="a"):
    return PublishedFigure(domain, metric, value, low, high)


def test_the_point_on_the_curve_is_what_was_published_at_the_threshold():
    figures = [figure("auc", 0.8), figure("false_negatives", 0.3), figure("balanced_accuracy", 0.75)]
    (section,) = views.discrimination(tiny_study(), figures)
    (curves,) = section.blocks
    (line,) = curves.lines
    assert line.mark == pytest.approx((0.2, 0.7))  # 1 - (2 x .75 - .7) false alarms, 1 - .3 found
    assert line.points == views.roc(0.8)
    assert "at the study's threshold" in curves.text
    (without,) = views.discrimination(tiny_study(), figures[:1])[0].blocks
    assert without.lines[0].mark is None
    assert "threshold" not in without.text
    for name in ("false_negatives", "balanced_accuracy"):
        unknown = [figure(one.metric, None) if one.metric == name else one for one in figures]
        assert views.discrimination(tiny_study(), unknown)[0].blocks[0].lines[0].mark is None
    impossible = [figure("auc", 0.8), figure("false_negatives", 1.0), figure("balanced_accuracy", 0.9)]
    assert views.discrimination(tiny_study(), impossible)[0].blocks[0].lines[0].mark is None


def test_calibration_is_drawn_around_one_and_what_is_not_known_is_left_out():
    figures = [figure("expected_observed", 1.2, 0.9, 1.6), figure("expected_observed", None, domain="b")]
    (section,) = views.discrimination(tiny_study(), figures)
    (dots,) = section.blocks
    assert (dots.reference, [row.label for row in dots.rows], dots.high) == (1.0, ["a"], 2.0)
    assert views.discrimination(tiny_study(), [figure("auc", None)]) == []
    for high, axis in ((3.0, 3.0), (12.0, 4.0)):
        (wide,) = views.discrimination(tiny_study(), [figure("expected_observed", 2.5, 1.0, high)])[0].blocks
        assert (wide.low, wide.high) == (0.0, axis)


def test_the_audit_log_says_who_did_what_to_which_study():
    entry = AuditEntry(
        7, "2026-01-02T03:04:05.000006+00:00", "fedward://author/ada", "c" * 64, "abort", "e" * 64, "ward", "",
        "why not", "refused", "may not",
    )  # fmt: skip
    (row,) = views.audit([entry]).rows
    assert [cell.text for cell in row] == [
        "7",
        "2026-01-02 03:04:05",
        "author/ada",
        "abort",
        "ward",
        "refused",
        "why not",
    ]
    assert (row[4].to, row[4].note, row[5].badge, row[6].note) == (f"/studies/{'e' * 64}", "e" * 12, "bad", "may not")
