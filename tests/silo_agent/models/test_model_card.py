import json

import numpy as np
import pytest

from policies.accounting import accountant, overlap
from policies.plan import shapes
from policies.plan.release import plan as plan_of
from silo_agent.learning.encoder.layers import OPERATIONS, describe
from silo_agent.learning.personal.unknown_domain import network_of
from silo_agent.models.model_card import ModelFacts, Shares, model_card, to_json
from silo_agent.models.model_card_text import to_markdown
from support.models import GRAY, STUDIES, random_model, study_of

METRICS = {"auc": None, "accuracy": {"value": 0.5, "low": 0.25, "high": 0.75}}
NONE = {
    "heads": {"pooled_noise": 0, "domain_noise": 0},
    "encoder": {"noise": 0},
    "evaluation": {"noise": 0},
    "privacy": {"mode": "none", "count_noise": 0},
}


def card_of(study, *, personal=False, counted=False, **options):
    model = random_model(study)
    encoder, heads = network_of(model)
    shares = np.full(len(heads), 1 / len(heads))
    data = study.data
    network = describe(encoder, heads, shares, model.family, inputs=data.inputs, label=data.label)
    given = {"version": "7.8.9", "files": {"onnx": "model.onnx"}, "quality": None, "charged": None}
    facts = ModelFacts("d" * 64, 2, personal)
    return model_card(study, facts, network, Shares(shares, counted=counted), **{**given, **options})


def test_the_card_of_a_study_that_continues_another_says_that_its_epsilon_is_not_all():
    study = study_of("binary mlp")
    later = study.model_copy(update={"continues": "e" * 64})
    before, after = card_of(study), card_of(later)
    assert "continues" not in before["study"]
    assert after["study"]["continues"] == "e" * 64
    added = [line for line in after["privacy"]["does_not_protect"] if line not in before["privacy"]["does_not_protect"]]
    assert len(added) == 1
    assert "does not cover the model that the study started from" in added[0]
    text = to_markdown(json.loads(to_json(after)))
    assert added[0] in text
    assert f"| continues the model (SHA-256) | `{'e' * 64}` |" in text


@pytest.mark.parametrize("kind", STUDIES)
def test_a_card_is_json_and_every_coordinate_of_the_input_stands_on_it(kind):
    study = study_of(kind)
    card = json.loads(to_json(card_of(study)))
    coordinates = card["data"]["inputs"]
    assert [entry["index"] for entry in coordinates] == list(range(study.data.inputs))
    widths = [sum(entry["column"] == f.column for entry in coordinates) for f in study.data.features]
    assert widths == [f.width for f in study.data.features]
    assert card["domains"]["names"] == list(study.data.domains)
    assert [entry["codes"] for entry in card["classes"]] == [list(codes) for codes in study.data.label.codes]
    assert (card["data"]["image"] is None) == (study.data.image is None)


def test_a_number_is_said_with_its_range_and_what_errors_are_measured_in():
    card = card_of(study_of("mlp of a number"), quality=[{"domain": "a", "metrics": {"mae": None}}])
    assert card["number"]["errors"] == "of the natural logarithm of 1 + the column"
    assert card["classes"] == []
    text = to_markdown(json.loads(to_json(card)))
    assert "Outcome: column ill, a number in [0, 5]." in text
    assert "`value` float64 (n, 1)" in text
    assert 'value = session.run(["value"]' in text
    assert "class" not in text.split("## Data")[1].split("## Architecture")[0]
    assert "number" not in card_of(study_of("linear mlp"))
    classes = card_of(study_of("linear mlp"))["use"]["limits"]
    limits = card["use"]["limits"]
    assert limits[:3] == classes[:3]
    assert ["whose quality was not measured" in limits[2], "No value beyond the label's range" in limits[3]] == [
        True
    ] * 2


def test_scaling_one_hot_order_and_absence_are_spelled_out():
    coordinates = card_of(study_of("binary mlp"))["data"]["inputs"]
    assert [entry["formula"] for entry in coordinates] == [
        "2 (x - 18) / (90 - 18) - 1",
        "2 (ln x - ln 0.1) / (ln 20 - ln 0.1) - 1; x = 1.5 where absent",
        "1 where x is absent, else 0",
        "1 where x is f, else 0",
        "1 where x is m, else 0",
        "1 where x is absent, else 0",
        "1 where x is 1, else 0",
        "1 where x is 2, else 0",
        "1 where x is 3, else 0",
        "2 (ln(1 + x) - ln(1 + 0)) / (ln(1 + 40) - ln(1 + 0)) - 1; x clipped to [0, 40]",
    ]
    assert [entry["missing"] for entry in coordinates[1:4]] == [[-9], [-9], ["u"]]


