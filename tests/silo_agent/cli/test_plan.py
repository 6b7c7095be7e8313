import json
import re
import sys

import pytest
import yaml
from typer.testing import CliRunner

from crypto.errors import CertificateError
from policies.accounting import accountant, planning
from policies.documents.study import Study
from policies.ledger.ledger import Debit, Ledger
from policies.plan.release import plan as plan_of
from silo_agent.cli import main
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

UNNOISED = {
    "heads": {"pooled_noise": 0, "domain_noise": 0},
    "encoder": {"noise": 0},
    "evaluation": {"noise": 0},
    "privacy": {"mode": "none", "count_noise": 0},
}


def invoke(*arguments):
    return CliRunner().invoke(main.app, [str(a) for a in arguments])


@pytest.fixture(autouse=True)
def _elsewhere(quick_path, monkeypatch):
    """No agent.yaml lies around."""
    (quick_path / "empty").mkdir()
    monkeypatch.chdir(quick_path / "empty")
    monkeypatch.delenv("FEDWARD_AGENT_CONFIG", raising=False)


@pytest.fixture
def study(quick_path):
    return write_yaml(quick_path / "study.yaml", tiny_document())


@pytest.fixture
def hospital(quick_path, homes):
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    (quick_path / "north.csv").write_text("patient\n")
    (quick_path / "state").mkdir()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", NORTH)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    return write_yaml(quick_path / "agent.yaml", {**document, "data": {"tiny": "north.csv"}})


def charge(hospital, digest, costs, number=0, attempt=1):
    path = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        ledger.charge(Debit(digest, "p" * 64, number, attempt, costs))
        return ledger.spent()


def test_a_policy_of_another_data_set_than_the_certificates_is_not_planned_with(hospital, study):
    write_yaml(hospital.parent / "policy.yaml", policy_document("clinic"))
    with pytest.raises(CertificateError, match="not for the data set clinic"):
        raise invoke("plan", study, "-c", hospital).exception


def test_the_prices_are_shown_to_people_and_programs(study):
    total = accountant.epsilon(plan_of(tiny_study()).costs(), 1e-5)
    shown = invoke("plan", study)
    assert shown.exit_code == 0
    assert re.search(rf"the study\s*│\s*{total:.4f}", shown.output)
    document = json.loads(invoke("plan", study, "--format", "json").output)
    assert document["epsilon"] == total
    assert set(document["alone"]) == {"counts", "heads", "encoder", "metrics"}
    assert "hospital" not in document
    assert "advice" not in document


def test_a_feature_that_looks_like_time_at_risk_is_told(study, quick_path):
    assert json.loads(invoke("plan", study, "--no-forecast", "--format", "json").stdout)["time_at_risk"] == []
    assert "is there a row for each patient and period" not in invoke("plan", study, "--no-forecast").output
    feature = {"kind": "number", "column": "interval", "minimum": 1, "maximum": 10}
    periods = write_yaml(quick_path / "periods.yaml", tiny_document(data={"features": [feature]}))
    assert json.loads(invoke("plan", periods, "--no-forecast", "--format", "json").stdout)["time_at_risk"] == [
        "interval"
    ]
    assert "Look at interval: is there a row for each patient and period" in invoke("plan", periods).output


def test_a_yes_or_no_whose_patients_are_cut_by_their_outcome_is_told(study, quick_path):
    assert json.loads(invoke("plan", study, "--no-forecast", "--format", "json").stdout)["cut_by_outcome"] == []
    feature = {"kind": "number", "column": "smokes", "minimum": 0, "maximum": 1}
    raw = {"model": {"encoder": "raw", "hidden": [], "representation": 1}, "encoder": {"rounds": 0}}
    long = write_yaml(quick_path / "long.yaml", tiny_document(data={"features": [feature]}, **raw))
    assert json.loads(invoke("plan", long, "--no-forecast", "--format=json").stdout)["cut_by_outcome"] == ["smokes"]
    assert "Heads read smokes as numbers from 0 to 1" in invoke("plan", long, "--no-forecast").output


