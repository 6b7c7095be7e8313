"""Many studies on a screen, and one as it goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from coordinator.cli import listing
from coordinator.cli.listing import ends, facts, follow, line, per_cent
from protos.messages import Tensor
from protos.status import PhaseTime, StudyStatus, UploadSize

T = datetime(2026, 11, 6, 15, 0, tzinfo=UTC).timestamp()
ONE = StudyStatus(
    "a" * 64,
    "exam",
    "running",
    "",
    2,
    3,
    1,
    "gather",
    Tensor.HEADS,
    ("east", "north", "south", "west"),
    (),
    times=(
        PhaseTime(0, 1, "offer", None, 10.0),
        PhaseTime(0, 1, "gather", None, 20.0),
        PhaseTime(1, 1, "gather", None, 40.0),
        PhaseTime(1, 2, "gather", None, 10.0),
        PhaseTime(2, 1, "offer", None, 5.0),
    ),
    uploads=(UploadSize(0, 1, None, "greeting", "north", 500_000), UploadSize(1, 1, None, "heads", "north", 750_000)),
    since=T,
    until=T + 60,
)


def test_a_line_says_what_is_waited_for_and_until_when():
    now = datetime.fromtimestamp(T + 1, UTC)
    assert line(ONE, now) == (
        "exam running, 50 %, round 2/3, attempt 1; gather heads; waits for east, north, south and 1 more until 15:01:00"
        " UTC; 1.2 MB received; ends about 15:01:15 UTC"
    )
    later = datetime(2026, 11, 7, tzinfo=UTC)
    assert "until 2026-11-06 15:01 UTC" in line(ONE, later)
    over = replace(ONE, state="aborted", why="stopped", waiting_for=())
    assert line(over, now) == "exam aborted, 50 %, round 2/3, attempt 1; 1.2 MB received; stopped"


def test_the_end_is_estimated_from_the_rounds_that_ended():
    """Two rounds took 30 and 50 s: two of 40 s are to come, of which 5 s were over when the phase began."""
    assert ends(ONE) == T - 5 + 80
    assert ends(replace(ONE, times=())) is None
    assert ends(replace(ONE, state="paused")) is None
    assert ends(replace(ONE, since=0.0)) is None
    assert [per_cent(replace(ONE, round=n, state=s)) for n, s in ((0, "created"), (3, "running"), (3, "finished"))] == [
        0,
        75,
        100,
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_where_nobody_looks_each_change_is_a_line_and_the_end_is_the_end(capsys, as_json):
    steps = [ONE, ONE, replace(ONE, since=T + 1), replace(ONE, phase="solve"), replace(ONE, state="finished")]
    waited, left = [], list(steps)
    follow(lambda: left.pop(0), 7.0, json_lines=as_json, live=False, wait=waited.append)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert waited == [7.0] * 4
    if as_json:
        assert [json.loads(one)["state"] for one in lines] == ["running", "running", "finished"]
        assert json.loads(lines[0]) == json.loads(json.dumps(facts(ONE)))


def test_the_page_of_a_list_is_one_screen():
    assert listing._SCREEN + 4 <= 24