def test_a_bound_that_needs_all_its_digits_keeps_them():
    features = [{"kind": "number", "column": "age", "minimum": 0.1234567890123, "maximum": 1e7 + 0.25}]
    coordinate = card_of(study_of("linear mlp", data={"features": features}))["data"]["inputs"][0]
    assert "0.1234567890123" in coordinate["formula"]
    assert "10000000.25" in coordinate["formula"]


def test_domains_are_told_factor_by_factor():
    factors = card_of(study_of("binary mlp"))["domains"]["factors"]
    assert factors[0] == {"column": "group", "places": [{"name": "a", "code": "a"}, {"name": "seven", "code": 7}]}
    assert factors[1]["places"] == [
        {"name": "young", "from": None, "below": 40.0},
        {"name": "middle", "from": 40.0, "below": 65.0},
        {"name": "old", "from": 65.0, "below": None},
    ]


def test_image_preparation_is_told():
    card = card_of(study_of("stochastic cnn with features"))
    image = card["data"]["image"]
    assert {key: image[key] for key in GRAY} == GRAY
    assert image["levels"] == 65100
    steps = [line for line in to_markdown(json.loads(to_json(card))).splitlines() if line.startswith(("0. ", "1. "))]
    assert steps[0] == f"1. {image['steps'][0]}"
    assert "bilinear" in " ".join(image["steps"])


@pytest.mark.parametrize("kind", STUDIES)
def test_the_architecture_explains_every_operation_it_uses(kind):
    study = study_of(kind)
    network = card_of(study)["architecture"]
    assert {layer["operation"] for layer in network["layers"]} == set(network["operations"])
    assert all(network["operations"][name] == OPERATIONS[name] for name in network["operations"])
    sizes = {name: np.prod(tensor["shape"]) for name, tensor in network["tensors"].items()}
    heads = sizes["heads.weight"] + (sizes["heads.bias"] if study.model.bias else 0)
    assert heads == shapes.head_width(study) * len(study.data.domains)
    assert network["inputs"]["domain"] == {"type": "int64", "shape": ["n"], "unknown": -1}
    name = "value" if study.data.label.number else "probabilities"
    assert network["output"] == {name: {"type": "float64", "shape": ["n", study.data.label.count]}}


# --- privacy ----------------------------------------------------------------------------------------------------------
def test_epsilon_is_the_accountants_for_the_whole_plan():
    study = study_of("linear mlp")
    privacy = card_of(study)["privacy"]
    assert privacy["epsilon"] == accountant.epsilon(plan_of(study).costs(), study.privacy.delta)
    assert (privacy["private"], privacy["delta"], privacy["unit"], privacy["noise"]) == (True, 1e-5, "patient", "local")
    assert "patient" in privacy["protects"][0]
    several = overlap.of_plan(plan_of(study).costs(), len(study.silos), study.privacy.delta)
    assert privacy["epsilon_at_several_hospitals"] == {str(many): bound for many, bound in several.items()}
    (told,) = (line for line in privacy["does_not_protect"] if "several of the hospitals" in line)
    assert f"at most {several[2]:.4f} at 2 of them and {several[3]:.4f} at 3 of them" in told
    assert "ledger together" in told
    assert several[2] > privacy["epsilon_of_the_plan"]


def test_epsilon_is_what_was_charged_if_that_is_more_than_the_plan():
    study = study_of("linear mlp")
    planned = list(plan_of(study).costs())
    for charged in (planned[:1], planned * 2):
        privacy = card_of(study, charged=charged)["privacy"]
        spent = accountant.epsilon(charged, study.privacy.delta)
        assert privacy["epsilon_charged_here"] == spent
        assert privacy["epsilon"] == max(spent, privacy["epsilon_of_the_plan"])
        assert (spent > privacy["epsilon_of_the_plan"]) == (len(charged) > len(planned))


@pytest.mark.parametrize(("counted", "word"), [(True, "noised domain counts"), (False, "equal shares")])
def test_the_weights_of_an_unknown_domain_say_where_they_are_from(counted, word):
    study = study_of("linear mlp")
    unknown = card_of(study, counted=counted)["unknown_domain"]
    assert (unknown["from"], unknown["weights"]) == (word, [0.5, 0.5])