@pytest.mark.parametrize(
    ("silos", "min_silos", "who"), [("abc", 3, "nobody"), ("abcd", 3, "1 silo"), ("abcdefgh", 6, "2 silos")]
)
def test_it_says_how_many_silos_may_be_missing(study, silos, min_silos, who):
    write_yaml(study, tiny_document(silos=list(silos), min_silos=min_silos))
    shown = invoke("plan", study)
    assert shown.exit_code == 0
    assert f"A sum needs {min_silos} of the {len(silos)} silos, so {who} may be missing." in shown.output
    sums = json.loads(invoke("plan", study, "--format", "json").output)["sums"]
    spare = len(silos) - min_silos
    assert sums == {"silos": len(silos), "needed": min_silos, "may_be_missing": spare, "refused": None}


def test_too_small_a_number_of_silos_is_refused_by_all_with_exit_code_3(study):
    write_yaml(study, tiny_document(min_silos=2))
    shown = invoke("plan", study)
    assert shown.exit_code == 3
    assert (
        "Every silo refuses: too_few_silos: study.min_silos is 2; more than half of the 3 study.silos" in shown.output
    )
    told = invoke("plan", study, "--format", "json")
    assert told.exit_code == 3
    sums = json.loads(told.output)["sums"]
    assert (sums["needed"], sums["may_be_missing"]) == (3, 0)
    assert "Set study.min_silos to 3 or more" in sums["refused"]


def test_a_noise_that_no_silo_can_draw_is_refused_by_all_with_what_would_do(study):
    write_yaml(study, tiny_document(privacy={"max_patients": 10_000_000, "count_noise": 1e-3}))
    for shown in (invoke("plan", study), invoke("plan", study, "--format", "json")):
        assert shown.exit_code == 3
        said = " ".join(shown.output.split())
        assert "study.privacy.count_noise is 0.001; on the grid of" in said
        assert "Set study.privacy.count_noise to" in said


def test_what_cannot_be_accounted_for_has_no_price_and_is_refused_by_name(study):
    write_yaml(study, tiny_document(evaluation={"early_stopping": {"patience": 3}}))
    shown = invoke("plan", study)
    assert shown.exit_code == 3
    assert shown.output.startswith(f"{study}: every silo refuses: private_choice: study.evaluation.early_stopping: ")
    told = invoke("plan", study, "--format", "json")
    assert told.exit_code == 3
    refused = json.loads(told.output)["refused"]
    assert refused["reason"] == "private_choice"
    assert "plan a public number of rounds" in refused["text"]


def test_a_study_without_noise_is_unbounded_in_valid_json(quick_path):
    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    study = write_yaml(quick_path / "open.yaml", tiny_document(**UNNOISED))
    document = json.loads(invoke("plan", study, "--format", "json").output, parse_constant=refuse)
    assert document["epsilon"] == document["alone"]["heads"] == "unbounded"
    assert "unbounded" in invoke("plan", study).output


def test_the_hospitals_policy_and_ledger_have_a_say(hospital, study):
    spent = charge(hospital, "5" * 64, plan_of(tiny_study()).round_costs(0))
    document = json.loads(invoke("plan", study, "-c", hospital, "--format", "json").output)["hospital"]
    after = accountant.epsilon([*plan_of(tiny_study()).round_costs(0).values(), *plan_of(tiny_study()).costs()], 1e-5)
    assert document == {
        "taken": True,
        "reason": None,
        "why": None,
        "why_after_one_repeated_round": None,
        "spent": spent,
        "after": after,
        "budget": 4.0,
        "left": 4.0 - after,
    }
    shown = invoke("plan", study, "-c", hospital).output
    assert "The policy would take it." in shown
    assert f"Spent before {spent:.4f}, after {after:.4f} of 4.0000, left {4 - after:.4f}." in shown


