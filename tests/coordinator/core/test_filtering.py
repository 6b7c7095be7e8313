"""What a list shows, and in which pages."""

from dataclasses import replace

import pytest

from coordinator.core.filtering import EVERYTHING, StudyFilter, page
from protos.status import StudyStatus

ANN = "fedward://author/ann"
ONE = StudyStatus("a" * 64, "exam-1", "running", "", 1, 3, 1, "gather", None, (), ())
STUDIES = [
    ONE,
    replace(ONE, study="b" * 64, name="exam-2", state="finished", owner=ANN),
    replace(ONE, study="c" * 64, name="heart", state="finished", archived=True),
    replace(ONE, study="d" * 64, name="lung", owner=ANN),
]


def shown(**wanted):
    return [one.name for one in page(STUDIES, StudyFilter(**wanted))[0]]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({}, ["exam-1", "exam-2", "lung"]),
        ({"archived": True}, ["exam-1", "exam-2", "heart", "lung"]),
        ({"states": frozenset({"finished"})}, ["exam-2"]),
        ({"states": frozenset({"finished", "running"}), "archived": True}, ["exam-1", "exam-2", "heart", "lung"]),
        ({"name": "exam-*"}, ["exam-1", "exam-2"]),
        ({"owner": ANN}, ["exam-2", "lung"]),
        ({"owner": ANN, "name": "l*"}, ["lung"]),
        ({"name": "EXAM-1"}, []),
    ],
)
def test_what_fits(wanted, names):
    assert shown(**wanted) == names


def test_pages_follow_each_other_and_leave_nothing_out():
    wanted, names = StudyFilter(most=2), []
    for more in (1, 0):
        found, rest = page(STUDIES, wanted)
        assert rest == more
        names += [one.name for one in found]
        wanted = replace(wanted, after=found[-1].study)
    assert names == ["exam-1", "exam-2", "lung"]
    assert page(STUDIES, wanted) == ([], 0)
    assert page(STUDIES, replace(wanted, after="e" * 64))[0] == page(STUDIES, StudyFilter(most=2))[0]
    assert len(page(STUDIES, EVERYTHING)[0]) == 3