def test_the_plan_lists_every_release_once():
    study = study_of("linear mlp", heads={"pooled_rounds": 2, "domain_rounds": 3})
    plan = card_of(study)["privacy"]["plan"]
    shown = [(e["tensor"], e["noise"], e["first_round"], e["last_round"]) for e in plan]
    assert shown == [
        ("counts", 30.0, 0, 0),
        ("heads", 15.0, 1, 2),
        ("encoder", 4.0, 1, 4),
        ("heads", 20.0, 3, 5),
        ("metrics", 8.0, 6, 6),
    ]
    releases = sum((e["last_round"] - e["first_round"] + 1) * e["count"] for e in plan)
    assert releases == sum(cost.count for cost in plan_of(study).costs())


def test_a_study_of_records_says_so():
    privacy = card_of(study_of("linear mlp", data={"patient": None}))["privacy"]
    assert (privacy["unit"], privacy["relation"]) == ("record", "adding or removing one record")


def test_distributed_noise_names_how_many_may_collude():
    study = study_of(
        "linear mlp", silos=["a", "b", "c", "d"], min_silos=4, privacy={"mode": "distributed", "colluders": 2}
    )
    assert "no more than 2 of them" in card_of(study)["privacy"]["noise_means"]


@pytest.mark.parametrize("changes", [NONE])
def test_public_data_without_noise_is_unbounded_and_protects_nobody(changes):
    card = card_of(study_of("linear mlp", **changes), charged=plan_of(study_of("linear mlp", **changes)).costs())
    privacy = json.loads(to_json(card))["privacy"]
    assert [privacy[key] for key in ("epsilon", "epsilon_of_the_plan", "epsilon_charged_here")] == ["unbounded"] * 3
    assert (privacy["private"], privacy["protects"]) == (False, [])
    assert "protects nobody" in privacy["does_not_protect"][0]
    assert "| epsilon | unbounded |" in to_markdown(card)


def test_a_personal_card_says_so_first_and_promises_nothing():
    card = card_of(study_of("linear mlp"), personal=True)
    assert card["kind"] == "personal-private"
    assert "must not leave the hospital" in card["warning"]
    assert card["privacy"]["private"] is False
    assert "delta" not in card["privacy"]
    first = to_markdown(card).splitlines()[:3]
    assert first[0] == "# tiny: personal model, PRIVATE"
    assert "NOT PRIVATE" in first[2]


def test_nothing_of_the_silos_stands_on_the_card():
    study = study_of("linear mlp")
    for text in (to_json(card_of(study)).decode(), to_markdown(card_of(study))):
        assert not any(silo in text for silo in study.silos)


# --- text -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", STUDIES)
@pytest.mark.parametrize("personal", [False, True])
def test_the_text_holds_what_the_json_holds(kind, personal):
    study = study_of(kind)
    quality = [{"domain": domain, "metrics": METRICS} for domain in study.data.domains]
    card = card_of(study, personal=personal, quality=quality)
    text = to_markdown(card)
    for section in (
        "Use",
        "Data",
        "Domains and classes" if study.data.label.number is None else "Domains and outcome",
        "Architecture",
        "Privacy",
        "Quality",
        "Intended use and limits",
    ):
        assert f"\n## {section}\n" in text
    told = [entry["formula"] for entry in card["data"]["inputs"]]
    told += [layer["output"] for layer in card["architecture"]["layers"]]
    told += list(card["architecture"]["tensors"])
    told += list(card["use"]["limits"]) + list(card["privacy"]["does_not_protect"])
    told += [study.digest, "d" * 64, "7.8.9", *study.data.domains]
    told += card["data"]["image"]["steps"] if card["data"]["image"] else []
    assert [entry for entry in told if entry not in text] == []
    assert f"| {study.data.domains[0]} | - | 0.500 [0.250, 0.750] |" in text


def test_tables_survive_codes_with_bars_and_lines():
    features = [{"kind": "category", "column": "a|b", "values": ["x|y", "line\nbreak"]}]
    text = to_markdown(card_of(study_of("linear mlp", data={"features": features})))
    row = next(line for line in text.splitlines() if line.startswith("| 0 |"))
    assert row == "| 0 | a\\|b | 1 where x is x\\|y, else 0 |  |"
    assert "1 where x is line break, else 0" in text


@pytest.mark.parametrize(("missing", "told"), [([], "nothing"), (["", "NA"], "'', 'NA'")])
def test_what_an_absent_value_looks_like_is_told(missing, told):
    text = to_markdown(card_of(study_of("linear mlp", data={"missing": missing})))
    assert f"\nAbsent is: {told}.\n" in text


def test_bands_read_as_inequalities():
    text = to_markdown(card_of(study_of("binary mlp")))
    assert "young: x < 40; middle: 40 <= x < 65; old: 65 <= x" in text
    assert "a = 'a'; seven = 7" in text
