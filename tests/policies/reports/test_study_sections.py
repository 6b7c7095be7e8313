"""What a study's document says to a board."""

from dataclasses import replace

import pytest

from policies.reports import study_sections
from policies.reports.blocks import Grid
from policies.reports.guarantee import guarantee
from policies.reports.study_sections import TookPart
from support.studies import tiny_study, with_label

STUDY = tiny_study(expected={"patients": [100], "prevalence": 0.25})
PRICE = guarantee(STUDY, None)
NUMBER = with_label({"column": "days", "minimum": 1, "maximum": 30, "scale": "log"})
SEVERAL = with_label({"column": "kind", "classes": [[1], [2], [3]]})


def rows(section):
    (table,) = [block for block in section.blocks if isinstance(block, Grid)]
    return {row[0].text: tuple(cell.text for cell in row[1:]) for row in table.rows}


def test_what_was_asked():
    said = rows(study_sections.asked(STUDY))
    assert said["Outcome"] == ("column ill: 1 means yes, 0 means no",)
    assert said["Read of each record"] == ("2 columns (2 numbers, 0 codes): age, lactate",)
    assert said["Groups with a head of their own"] == ("a, b (by group)",)
    assert said["Rounds"] == ("1 for all groups together, then 1 by group",)
    assert said["A patient counts as ill"] == ("from a risk of 0.25 on",)
    assert "Attributes that are compared for fairness" not in said
    guarded = tiny_study(data={"protected": [{"column": "sex", "values": ["f", "m"], "names": ["f", "m"]}]})
    assert rows(study_sections.asked(guarded))["Attributes that are compared for fairness"] == ("sex",)


def test_an_image_is_read_too():
    image = {"column": "scan", "height": 16, "width": 24, "minimum": 0, "maximum": 255}
    model = {"encoder": "cnn", "channels": [4]}
    assert study_sections.predictors(tiny_study(data={"image": image}, model=model)).endswith(
        "; an image of 16 x 24 pixels in column scan"
    )


def test_one_head_for_all_is_not_said_to_be_one_for_each_group():
    one = tiny_study(heads={"domain_rounds": 0})
    said = rows(study_sections.asked(one))
    assert said["Groups that are compared, one head"] == ("a, b (by group)",)
    assert study_sections.headline(one, PRICE)[2].label == "Groups that are compared, one head"


def test_other_outcomes_have_no_threshold():
    assert study_sections.outcome(NUMBER.data.label) == "column days, a number from 1 to 30, on the scale log"
    assert study_sections.outcome(SEVERAL.data.label) == "column kind, 3 classes"
    assert "A patient counts as ill" not in rows(study_sections.asked(SEVERAL))


def test_who_took_part_is_told():
    alone = study_sections.who_took_part(STUDY, ())
    assert alone.blocks[0].text.endswith("at least 3 of them. They are north, south, west.")
    plain = study_sections.who_took_part(STUDY, [TookPart("north", "took part")])
    assert rows(plain) == {"north": ("took part",)}


def test_the_price_is_in_numbers_and_in_sentences():
    section = study_sections.price(replace(PRICE, charged=3.5), 8.0)
    said = rows(section)
    assert said["By the study's plan"] == (f"{PRICE.planned:.4f}",)
    assert said["Charged at this hospital, repeated attempts included"] == ("3.5000",)
    assert said["Of the plan, for a patient of 3 of its hospitals"] == (f"{PRICE.several[3]:.4f}",)
    assert said["This hospital's budget for all studies together"] == ("8",)
    one = study_sections.price(replace(PRICE, planned=1.0, charged=None))
    assert "at most 2.72 times more or less sure" in one.blocks[-1].text
    assert "right at most 73.2 % of the time" in one.blocks[-1].text
    assert set(rows(one)) == {name for name in said if name.startswith(("By", "Of"))}


@pytest.mark.parametrize("budget", [None, float("inf")])
def test_a_budget_that_binds_nobody_is_not_shown(budget):
    assert not any("budget" in name for name in rows(study_sections.price(PRICE, budget)))


def test_what_was_protected_from_whom():
    said = rows(study_sections.protected(PRICE))
    assert list(said) == ["The coordinator", "Another hospital", "Whoever gets the model", "The network"]
    assert f"epsilon {PRICE.epsilon:.2f} at delta 1e-05" in said["Whoever gets the model"][1]
    assert said["Another hospital"][0].startswith("The noised sum")
    assert "`" not in " ".join(study_sections.protected(PRICE).blocks[-1].items)


def test_without_noise_nothing_is_said_to_be_protected():
    public = replace(PRICE, planned=float("inf"), protects=(), several={})
    said = rows(study_sections.protected(public))
    assert said["Another hospital"][0] == "The sum over the hospitals that took part"
    assert said["Whoever gets the model"][1].startswith("Nothing: no noise was used")
    assert "No privacy budget" in study_sections.price(public).blocks[0].text
    (none, *_), (epsilon, *_) = (study_sections.headline(STUDY, one) for one in (public, PRICE))
    assert (none.value, none.aside) == ("none", "no noise: data declared public")
    assert epsilon.aside == "at delta 1e-05, for every patient"


def test_the_numbers_at_the_top():
    epsilon, hospitals, groups = study_sections.headline(STUDY, PRICE)
    assert (epsilon.value, hospitals.value, groups.value) == (f"{PRICE.epsilon:.2f}", "3", "2")
    assert study_sections.facts(STUDY) == (f"study {STUDY.digest[:16]}", "3 hospitals", "2 domains", "2 rounds")
