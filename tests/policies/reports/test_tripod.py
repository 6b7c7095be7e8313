"""TRIPOD+AI: every item is there, what the study knows is filled, and nothing is made up."""

import pytest

from policies.reports import tripod
from policies.reports.guarantee import guarantee
from policies.reports.published import PublishedFigure
from support.studies import tiny_study, with_label

STUDY = tiny_study(expected={"patients": [1000], "prevalence": 0.25})
FIGURES = [
    PublishedFigure("a", "auc", 0.8, 0.7, 0.9),
    PublishedFigure("a", "auc_moved", 0.02, 0.0, 0.02),
    PublishedFigure("a", "patients", 40.4, 30.0, 50.0),
    PublishedFigure("b", "patients", None, 0.0, 9.0),
]


def filled(study=STUDY, figures=(), **more):
    return tripod.filled(study, guarantee(study, None), figures, version="9.9", **more)


def test_it_has_27_items_and_their_52_parts_in_order():
    numbers = [int(name.rstrip("abcdefg")) for name in tripod.ITEMS]
    assert sorted(set(numbers)) == list(range(1, 28))
    assert (numbers, len(numbers)) == (sorted(numbers), 52)
    section = tripod.section(STUDY, guarantee(STUDY, None), FIGURES, version="9.9")
    table = section.blocks[1]
    assert [row[0].text for row in table.rows] == list(tripod.ITEMS)
    left = [row[0].text for row in table.rows if row[2].text == tripod.AUTHORS]
    assert set(tripod.ITEMS) - set(left) == set(filled(figures=FIGURES))
    assert section.blocks[0].text.startswith(f"{52 - len(left)} of 52 items")


@pytest.mark.parametrize("item", ["1", "2", "3a", "5b", "6b", "17", "18a", "18b", "18d", "19", "25"])
def test_what_only_people_know_is_left_to_them(item):
    assert item not in filled(figures=FIGURES, limits=["Not a device."])


def test_what_a_study_knows_is_filled():
    known = filled(figures=FIGURES, limits=["Not a device.", "Look first."])
    assert known["4"] == STUDY.purpose
    assert "north, south, west" in known["5a"]
    assert "patients who train: 1,000" in known["10"]
    assert "From 0.25 on a patient counts as ill" in known["15"]
    assert f"{STUDY.digest[:16]}..., stands whole at the end" in known["18c"]
    assert known["18f"].startswith("FedWard 9.9")
    assert known["12e"].startswith("auc, patients, from noised sums")
    assert known["21"].startswith("Held out, by noised counts: a about 40.")
    assert known["26"] == "Not a device. Look first."
    assert known["11"] == "A record with a missing cell is left out."


def test_one_group_has_no_item_on_fairness_unless_attributes_are_compared():
    one = {"domain": [{"column": "group", "values": ["a"], "names": ["a"]}]}
    assert "14" not in filled(tiny_study(data=one))
    guarded = {"protected": [{"column": "sex", "values": ["f", "m"], "names": ["f", "m"]}]}
    assert "groups of sex inside" in filled(tiny_study(data=one | guarded))["14"]


def test_without_figures_limits_or_guesses_these_items_are_the_authors():
    assert not {"10", "12e", "21", "23a", "23b", "26"} & set(filled(tiny_study()))


def test_fills_and_codes_are_counted():
    features = [
        {"kind": "number", "column": "age", "minimum": 0, "maximum": 120, "fill": 60, "outside": "clip"},
        {"kind": "category", "column": "ward", "values": ["x", "y"], "optional": True},
    ]
    known = filled(tiny_study(data={"features": features}))
    assert known["7"].startswith("1 numbers are scaled to [-1, 1] between public bounds, 1 of them cut there. 1 column")
    assert known["11"].startswith("A missing cell of 1 number becomes a public value")
    assert known["27a"] == known["11"]


def test_other_outcomes():
    several = with_label({"column": "kind", "classes": [[1], [2], [3]]})
    assert filled(several)["15"].startswith("The probability of each of 3 classes")
    number = with_label({"column": "days", "minimum": 1, "maximum": 30})
    assert filled(number)["15"] == "A number within the outcome's public range."
