from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from scipy.stats import norm

import policies
from policies.accounting.accountant import gaussian_epsilon
from policies.documents.policy import load_policy
from policies.documents.words.explain import explain, guess

SAMPLES = sorted((Path(policies.__file__).parent / "samples").glob("*.yaml"))
CHANGES = {
    "contact": "new@hospital.example",
    "data_set.id": "oncology",
    "data_set.unit": "record",
    "data_set.identified_by": ["visit"],
    "data_set.holdout": 0.3,
    "data_set.file.delimiter": ";",
    "data_set.file.columns": ["pid", "visit", "y"],
    "data_set.file.encoding": "windows-1252",
    "data_set.public": True,
    "spelling.decimal": ",",
    "spelling.absent": ["crp"],
    "spelling.dates": {"born": "%d.%m.%Y"},
    "spelling.units": {"weight": {"unit": "kg"}},
    "spelling.missing": ["."],
    "spelling.codes": {"sex": {"M": "m"}},
    "budget.epsilon": 3.0,
    "budget.delta": 1e-6,
    "budget.expires": "2027-12-31",
    "min_silos": 7,
    "noise_modes": ["local"],
    "colluders": 0,
    "encoder_sealing": "ckks",
    "smallest_domain": 33,
    "limits.study_epsilon": 1.5,
    "limits.round_epsilon": 0.75,
    "limits.rounds": 9,
    "limits.charged_attempts": 3,
    "limits.architectures": ["mlp"],
    "limits.encoder_weights": 12345,
    "limits.representation": 15,
    "limits.sampling_rate": 0.07,
    "limits.clip": 0.9,
    "limits.memory_mib": 2048,
    "split.encoder": 0.61,
    "split.heads": 0.62,
    "split.counts": 0.63,
    "split.metrics": 0.64,
    "publish": ["auc"],
    "retention_days": 77,
    "hand_over": True,
    "polls": 5,
    "approved_data": {"ward": [{"studies": "heart", "author": "fedward://author/ann", "purpose": "*"}]},
    "studies": ["1" * 64],
    "approvers": ["fedward://approver/ada", "fedward://approver/grace"],
}


def test_own_codes_and_marks_are_said(make_policy):
    text = text_of(
        make_policy({"spelling": {"missing": [".", ""], "codes": {"sex": {"M": "m", 9: None}, "y": {"yes": 1}}}})
    )
    assert "Cells of '.' and '' mean that nothing is recorded." in text
    assert "Own codes stand in sex (M for 'm', 9 for not recorded) and y (yes for 1)." in text


def test_columns_that_the_file_has_otherwise_are_said(make_policy):
    spelling = {
        "decimal": ",",
        "absent": ["crp", "lactate"],
        "dates": {"born": "%d.%m.%Y", "seen": "%Y-%m-%d"},
        "between": {"age": {"start": "born", "end": "seen", "unit": "years"}},
        "units": {"creatinine": {"unit": "umol/l", "into": {"mg/dl": {"factor": 0.0113}}}, "weight": {"unit": "kg"}},
    }
    text = text_of(make_policy({"spelling": spelling, "data_set.file.encoding": "iso-8859-1"}))
    assert "no study can say otherwise. Its characters are in iso-8859-1. Numbers have a comma before" in text
    assert "The hospital does not have crp and lactate; their cells count as not recorded." in text
    assert "Dates of born are written as %d.%m.%Y. Dates of seen are written as %Y-%m-%d." in text
    assert "age is the time from born to seen in years. creatinine is in umol/l, and is converted for studies" in text
    assert "that ask for mg/dl. weight is in kg. 20%" in text