def test_the_price_of_one_repeated_round_is_told_and_what_the_hospital_would_say(hospital, study):
    prices = planning.price(tiny_study(), 1e-5)
    document = json.loads(invoke("plan", study, "--format", "json", "-c", hospital).output)
    assert document["one_round_repeated"] == prices.repeated
    assert f"{prices.repeated:.4f}" in invoke("plan", study, "-c", hospital).output


def test_the_price_of_a_round_after_a_spoilt_sum_has_a_line_of_its_own(study):
    prices = planning.price(tiny_study(), 1e-5)
    assert prices.spoilt > prices.repeated
    assert (
        json.loads(invoke("plan", study, "--format", "json").output)["one_round_repeated_after_a_spoilt_sum"]
        == prices.spoilt
    )
    (line,) = [line for line in invoke("plan", study).output.splitlines() if "spoilt" in line]
    assert "the study with one round repeated after a spoilt sum" in line
    assert f"{prices.spoilt:.4f}" in line


def test_what_the_study_has_spent_already_is_not_counted_twice(hospital, study):
    charge(hospital, tiny_study().digest, plan_of(tiny_study()).round_costs(0))
    document = json.loads(invoke("plan", study, "-c", hospital, "--format", "json").output)["hospital"]
    assert document["after"] == accountant.epsilon(plan_of(tiny_study()).costs(), 1e-5)


REPEATING = {
    "privacy": {"mode": "distributed"},
    "heads": {"domain_rounds": 3, "pooled_noise": 4.0, "domain_noise": 4.0},
}


@pytest.fixture
def repeating(hospital, study):
    """What another study spent, and this one's with what its rounds will: its round 1 was attempted three times."""
    write_yaml(study, tiny_document(**REPEATING))
    made = tiny_study(**REPEATING)
    first, heads = plan_of(made).round_costs(1), {"heads": plan_of(made).round_costs(1)["heads"]}
    for attempt in (1, 2, 3):
        charge(hospital, "5" * 64, heads, 1, attempt)
    for number, attempt, costs in ((0, 1, plan_of(made).round_costs(0)), (1, 1, first), (1, 2, heads), (1, 3, heads)):
        charge(hospital, made.digest, costs, number, attempt)
    spent = [*plan_of(made).round_costs(0).values(), *first.values(), *heads.values(), *heads.values()]
    return [*heads.values()] * 3, [*spent, *plan_of(made).costs(2)]


def planned(hospital, study):
    return json.loads(invoke("plan", study, "-c", hospital, "--format", "json").output)["hospital"]


def epsilons(*costs):
    return [accountant.epsilon(own, 1e-5) for own in costs]


def test_attempts_that_were_repeated_are_counted_on_top_of_the_plan(hospital, study, repeating):
    other, own = repeating
    after, once = epsilons([*other, *own], [*other, *plan_of(tiny_study(**REPEATING)).costs()])
    assert planned(hospital, study)["after"] == after
    assert after > once + 0.1


def test_a_plan_that_fits_but_for_its_repeated_attempts_is_refused(hospital, study, repeating):
    other, own = repeating
    plan = plan_of(tiny_study(**REPEATING)).costs()
    alone, once = epsilons(own, plan)
    bent = policy_document("north-ward")
    bent["limits"] |= {"study_epsilon": (alone + once) / 2, "round_epsilon": (alone + once) / 2}
    write_yaml(hospital.parent / "policy.yaml", bent)
    assert planned(hospital, study)["reason"] == "epsilon_per_study"
    with_others, once_with_others = epsilons([*other, *own], [*other, *plan])
    bent["limits"] |= {"study_epsilon": alone, "round_epsilon": alone}
    bent["budget"] |= {"epsilon": (with_others + once_with_others) / 2}
    write_yaml(hospital.parent / "policy.yaml", bent)
    assert planned(hospital, study)["reason"] == "budget_spent"
    bent["budget"] |= {"epsilon": with_others}
    write_yaml(hospital.parent / "policy.yaml", bent)
    assert planned(hospital, study)["taken"]


