"""The demo's study files: they load, cost what they claim and fit the policies beside them."""

import math
from pathlib import Path

import pytest

from deploy.demo.sources import load_source
from policies.accounting.accountant import epsilon
from policies.decision import decide
from policies.documents.study import load_study
from policies.plan.release import plan
from policies.refusals import Reason, Refused

DEMO = Path(__file__).parents[2] / "deploy" / "demo"
CLAIMS = [("exam", 4.0), ("nonlinear", 4.0), ("nonlinear-30k", 4.0), ("heart-disease", 8.0)]
ALL = [*(name for name, _ in CLAIMS), "heart-disease-public"]


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_a_study_costs_no_more_than_it_claims_in_either_cohort_though_one_round_is_repeated(name, claim):
    planned = plan(study := load_study(DEMO / name / "study.yaml"))
    for cohort in ("training", "evaluation"):
        runs = [[*planned.costs(), *again] for again in planned.repeats()]
        spent = max(epsilon([c for c in run if c.cohort == cohort], study.privacy.delta) for run in runs)
        assert 0.98 * claim < spent <= claim


@pytest.mark.parametrize("name", [name for name, _ in CLAIMS])
def test_every_hospital_goes_on_after_one_lost_attempt_at_any_round(name):
    """Every charge of a run in which this round is attempted twice, in the order in which the rounds are asked."""
    source = load_source(DEMO / name)
    study, planned = source.study, plan(source.study)
    policy, silo = source.policy_of(study.silos[0]), study.silos[0]
    for lost in range(planned.last + 1):
        spent = []
        for number in range(planned.last + 1):
            for attempt in (1, 2) if number == lost else (1,):
                # Draws that the next attempt sends again are charged once, and count with that one.
                last = attempt == 2 or number != lost
                drawn = [one.cost for one in planned.round(number) if last or not one.resendable]
                decide(
                    policy,
                    study,
                    silo=silo,
                    roster_size=len(study.silos),
                    spent_costs=spent,
                    round=number,
                    attempt=attempt,
                    charged_attempts=attempt - 1,
                    study_spent=spent,
                )
                spent += drawn


@pytest.mark.parametrize("name", ALL)
def test_a_study_is_allowed_by_the_policy_beside_it(name):
    source = load_source(DEMO / name)
    study = source.study
    for silo in study.silos:
        policy = source.policy_of(silo)
        everyone = len(study.silos)
        decide(policy, study, silo=silo, roster_size=everyone, spent_costs=[], round=0, attempt=1, charged_attempts=0)
        assert policy.data_set.id == silo
        assert policy.budget.epsilon >= dict(CLAIMS).get(name, 0)


def test_the_study_without_noise_runs_on_data_that_their_policy_declares_public_and_on_no_other():
    public = load_source(DEMO / "heart-disease-public")
    assert public.policy_of("va").data_set.public
    assert epsilon(plan(public.study).costs(), public.study.privacy.delta) == math.inf
    for name, _ in CLAIMS:
        source = load_source(DEMO / name)
        policy = source.policy_of(source.study.silos[0])
        assert not policy.data_set.public
    with pytest.raises(Refused) as refused:
        decide(policy, public.study, silo="va", roster_size=4, spent_costs=[], round=0, attempt=1, charged_attempts=0)
    assert refused.value.reason is Reason.NOT_PUBLIC


def test_both_heart_disease_studies_ask_the_same_of_the_same_records():
    private, public = (load_source(DEMO / name) for name in ("heart-disease", "heart-disease-public"))
    assert set(public.study.data.features) < set(private.study.data.features)
    left_out = {"features": ()}
    same = [source.study.data.model_copy(update=left_out) for source in (private, public)]
    assert same[0] == same[1]
    assert private.files == public.files
    assert private.policy_of("va").data_set.holdout == public.policy_of("va").data_set.holdout == 0.34


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_a_study_is_short_and_needs_every_silo(name, claim):
    study = load_study(DEMO / name / "study.yaml")
    assert study.rounds <= 10
    assert study.min_silos == len(study.silos)
    assert study.privacy.mode == "distributed"
    assert study.privacy.colluders == 1
