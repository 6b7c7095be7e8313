"""The demo's study files: they load, cost what they claim and fit the policies beside them."""

from pathlib import Path

import pytest

from policies.accountant import epsilon
from policies.costs import study_costs
from policies.decision import decide
from policies.document import parse_document
from policies.policy import Policy
from policies.study import load_study

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
CLAIMS = [("exam", 3.9), ("heart-disease", 8.0)]


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_a_study_costs_no_more_than_it_claims_in_either_cohort(name, claim):
    study = load_study(DEMO / name / "study.yaml")
    for cohort in ("training", "evaluation"):
        spent = epsilon([c for c in study_costs(study) if c.cohort == cohort], study.privacy.delta)
        assert 0 < spent <= claim
        if cohort == "training":
            assert spent > 0.98 * claim


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_a_study_is_allowed_by_the_policy_beside_it(name, claim):
    study = load_study(DEMO / name / "study.yaml")
    path = DEMO / name / "policy.yaml"
    for silo in study.silos:
        policy = parse_document(path.read_text(encoding="utf-8").replace("{data_set}", silo), Policy, path)
        everyone = len(study.silos)
        decide(policy, study, silo=silo, roster_size=everyone, spent_costs=[], round=0, attempt=1, charged_attempts=0)
        assert policy.budget.epsilon >= claim


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_a_study_is_short_and_needs_every_silo(name, claim):
    study = load_study(DEMO / name / "study.yaml")
    assert study.rounds <= 10
    assert study.min_silos == len(study.silos)
    assert study.privacy.mode == "distributed"
    assert study.privacy.colluders == 1