def test_a_refusal_is_named_with_exit_code_3(hospital, study):
    write_yaml(hospital.parent / "policy.yaml", policy_document("north-ward", smallest_domain=10))
    done = invoke("plan", study, "-c", hospital)
    assert done.exit_code == 3
    assert "The policy refuses: smallest_domain: study.privacy.smallest_domain is 0" in done.output
    done = invoke("plan", study, "-c", hospital, "--format", "json")
    assert done.exit_code == 3
    assert json.loads(done.output)["hospital"]["reason"] == "smallest_domain"


def test_a_configuration_in_the_folder_is_found(hospital, study, monkeypatch):
    monkeypatch.chdir(hospital.parent)
    assert "The policy would take it." in invoke("plan", study).output


def test_what_is_recommended_can_be_pasted_and_costs_what_is_said(study):
    shown = invoke("plan", study, "--target-epsilon", "0.8").output
    block = shown[shown.index("# For epsilon 0.8") :]
    said = float(re.search(r"which costs ([0-9.]+)", block)[1])
    pasted = yaml.safe_load(re.split(r"\n# ", block)[0])
    document = tiny_document(**pasted)
    reached = accountant.epsilon(plan_of(Study.model_validate(document)).costs(), 1e-5)
    assert reached == pytest.approx(said, abs=5e-5)
    assert 0.79 < reached <= 0.8
    advice = json.loads(invoke("plan", study, "--target-epsilon", "0.8", "--format", "json").output)["advice"]
    assert advice["scaled"]["fields"]["heads.pooled_noise"] == pasted["heads"]["pooled_noise"]
    assert advice["split"] is None


def test_a_recommendation_that_the_policy_refuses_says_so(hospital, study):
    policy = policy_document("north-ward")
    policy["limits"]["study_epsilon"] = 0.5
    write_yaml(hospital.parent / "policy.yaml", policy)
    given = ("plan", study, "-c", hospital, "--target-epsilon", "0.8", "--no-forecast")
    assert "# This hospital's policy refuses that: " in invoke(*given).output
    refused = json.loads(invoke(*given, "--format", "json").output)["advice_refused"]
    assert "policy.limits.study_epsilon allows 0.5" in refused["scaled"]


def test_a_share_for_the_encoder_is_recommended_if_it_is_asked_for(quick_path):
    steps = {"sealed_steps": True, "sampling_rate": 1.0, "sealing": "ring64", "noise": 20.0}
    study = write_yaml(quick_path / "sealed.yaml", tiny_document(encoder=steps))
    given = ("plan", study, "--target-epsilon", "0.8", "--encoder-share", "0.4")
    block = invoke(*given).output.partition("the given share for the encoder, which costs ")[2]
    pasted = yaml.safe_load("encoder:" + block.partition("encoder:")[2].partition("#")[0])
    advice = json.loads(invoke(*given, "--format", "json").output)["advice"]
    assert advice["split"]["fields"]["encoder.noise"] == pasted["encoder"]["noise"]
    assert "give both" in invoke("plan", study, "--encoder-share", "0.4").output


@pytest.mark.slow
def test_what_cannot_be_reached_is_said(quick_path):
    study = write_yaml(quick_path / "dear.yaml", tiny_document(heads={"pooled_noise": 0.5}))
    shown = invoke("plan", study, "--target-epsilon", "1").output
    assert "The encoder's noise alone cannot bring the study to 1." in shown
    assert "no number of domain rounds costs at most 1." in shown


@pytest.mark.parametrize("target", ["0", "-1", "nan", "inf", "99"])
def test_a_target_that_cannot_be_is_a_sentence(target, study, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fedward-silo", "plan", str(study), "--target-epsilon", target])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert "cannot be aimed at" in capsys.readouterr().err