def test_rules_for_data_are_said(make_policy):
    ann, bob = (
        {"author": "fedward://author/ann", "purpose": "*"},
        {"author": "fedward://author/bob", "purpose": "Say x."},
    )
    rules = {"ward": [{"studies": "exam-*", **ann}, {"studies": "heart", **bob}], "lab": [{"studies": "lab-1", **ann}]}
    text = text_of(make_policy({"approved_data": rules}))
    assert (
        "those named exam-*, signed by fedward://author/ann, with any purpose or named heart, signed by"
        " fedward://author/bob, with the purpose 'Say x.' get the data ward and those named lab-1, signed by" in text
    )


def text_of(policy):
    return "\n".join(f"{heading}: {text}" for heading, text in explain(policy))


@pytest.mark.parametrize("field", CHANGES)
def test_every_field_is_spoken_of(field, make_policy):
    assert text_of(make_policy({field: CHANGES[field]})) != text_of(make_policy())


def test_no_field_is_untested(make_policy):
    def fields(part, prefix=""):
        for name, value in part:
            yield from fields(value, f"{prefix}{name}.") if hasattr(value, "model_fields") else (f"{prefix}{name}",)

    assert {*fields(make_policy())} - set(CHANGES) == {"version", "budget.relation", "spelling.between"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_can_be_explained(path):
    text = text_of(load_policy(path))
    assert "{" not in text
    assert ".." not in text


def test_the_numbers_of_the_policy_stand_in_the_text(make_policy):
    text = text_of(make_policy({field: CHANGES[field] for field in CHANGES if field != "data_set.public"}))
    assert "77 days after the day on which a study ended" in text
    for number in (
        "epsilon of 3 ",
        "1e-06",
        "2027-12-31",
        "epsilon of 1.5",
        "0.75",
        "12,345",
        "2,048 MiB",
        "61%",
        "64%",
        "33",
        "7",
    ):
        assert number in text


def test_each_ceiling_is_that_of_its_own_epsilon_and_never_shown_too_low(make_policy):
    epsilons = {"budget.epsilon": 3.0, "limits.study_epsilon": 1.5, "limits.round_epsilon": 0.75}
    policy = make_policy(epsilons)
    text = text_of(policy)
    for words, epsilon in (
        ("budget spent, this can become at most", 3.0),
        ("after one study of the largest price at most", 1.5),
    ):
        shown = float(re.search(rf"{words} ([0-9.]+)%", text)[1])
        exact = 100 * guess(epsilon, policy.budget.delta)
        assert exact <= shown < exact + 0.0101
    assert f"at most {math.exp(3.0):.3g} times more or less likely" in text


def test_limits_stand_beside_what_they_limit(make_policy):
    text = text_of(make_policy({field: CHANGES[field] for field in CHANGES if field != "data_set.public"}))
    assert "at most: encoder updates 61%, head sums 62%, patient counts 63%, quality figures 64%." in text
    assert "At most 9 rounds, each charged at most 3 times." in text
    assert "and 0.75 in any single round" in text
    assert "a chance of at most 0.07, and moves the sum by at most 0.9 before noise" in text
    for may, word in ((True, "may be handed over"), (False, "is not to be handed over")):
        said = text_of(make_policy({"hand_over": may}))
        assert f"has helped to train {word}" in " ".join(said.split())


def test_the_text_says_how_the_file_is_parted(make_policy):
    assert "parted by commas, and its columns are named by its first line; no study can say oth" in text_of(
        make_policy()
    )
    text = text_of(make_policy({"data_set.file": {"delimiter": "\t", "columns": ["y", "pid"]}}))
    assert "parted by tabulators, and its columns are y and pid, in this order; no study can say otherwise" in text


def test_only_what_is_true_is_said_of_changes_and_of_several_hospitals(make_policy):
    text = text_of(make_policy())
    assert "comes into force by `fedward-silo policy reload`; the ledger records it" in text
    assert "started again" not in text
    assert "add up)" not in text
    assert "more than the sum of their epsilons in many cases: `fedward-silo ledger together` computes it" in text


def test_public_data_are_called_public_and_nothing_is_promised_for_them(make_policy):
    text = text_of(make_policy({"data_set.public": True}))
    assert "declared PUBLIC" in text
    assert "Nothing: for public data no epsilon binds" in text
    assert "declared PUBLIC" not in text_of(make_policy())


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_no_guess_beats_the_ceiling(mu, delta):
    """The best test of one Gaussian release, whose success at even odds is known: Phi(mu / 2)."""
    assert norm.cdf(mu / 2) <= guess(gaussian_epsilon(mu, delta), delta)


def test_the_ceiling_runs_from_a_coin_to_certainty():
    assert guess(1e-12, 1e-12) == pytest.approx(0.5)
    assert guess(math.log(3), 0.0) == pytest.approx(0.75)
    assert 0.99 < guess(8, 1e-5) < 1


def test_a_ceiling_below_certainty_is_not_shown_as_certainty(make_policy):
    text = text_of(make_policy({"budget.epsilon": 8.0}))
    assert "99.97%" in text
    assert "100.0%" not in text


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.1])
def test_the_ceiling_is_that_of_the_theorem(epsilon, delta):
    assert guess(epsilon, delta) == pytest.approx((math.exp(epsilon) + delta) / (1 + math.exp(epsilon)), rel=1e-12)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("colluders", 0, "even if 0 others conspire with the coordinator"),
        ("colluders", 1, "even if another hospital conspires with the coordinator"),
        ("min_silos", 7, "joins no sum of fewer than 7 hospitals, itself included"),
        ("retention_days", 1, "1 day after the day on which"),
        ("retention_days", 2, "2 days after the day on which"),
        ("smallest_domain", 0, "Groups of any size may get a model part"),
        ("smallest_domain", 33, "A group with fewer than 33 patients"),
        ("publish", [], "No quality figure may be published"),
        ("publish", ["auc", "r2"], "figures: area under the ROC curve and share of the variance explained."),
        ("studies", None, "Every study within these limits may run; nobody is asked again."),
        ("studies", [], "No study may run until its digest is added"),
        ("studies", ["1" * 64, "2" * 64], f"Only these, by digest: {'1' * 64}, {'2' * 64}."),
        ("approvers", None, "Anybody who may write the file and run the command."),
        ("spelling.missing", [], "Cells of nothing mean that nothing is recorded."),
        ("data_set.holdout", 0.25, "25% of the patients are kept apart"),
        ("data_set.unit", "record", "What is protected is the single record"),
        ("data_set.identified_by", ["a"], "The data say in a whose record it is."),
        (
            "data_set.file",
            {"delimiter": ",", "columns": ["pid", "b", "c"]},
            "its columns are pid, b and c, in this order",
        ),
        ("encoder_sealing", "ckks", "sealed by masks that cancel in the sum, and a second layer of encryption under"),
        ("noise_modes", ["local"], "Noise: this hospital hides every release with noise of its own"),
        ("noise_modes", ["local", "distributed"], "whatever the others do or the hospitals of a study add the noise"),
    ],
)
def test_each_choice_of_a_policy_has_its_own_words(make_policy, field, value, said):
    assert said in text_of(make_policy({field: value}))


@pytest.mark.parametrize(("epsilon", "shown"), [(8.0, "99.97%"), (math.log(9), "90.01%")])
def test_a_share_is_shown_with_four_digits_rounded_up(make_policy, epsilon, shown):
    assert f"this can become at most {shown} of the time" in text_of(make_policy({"budget.epsilon": epsilon}))


def test_several_who_conspire_are_counted(make_policy):
    assert "even if 2 others conspire with" in text_of(make_policy({"colluders": 2, "min_silos": 7}))


def test_every_paragraph_has_its_heading_in_reading_order(make_policy):
    assert [heading for heading, _ in explain(make_policy())] == [
        "Whose data",
        "What may be lost",
        "What epsilon means here",
        "What one study may ask",
        "What hides a contribution",
        "What may be said about groups",
        "Which studies",
        "How long it is kept",
        "Who may change this policy",
        "What no policy can promise",
    ]
