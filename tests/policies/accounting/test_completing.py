"""A draft becomes a study that costs what the draft says, and keeps what it states."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policies.accounting import accountant
from policies.accounting.completing import complete
from policies.decision import decide
from policies.documents.document import DocumentError
from policies.documents.draft import Draft
from policies.documents.policy import load_policy
from policies.documents.study import Study
from policies.documents.writing import write_study
from policies.plan import quorum
from policies.plan.cost import COHORTS
from policies.plan.derive import RULE
from policies.plan.release import noise_fields, plan

ROOT = Path(__file__).parents[3]
LABELS = {
    "two": {"column": "ill", "positive": [1], "negative": [0]},
    "three": {"column": "ill", "classes": [[0], [1], [2]]},
    "number": {"column": "ill", "minimum": 0, "maximum": 60},
}


def draft_of(*, silos=3, inputs=4, domains=2, patients=(1000,), label="two", epsilon=4.0, **sections):
    names = [f"group {number}" for number in range(domains)]
    document = {
        "name": "drafted",
        "purpose": "Try the rule.",
        "silos": [f"silo-{number}" for number in range(silos)],
        "data": {
            "label": LABELS[label],
            "domain": [{"column": "group", "values": list(range(domains)), "names": names}],
            "features": [
                {"kind": "number", "column": f"x{number}", "minimum": 0, "maximum": 1} for number in range(inputs)
            ],
        },
        "expected": {"patients": list(patients)},
        "privacy": {"epsilon": epsilon},
    }
    for name, fields in sections.items():
        document[name] = document.get(name, {}) | fields if isinstance(fields, dict) else fields
    return Draft.model_validate(document)


def epsilons(study):
    costs = plan(study).costs()
    return [
        accountant.epsilon((cost for cost in costs if cost.cohort == cohort), study.privacy.delta) for cohort in COHORTS
    ]


def dearest(study):
    """What each cohort costs at most if one round is charged twice."""
    planned = plan(study)
    runs = [planned.costs(), *([*planned.costs(), *again] for again in planned.repeats())]
    return [
        max(
            accountant.epsilon((cost for cost in run if cost.cohort == cohort), study.privacy.delta)
            for run in runs
            if len(run) == len(runs[0]) or any(cost.cohort == cohort for cost in run[len(runs[0]) :])
        )
        for cohort in COHORTS
    ]


def test_both_cohorts_cost_what_the_draft_says():
    study = complete(draft_of(), "draft.yaml")
    assert all(0.99 * 4 <= spent <= 4 for spent in epsilons(study))


@pytest.mark.parametrize("silos", [4, 7])
@pytest.mark.parametrize("label", sorted(LABELS))
def test_a_consortiums_sample_policy_takes_it(silos, label):
    policy = load_policy(ROOT / "policies" / "samples" / "consortium.yaml")
    drafted = draft_of(silos=silos, label=label, inputs=60, patients=(800,))
    study = complete(drafted.model_copy(update={"data": drafted.data.model_copy(update={"patient": "patient_id"})}), "")
    decide(
        policy, study, silo=study.silos[0], roster_size=None, spent_costs=[], round=0, attempt=1, charged_attempts=0,
        study_spent=[],
    )  # fmt: skip


def test_counts_are_nearly_free():
    study = complete(draft_of(), "draft.yaml")
    costs = [
        cost for cost in plan(study).costs() if cost.cohort == "training" and cost.noise != study.privacy.count_noise
    ]
    assert accountant.epsilon(costs, study.privacy.delta) > 0.98 * 4


def test_what_the_draft_states_is_kept():
    stated = {"heads": {"clip": 0.4, "domain_rounds": 2}, "evaluation": {"bins": 20}, "max_attempts": 5}
    study = complete(draft_of(**stated), "draft.yaml")
    assert (study.heads.clip, study.heads.domain_rounds, study.evaluation.bins, study.max_attempts) == (0.4, 2, 20, 5)


def test_a_stated_noise_is_refused_by_name():
    with pytest.raises(DocumentError, match=r"field heads\.domain_noise: privacy\.epsilon stands for every noise"):
        complete(draft_of(heads={"domain_noise": 3}), "draft.yaml")


def test_a_fault_of_the_study_is_told_by_file_and_field():
    with pytest.raises(DocumentError, match=r"draft\.yaml: field heads\.cilp: unknown field"):
        complete(draft_of(heads={"cilp": 0.5}), "draft.yaml")


def test_too_few_silos_are_told_by_field():
    with pytest.raises(DocumentError, match=r"draft\.yaml.*field min_silos"):
        complete(draft_of(silos=4, min_silos=2), "draft.yaml")


def test_one_lost_attempt_is_within_what_the_draft_states():
    study = complete(draft_of(silos=6, privacy={"epsilon": 4.0, "mode": "distributed"}), "draft.yaml")
    planned, delta = plan(study), study.privacy.delta
    runs = [accountant.epsilon([*planned.costs(), *again], delta) for again in planned.repeats()]
    assert study.privacy.mode == "distributed"
    assert 0.98 * 4 < max(runs) <= 4
    assert accountant.epsilon(planned.costs(), delta) < 0.98 * 4


def test_an_epsilon_whose_noise_is_too_small_for_the_patients_is_told_with_both_ways_out():
    with pytest.raises(DocumentError, match=r"field privacy\.epsilon: study\.\S+ is \S+; on the grid of") as told:
        complete(draft_of(silos=40, patients=(10_000_000,), epsilon=30.0), "draft.yaml")
    assert "study.privacy.max_patients to" in str(told.value)
    assert str(told.value).endswith("state a smaller one")


def test_an_epsilon_that_no_noise_reaches_is_told_by_field():
    with pytest.raises(DocumentError, match=r"field privacy\.epsilon: no noise up to 1e\+06"):
        complete(draft_of(privacy={"epsilon": 1e-9, "delta": 1e-12}), "draft.yaml")


@pytest.mark.slow
def test_an_encoder_that_is_trained_leaves_most_to_the_heads():
    study = complete(draft_of(inputs=300, patients=(20_000,)), "draft.yaml")
    alone = {
        tensor: accountant.epsilon(costs, study.privacy.delta) for tensor, costs in plan(study).tensor_costs().items()
    }
    assert 0.7 < alone["encoder"] / alone["heads"] < 1


SHAPES = st.fixed_dictionaries(
    {
        "silos": st.integers(2, 40),
        "inputs": st.integers(1, 300),
        "domains": st.integers(1, 12),
        "patients": st.tuples(st.integers(1, 10_000_000)),
        "label": st.sampled_from(sorted(LABELS)),
        "epsilon": st.floats(0.01, 32),
    }
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(
    shape={"silos": 2, "inputs": 257, "domains": 1, "patients": (10_000_000,), "label": "number", "epsilon": 1.0}
).via("more patients in a batch than a study may say")
@given(SHAPES)
def test_every_draft_becomes_a_study_at_its_price(shape):
    if shape["epsilon"] > 1 and shape["silos"] * shape["patients"][0] > 1_000_000:
        with contextlib.suppress(DocumentError):  # the noise may be too small for the grid, as the test above says
            _priced(shape)
    else:
        _priced(shape)


def _priced(shape):
    study = complete(draft_of(**shape), "draft.yaml")
    assert Study.model_validate(study.model_dump(mode="json")) == study
    quorum.require(study)
    assert all(0.99 * shape["epsilon"] <= spent <= shape["epsilon"] for spent in dearest(study))
    assert write_study(study).startswith("version: 1\n")


def test_every_noise_of_a_plan_has_a_line_in_the_rule():
    assert set(noise_fields(COHORTS)) <= {field for field, _ in RULE}
