from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from crypto.rings.rings import ring_of
from crypto.secagg.layout import sealed_values
from policies.ledger.chain import Entry
from policies.ledger.events import Approved, Cleared, Debit, Fault, InForce
from policies.plan.release import plan
from policies.web.words import size
from silo_agent.console import views
from silo_agent.review.asking import AskingStudy
from silo_agent.review.known import OfferedStudy
from silo_agent.review.standing import HospitalOutlook
from support.ledgers import NORTH
from support.studies import tiny_study

STUDY = tiny_study()


def entry(number, event, epsilon=0.0, day=1):
    return Entry(number, "0" * 64, "1" * 64, f"2026-01-{day:02d}T03:04:05.000006+00:00", event, epsilon)


def charge(number, round_=1, **more):
    return entry(number, Debit(STUDY.digest, "p" * 64, round_, 1, plan(STUDY).round_costs(round_)), **more)


def texts(table):
    return [[cell.text for cell in row] for row in table.rows]


# --- studies ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("verdict", "badge"),
    [("waiting", "wait"), ("no_data", "wait"), ("refused", "bad"), ("declined", "off"), ("undecided", "busy"),
     ("allowed", "good")],
)  # fmt: skip
def test_a_study_that_asked_shows_its_verdict(verdict, badge):
    one = AskingStudy(
        OfferedStudy("ward", "d" * 64, -1, ""), "fedward://author/ada", (("budget", "too dear"),), "refused: budget",
        "2026-01-02T03:04:05", verdict=verdict,
    )  # fmt: skip
    (row,) = views.studies([one]).rows
    assert [cell.text for cell in row] == ["ward", "ada", "refused", "none yet", "2026-01-02 03:04", "too dear"]
    assert (row[0].to, row[2].badge) == (f"/studies/{'d' * 64}", badge)


def test_a_study_that_is_over_says_why():
    one = AskingStudy(OfferedStudy("ward", "d" * 64, 3, "finished: all"), "", (), "over: finished: all")
    (row,) = views.studies([one]).rows
    assert [cell.text for cell in row] == ["ward", "nobody", "over", "3", "has begun here", "finished: all"]
    assert row[2].badge == "off"


# --- price ------------------------------------------------------------------------------------------------------------
def test_a_study_without_a_price_says_so_and_one_with_a_price_is_held_against_the_budget():
    shown = SimpleNamespace(prices=None, outlook=None, study=STUDY)
    (section,) = views.price_sections(shown)
    assert "no price" in section.blocks[0].text
    prices = SimpleNamespace(
        alone={"heads": 1.0}, cohorts={"training": 1.5}, total=1.5, repeated=1.7, several={2: 3.0}, delta=1e-5
    )
    outlook = HospitalOutlook(0.5, 1.75, 4.0, None)
    budget, parts = views.price_sections(SimpleNamespace(prices=prices, outlook=outlook, study=STUDY))
    assert [(bar.value, bar.limit) for bar in budget.blocks[0].rows] == [(0.5, 4.0), (1.75, 4.0)]
    assert budget.blocks[1].text == "The budget is 4.0000; 2.2500 would be left."
    assert texts(parts.blocks[0]) == [
        ["heads", "1.0000"], ["training patients, together", "1.5000"], ["the study", "1.5000"],
        ["with one round repeated", "1.7000"], ["a patient of 2 of its hospitals", "3.0000"],
    ]  # fmt: skip
    public = replace(outlook, budget=math.inf)
    bars = views.price_sections(SimpleNamespace(prices=prices, outlook=public, study=STUDY))[0].blocks[0]
    assert [bar.limit for bar in bars.rows] == [None, None]


def test_what_leaves_is_the_plan():
    (table, _) = views.releases(STUDY).blocks
    planned = [(number, one) for number, round_ in enumerate(plan(STUDY).rounds) for one in round_]
    assert len(table.rows) == len(planned)
    for row, (number, one) in zip(texts(table), planned, strict=True):
        assert row[:4] == [str(number), one.tensor, one.cohort, f"{one.values:,}"]
        assert (row[4], float(row[5])) == (f"{one.count:,}", pytest.approx(one.noise, rel=1e-4))


# --- ledger -----------------------------------------------------------------------------------------------------------
def test_the_plot_has_a_step_at_each_entry_and_the_budget():
    entries = [entry(1, InForce("p" * 64, 4.0)), charge(2, epsilon=1.0, day=2), charge(3, epsilon=2.0, day=5)]
    found = views.stairs(NORTH, entries, 4.0)
    top = 1.05 * 4.0
    heights = [100.0, 100 * (1 - 1 / top), 100 * (1 - 2 / top)]
    wanted = [(0, 100), (0, 100), (250, heights[0]), (250, heights[1]), (1000, heights[1]), (1000, heights[2]),
              (1000, heights[2])]  # fmt: skip
    drawn = [tuple(map(float, point.split(","))) for point in found.edge.split()]
    assert drawn == [pytest.approx(point, abs=0.05) for point in wanted]
    assert found.limit == pytest.approx(100 * (1 - 4 / top))
    assert found.text == "From 2026-01-01 to 2026-01-05 2.000 was spent of a budget of 4."
    assert (found.first, found.last) == ("2026-01-01", "2026-01-05")


def test_nothing_is_drawn_where_nothing_was_spent_or_without_a_bound():
    assert views.stairs(NORTH, [], 4.0) is None
    assert views.stairs(NORTH, [entry(1, InForce("p" * 64, 4.0))], 4.0) is None
    assert views.stairs(NORTH, [charge(1, epsilon=math.inf)], 4.0) is None
    assert views.stairs(NORTH, [charge(1, epsilon=1.0)], 4.0) is not None, "one entry has no width"


def test_entries_are_told_newest_first():
    entries = [charge(1, epsilon=1.0), entry(2, Approved(STUDY.digest, "approved", "c" * 64, "b" * 64), 1.0)]
    rows = texts(views.ledger(entries, {STUDY.digest: "tiny"}))
    assert [row[0] for row in rows] == ["2", "1"]
    assert rows[0][2:4] == ["approved by a person", f"tiny {STUDY.digest[:12]}"]
    assert rows[1][2].startswith("charge, round 1, attempt 1: ")
    assert rows[1][4] == "1.0000"


def test_what_left_has_the_size_of_its_sealed_upload():
    release = min(plan(STUDY).round(1), key=lambda one: one.tensor)
    table = views.left([charge(1)], {STUDY.digest: STUDY}, {})
    rows = texts(table)
    assert (table.heads[-2:], table.numbers) == (("Noised numbers", "Sealed"), 2)
    sealed = ring_of(release.ring).content_size(sealed_values(release.values, len(STUDY.silos)))
    assert rows[0][4:6] == [release.tensor, f"{release.values:,}"]
    assert rows[0][6] == size(sealed)
    assert texts(views.left([charge(1)], {}, {}))[0][5:] == ["not known", "not known"]
    assert views.left([entry(1, InForce("p" * 64, 4.0))], {}, {}).rows == ()


def test_faults_count_until_somebody_clears_them():
    fault, cleared = entry(1, Fault(STUDY.digest, 0, 1, "heads")), entry(2, Cleared("the officer"))
    assert views.uncleared([fault]) == [fault]
    assert views.uncleared([fault, cleared]) == []
    assert views.uncleared([fault, cleared, fault]) == [fault]
    assert views.uncleared([charge(1)]) == []
