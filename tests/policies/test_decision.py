from __future__ import annotations

import contextlib
import json
import math
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.accounting import accountant
from policies.decision import _rounds, decide, decide_continued
from policies.documents.policy import Policy
from policies.documents.study import read_stored
from policies.documents.unaccountable import WISHES
from policies.plan import memory
from policies.plan.cost import Cost
from policies.plan.release import plan
from policies.refusals import Reason, Refused

CALL = {
    "silo": "site-1",
    "roster_size": 4,
    "spent_costs": (),
    "round": 0,
    "attempt": 1,
    "charged_attempts": 0,
    "today": date(2027, 6, 1),
}


@pytest.fixture
def refusal(make_policy, make_study):
    def ask(policy=None, study=None, **call) -> Refused:
        with pytest.raises(Refused) as caught:
            decide(make_policy(policy), make_study(study), **{**CALL, **call})
        return caught.value

    return ask


def test_a_study_within_the_limits_is_taken_in_every_round(make_policy, make_study):
    policy, study = make_policy(), make_study()
    spent: list[Cost] = []
    for number in range(plan(study).last + 1):
        decide(
            policy, study, **{**CALL, "round": number, "roster_size": None, "spent_costs": spent, "study_spent": spent}
        )
        decide(policy, study, **{**CALL, "round": number, "spent_costs": spent, "study_spent": spent})
        spent += plan(study).round_costs(number).values()


# reason, changes to the policy, changes to the study, changes to the call, fields that the text must name
UNNOISED = {
    "privacy.mode": "none",
    "privacy.count_noise": 0,
    "heads.pooled_noise": 0,
    "heads.domain_noise": 0,
    "encoder.noise": 0,
    "evaluation.noise": 0,
}
IMAGE = {"column": "scan", "height": 8, "width": 8}
RECORDS = {
    "data_set.unit": "record",
    "data_set.identified_by": ["age", "group", "sex", "y"],
    "data_set.file.columns": ["age", "group", "sex", "y"],
}
REFUSALS = [
    (Reason.NOT_INVITED, {}, {}, {"silo": "site-9"}, ("study.silos",)),
    (Reason.STUDY_NOT_ALLOWED, {"studies": []}, {}, {}, ("policy.studies", "study")),
    (Reason.STUDY_NOT_ALLOWED, {"studies": ["0" * 64]}, {}, {}, ("policy.studies", "study")),
    (Reason.UNIT, {"data_set.unit": "record"}, {}, {}, ("policy.data_set.unit", "study.data.patient")),
    (Reason.UNIT, {}, {"data.patient": None}, {}, ("policy.data_set.unit", "study.data.patient")),
    (
        Reason.UNIT,
        {},
        {"data.patient": "visit"},
        {},
        ("study.data.patient is 'visit'", "policy.data_set.identified_by is 'pid'"),
    ),
    (
        Reason.MEMORY,
        {},
        {"privacy.max_patients": 10_000_000},
        {},
        ("policy.limits.memory_mib allows 512", "privacy.max_patients 10000000", "model.encoder", "heads"),
    ),
    (
        Reason.BOUNDS,
        {"limits.memory_mib": 65_536},
        {"silos": [f"site-{number}" for number in range(128)], "min_silos": 100}
        | {"privacy.max_patients": 5_000_000, "evaluation.noise": 2.0},
        {"roster_size": 100},
        ("study.evaluation.noise is 2; on", "privacy.max_patients 5,000,000 and 128 study.silos", "noise to 2."),
    ),
    (Reason.MEMORY, {"limits.memory_mib": 64}, {}, {}, ("policy.limits.memory_mib allows 64", "MiB at a silo")),
    (
        Reason.MEMORY,
        {},
        {"personal": {"batch_size": 4096}},
        {},
        ("policy.limits.memory_mib", "heads 1; personal 12,"),
    ),
    (Reason.TOO_FEW_SILOS, {"min_silos": 4}, {}, {}, ("policy.min_silos", "study.min_silos")),
    (Reason.TOO_FEW_SILOS, {}, {}, {"roster_size": 2}, ("policy.min_silos", "study.min_silos")),
    (Reason.TOO_FEW_SILOS, {}, {"min_silos": 4}, {"roster_size": 3}, ("policy.min_silos", "study.min_silos")),
    (
        Reason.TOO_MANY_SILOS,
        {},
        {"silos": [f"site-{number}" for number in range(257)], "min_silos": 257},
        {"roster_size": 257},
        ("study.silos names 257", "fedward simulate"),
    ),
    (Reason.NOISE_MODE, {"noise_modes": ["local"]}, {}, {}, ("policy.noise_modes", "study.privacy.mode")),
    (Reason.NOISE_MODE, {"noise_modes": ["distributed"]}, {"privacy.mode": "local"}, {}, ("policy.noise_modes",)),
    (Reason.NOT_PUBLIC, {}, UNNOISED, {}, ("policy.data_set", "study.privacy.mode")),
    (Reason.NOT_PUBLIC, {"noise_modes": ["local", "distributed"]}, UNNOISED, {}, ("never used without noise",)),
    (Reason.COLLUDERS, {}, {"privacy.colluders": 0}, {}, ("policy.colluders", "study.privacy.colluders")),
    (Reason.SEALING, {"encoder_sealing": "ckks"}, {}, {}, ("policy.encoder_sealing", "study.encoder.sealing")),
    (Reason.SEALING, {"encoder_sealing": "ckks"}, {"encoder.sealing": "ring64"}, {}, ("study.encoder.sealing",)),
    (Reason.DELTA, {}, {"privacy.delta": 1e-4}, {}, ("policy.budget.delta", "study.privacy.delta")),
    (Reason.TOO_MANY_ROUNDS, {"limits.rounds": 4}, {}, {}, ("policy.limits.rounds", "study.heads")),
    (
        Reason.TOO_MANY_ROUNDS,
        {"limits.rounds": 10},
        {"encoder.sealed_steps": True, "encoder.sampling_rate": 1.0, "encoder.sealing": "ring64"},
        {},
        ("study.encoder.sealed_steps plans 80 rounds and study.heads 5, 85 together; policy.limits.rounds allows 10",),
    ),
    (Reason.NOT_IN_PLAN, {}, {}, {"round": 7}, ("study.heads",)),
    (Reason.NOT_IN_PLAN, {}, {}, {"round": -1}, ("study.heads",)),
    (Reason.NOT_IN_PLAN, {}, {}, {"attempt": 0}, ("study.heads",)),
    (
        Reason.TOO_MANY_ATTEMPTS,
        {},
        {},
        {"charged_attempts": 2},
        ("policy.limits.charged_attempts", "study.max_attempts"),
    ),
    (Reason.TOO_MANY_ATTEMPTS, {}, {}, {"attempt": 4}, ("policy.limits.charged_attempts", "study.max_attempts")),
    (
        Reason.ENCODER_TOO_LARGE,
        {"limits.encoder_weights": 83},
        {},
        {},
        ("policy.limits.encoder_weights", "study.model"),
    ),
    (
        Reason.ENCODER_TOO_LARGE,
        {},
        {"model.encoder": "resnet18", "data.image": IMAGE},
        {},
        (
            (
                "study.model.encoder resnet18 makes 11170240 encoder weights and study.model.hidden and"
                " study.model.representation 4180, 11174420 together; policy.limits.encoder_weights allows 1000"
            ),
        ),
    ),
    (
        Reason.ENCODER_TOO_LARGE,
        {},
        {"model.encoder": "cnn", "data.image": IMAGE},
        {},
        ("study.model.channels make 4896 encoder weights and study.model.hidden and",),
    ),
    (
        Reason.REPRESENTATION_TOO_LARGE,
        {"limits.representation": 3},
        {},
        {},
        ("policy.limits.representation", "study.model.representation"),
    ),
    (
        Reason.SAMPLING_RATE,
        {"limits.sampling_rate": 0.01},
        {},
        {},
        ("policy.limits.sampling_rate", "study.encoder.sampling_rate"),
    ),
    (Reason.CLIP, {"limits.clip": 0.5}, {}, {}, ("policy.limits.clip", "study.encoder.clip")),
    (
        Reason.EPSILON_PER_STUDY,
        {"limits.study_epsilon": 0.5},
        {},
        {},
        ("policy.limits.study_epsilon", "study.heads", "study.encoder", "study.privacy"),
    ),
    (Reason.EPSILON_PER_STUDY, {}, {"evaluation.noise": 0.5}, {}, ("policy.limits.study_epsilon", "study.evaluation")),
    (Reason.EPSILON_PER_STUDY, {}, {"encoder.noise": 1e-3}, {}, ("policy.limits.study_epsilon", "study.encoder")),
    (Reason.EPSILON_PER_STUDY, {}, {"privacy.count_noise": 1e-3}, {}, ("policy.limits.study_epsilon", "study.privacy")),
    (Reason.EXPIRED, {"budget.expires": "2027-05-31"}, {}, {}, ("policy.budget.expires is 2027-05-31", "2027-06-01")),
    (Reason.EXPIRED, {}, {}, {"today": date(2100, 1, 1)}, ("policy.budget.expires", "dpo@hospital.example")),
    (
        Reason.EXPIRED,
        {"budget.expires": "2027-06-01"},
        {},
        {"ledger_day": date(2027, 6, 2)},
        ("expires is 2027-06-01", "written on 2027-06-02", "now says 2027-06-01", "later budget.expires", "dpo@"),
    ),
    (
        Reason.ARCHITECTURE,
        {"limits.architectures": ["cnn", "resnet18"]},
        {},
        {},
        ("policy.limits.architectures allows cnn, resnet18", "study.model.encoder is mlp"),
    ),
    (
        Reason.ARCHITECTURE,
        {"limits.architectures": ["mlp"]},
        {"model.encoder": "cnn", "data.image": IMAGE},
        {},
        ("study.model.encoder is cnn",),
    ),
    (Reason.SMALLEST_DOMAIN, {"smallest_domain": 1}, {}, {}, ("policy.smallest_domain", "study.privacy.smallest")),
    (Reason.SMALLEST_DOMAIN, {"smallest_domain": 20}, {"privacy.smallest_domain": 19}, {}, ("is 19", "at least 20")),
    (
        Reason.PUBLISH,
        {"publish": ["accuracy"]},
        {"publish": ["accuracy", "auc", "patients"]},
        {},
        ("study.publish lists auc, patients", "policy.publish allows accuracy"),
    ),
    (Reason.PUBLISH, {"publish": []}, {"publish": ["auc"]}, {}, ("policy.publish allows nothing",)),
    (
        Reason.EPSILON_PER_ROUND,
        {"limits.round_epsilon": 0.4},
        {},
        {},
        ("policy.limits.round_epsilon allows 0.4", "study.heads", "in 1 charged attempts"),
    ),
    (Reason.SPLIT, {"split.encoder": 0.1}, {}, {}, ("policy.split.encoder", "study.encoder.noise")),
    (Reason.SPLIT, {"split.heads": 0.1}, {}, {}, ("policy.split.heads", "study.heads")),
    (Reason.SPLIT, {"split.counts": 0.01}, {}, {}, ("policy.split.counts", "study.privacy.count_noise")),
    (Reason.SPLIT, {"split.metrics": 0.1}, {}, {}, ("policy.split.metrics", "study.evaluation.noise")),
    (
        Reason.BUDGET_SPENT,
        {},
        {},
        {"spent_costs": [Cost("training", 1.0, 1.05, 1)]},
        ("policy.budget.epsilon", "study.heads"),
    ),
]


def test_rounds_of_one_price_are_one_reason(refusal):
    """A sentence on the wire is bounded: a hundred rounds must not crowd out the other reasons."""
    refused = refusal({"limits.round_epsilon": 0.01}, {})
    dear = [text for reason, text in refused.reasons if reason is Reason.EPSILON_PER_ROUND]
    assert len(dear) == 5
    assert any(text.startswith("rounds 1 to 2 of study.heads would each cost epsilon 0.3791") for text in dear)
    assert [" would each cost " in text for text in dear] == [text.startswith("rounds ") for text in dear]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [([4], "round 4"), ([0, 1], "rounds 0 to 1"), ([1, 2, 3, 5, 7, 8, 9], "rounds 1 to 3, 5, 7 to 9")],
)
def test_rounds_are_told_by_their_runs(numbers, words):
    assert _rounds(numbers) == words


def test_a_study_whose_sums_too_few_could_open_is_refused(refusal):
    refused = refusal({"limits.clip": 0.5}, {"privacy.mode": "local", "min_silos": 2, "encoder.clip": 0.7})
    texts = [text for reason, text in refused.reasons if reason is Reason.TOO_FEW_SILOS]
    assert any("so that no two different sums of a tensor can be opened" in text for text in texts)
    assert len(refused.reasons) > len(texts), "the other reasons are told as well"


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row[0].value)
def test_each_refusal_has_its_reason_and_names_the_fields(row, refusal):
    reason, policy, study, call, names = row
    refused = refusal(policy, study, **call)
    assert refused.reason is reason
    assert str(refused).startswith(f"{reason.value}: ")
    for name in names:
        assert name in refused.text


def test_all_reasons_stand_in_one_refusal_with_the_studys_value_and_the_allowed_one(refusal):
    """The label of the first, all labels at the front, and the prices beside what needs no accountant."""
    refused = refusal(
        {"limits.clip": 0.5, "limits.study_epsilon": 0.5, "min_silos": 4},
        {"encoder.clip": 0.7, "min_silos": 3},
        roster_size=3,
        spent_costs=[Cost("training", 1.0, 1.05, 1)],
    )
    assert refused.reason is Reason.TOO_FEW_SILOS
    reasons = [reason for reason, _ in refused.reasons]
    assert reasons[:3] == [Reason.TOO_FEW_SILOS, Reason.TOO_FEW_SILOS, Reason.CLIP]
    assert {Reason.EPSILON_PER_STUDY, Reason.SPLIT, Reason.BUDGET_SPENT} <= set(reasons)
    assert refused.text.startswith(f"{len(reasons)} reasons (too_few_silos, clip, ")
    assert "(3) study.encoder.clip is 0.7; policy.limits.clip allows 0.5. (4)" in refused.text


@pytest.mark.parametrize(
    ("policy", "call"),
    [({"budget.expires": "2027-05-31"}, {}), ({"studies": ["0" * 64]}, {}), ({}, {"silo": "nobody"})],
    ids=["expired", "not listed", "not invited"],
)
def test_a_stranger_learns_nothing_of_the_ledger(policy, call, refusal):
    """What is left of the budget is for those whom the hospital works with."""
    spent = [Cost("training", 1.0, 1.05, 1)]
    told = [refusal(policy, **call, spent_costs=costs, study_spent=costs).reasons for costs in ([], spent)]
    assert told[0] == told[1]


def test_a_study_that_was_stored_before_a_bound_existed_is_refused_by_name(make_policy, make_study):
    stored = make_study().canonical().replace(b'"learning_rate":0.1', b'"learning_rate":1e+39')
    with pytest.raises(Refused, match=r"^bounds: study\.encoder\.learning_rate: 1e\+39 is outside"):
        decide(make_policy(), read_stored(stored), **CALL)


def test_a_study_of_layers_that_no_policy_allows_is_refused_without_any_work(make_policy, make_study):
    """Eight layers of 4,096: 117 million weights, 15 GB with gradients and noise; only arithmetic is done."""
    study = make_study({"model.hidden": [4096] * 8})
    assert memory.needed(study).encoder > 15e9
    for limits, reason in (({}, "encoder_too_large"), ({"limits.encoder_weights": 10**9}, "memory")):
        with pytest.raises(Refused) as refused:
            decide(make_policy(limits), study, **CALL)
        assert refused.value.reason == reason


FILES = [  # changes to the study that expect another file than a policy of version 3 means, and what the refusal says
    (
        {"data.columns": ["y", "pid", "age"]},
        ("study.data.columns names", "(y, pid, age)", "policy.data_set.file.columns says that the file has a header"),
    ),
    (
        {"data.columns": ["age", "group", "sex", "y", "pid", *(digit * 40 for digit in "123")]},
        (f"without one (age, group, sex, y, pid, {'1' * 32} and 2 more)",),
    ),
    (
        {"data.delimiter": "."},
        ("study.data.delimiter is '.'", "policy.data_set.file.delimiter is ','", "one of version 4 into force"),
    ),
]


@pytest.mark.parametrize(("changes", "names"), FILES)
def test_a_policy_that_cannot_say_how_the_file_is_parted_refuses_what_it_does_not_mean(
    changes, names, make_policy, make_study
):
    stated = json.loads(make_policy().canonical()) | {"version": 3}
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    older, study = Policy.model_validate(stated), make_study({**changes, "privacy.max_patients": 1000})
    with pytest.raises(Refused) as refused:
        decide(older, study, **CALL)
    assert refused.value.reason is Reason.FILE
    for name in names:
        assert name in refused.value.text
    decide(older, make_study(), **CALL)


@pytest.mark.parametrize("policy", [{}, {"data_set.file": {"delimiter": ";", "columns": ["pid", "y", "age", "group"]}}])
@pytest.mark.parametrize("study", [{}, *(changes for changes, _ in FILES)])
def test_from_version_4_on_the_policy_says_it_and_any_study_is_taken(policy, study, make_policy, make_study):
    decide(make_policy(policy), make_study(study), **CALL)


def test_every_reason_of_a_decision_is_tested():
    at_the_gate = {Reason.POLICY_CHANGED, Reason.FAULT, Reason.NOT_APPROVED, Reason.UNSIGNED}
    continuing = {Reason.NO_MODEL, Reason.HAND_OVER}
    elsewhere = {*at_the_gate, *continuing, Reason.BOUNDS, Reason.FILE, *(wish.reason for wish in WISHES)}
    assert {row[0] for row in REFUSALS} | elsewhere == set(Reason)


def test_the_last_day_counts_and_without_a_day_the_machines_is_asked(make_policy, make_study):
    decide(make_policy({"budget.expires": "2027-06-01"}), make_study(), **CALL)
    today = datetime.now(UTC).date()
    call = {**CALL, "today": None}
    decide(make_policy({"budget.expires": str(today + timedelta(days=1))}), make_study(), **call)
    with pytest.raises(Refused, match="policy_expired"):
        decide(make_policy({"budget.expires": str(today - timedelta(days=2))}), make_study(), **call)


@settings(max_examples=60, deadline=None)
@given(today=st.integers(-3, 3), written=st.none() | st.integers(-3, 3))
def test_the_later_of_the_machines_day_and_the_ledgers_counts(make_policy, make_study, today, written):
    last = date(2027, 6, 1)
    day = None if written is None else last + timedelta(days=written)
    call = {**CALL, "today": last + timedelta(days=today), "ledger_day": day}
    if max(today, written or today) > 0:
        with pytest.raises(Refused, match="policy_expired"):
            decide(make_policy({"budget.expires": "2027-06-01"}), make_study(), **call)
    else:
        decide(make_policy({"budget.expires": "2027-06-01"}), make_study(), **call)


def test_an_expired_policy_binds_public_data_too(make_policy, make_study):
    policy = make_policy({"data_set.public": True, "budget.expires": "2027-05-31"})
    with pytest.raises(Refused, match="policy_expired"):
        decide(policy, make_study(UNNOISED), **CALL)


COLUMNS = ["age", "group", "sex", "y"]
TAKEN = [  # changes to the policy, to the study, to the call: at each limit, and on its better side
    ({"limits.clip": 1.0}, {"encoder.clip": 1.0}, {}),
    ({"limits.clip": 2.0}, {"encoder.clip": 1.0}, {}),
    ({"limits.rounds": 5}, {}, {}),
    ({"limits.representation": 4}, {}, {}),
    ({"limits.sampling_rate": 0.02}, {}, {}),
    ({}, {"privacy.delta": 1e-6}, {}),
    ({}, {"min_silos": 4}, {}),
    ({}, {}, {"roster_size": 3}),
    ({"colluders": 0}, {}, {}),
    ({"colluders": 1, "data_set.public": True}, UNNOISED | {"privacy.colluders": 0}, {}),
    ({"smallest_domain": 20}, {"privacy.smallest_domain": 21}, {}),
    ({}, {"encoder.sealing": "ckks"}, {}),
    ({"encoder_sealing": "ckks"}, {"encoder.sealing": "ckks"}, {}),
    ({}, {}, {"attempt": 3, "charged_attempts": 1}),
    (RECORDS, {"data.patient": None, "data.columns": COLUMNS}, {}),
]


@pytest.mark.parametrize("row", TAKEN, ids=str)
def test_at_a_limit_and_on_its_better_side_a_study_is_taken(row, make_policy, make_study):
    policy, study, call = row
    decide(make_policy(policy), make_study(study), **{**CALL, **call})


def test_what_is_asked_for_is_enough_to_be_taken(make_policy, make_study):
    decide(make_policy({"limits.architectures": ["mlp"]}), make_study(), **CALL)
    decide(make_policy({"smallest_domain": 20}), make_study({"privacy.smallest_domain": 20}), **CALL)
    decide(make_policy({"publish": ["auc", "patients"]}), make_study({"publish": ["patients"]}), **CALL)
    decide(make_policy({"publish": []}), make_study(), **CALL)


@pytest.mark.parametrize("tensor", ["encoder", "heads", "counts", "metrics"])
def test_a_tensor_may_take_its_share_and_no_more(make_policy, make_study, tensor):
    study = make_study()
    alone = accountant.epsilon(plan(study).tensor_costs()[tensor], 1e-5)
    share = alone / 2.0 * (1 + 1e-9)
    decide(make_policy({f"split.{tensor}": share}), study, **CALL)
    with pytest.raises(Refused, match=f"split: .*policy.split.{tensor}"):
        decide(make_policy({f"split.{tensor}": share * (1 - 2e-9)}), study, **CALL)


def test_a_round_may_cost_its_cap_and_no_more(make_policy, make_study):
    study = make_study()
    dearest = max(accountant.epsilon(plan(study).round_costs(r).values(), 1e-5) for r in range(plan(study).last + 1))
    decide(make_policy({"limits.round_epsilon": dearest}), study, **CALL)
    with pytest.raises(Refused, match="epsilon_per_round"):
        decide(make_policy({"limits.round_epsilon": math.nextafter(dearest, 0.0)}), study, **CALL)


def test_only_what_is_drawn_anew_counts_again_against_the_cap_of_a_round(make_policy, make_study):
    call = {**CALL, "round": 1, "attempt": 2, "charged_attempts": 1}
    study = make_study()
    heads, encoder = (plan(study).round_costs(1)[tensor] for tensor in ("heads", "encoder"))
    cap = max(
        accountant.epsilon([heads, heads, encoder], 1e-5),
        *(accountant.epsilon(plan(study).round_costs(r).values(), 1e-5) for r in range(plan(study).last + 1)),
    )
    twice = make_study({"heads.pooled_noise": 8})
    both = accountant.epsilon([*plan(twice).round_costs(1).values(), plan(twice).round_costs(1)["heads"]], 1e-5)
    once = accountant.epsilon(plan(twice).round_costs(1).values(), 1e-5)
    assert once < both
    decide(make_policy({"limits.round_epsilon": cap}), study, **call)
    decide(make_policy({"limits.round_epsilon": both, "limits.study_epsilon": 4.0}), twice, **call)
    with pytest.raises(Refused, match="in 2 charged attempts"):
        decide(make_policy({"limits.round_epsilon": (once + both) / 2, "limits.study_epsilon": 4.0}), twice, **call)
    local = make_study({"heads.pooled_noise": 8, "privacy.mode": "local"})
    between = make_policy({"limits.round_epsilon": (once + both) / 2, "limits.study_epsilon": 4.0})
    decide(between, local, **call)
    with pytest.raises(Refused, match=r"round 1 of .* in 2 charged attempts"):
        decide(between, local, **call, renewed=1)


def test_an_allowed_digest_lets_its_study_in_and_no_other(make_policy, make_study):
    policy = make_policy({"studies": [make_study().digest]})
    decide(policy, make_study(), **CALL)
    with pytest.raises(Refused, match="study_not_allowed"):
        decide(policy, make_study({"purpose": "Another."}), **CALL)


def test_colluders_bind_local_noise_too_for_what_is_shared_to_survive_a_dropout(make_policy, make_study):
    study = {"privacy.mode": "local", "privacy.colluders": 0}
    with pytest.raises(Refused, match="asks the study to withstand 1"):
        decide(make_policy({"colluders": 1}), make_study(study), **CALL)
    decide(make_policy({"colluders": 0}), make_study(study), **CALL)


def test_the_encoder_is_counted_with_its_biases_and_its_deviations(make_policy, make_study):
    # Inputs: age and its indicator, three codes of sex. (5+1)*8 + (8+1)*4 = 84, with CMI (5+1)*8 + (8+1)*8 = 120.
    decide(make_policy({"limits.encoder_weights": 84}), make_study(), **CALL)
    decide(make_policy({"limits.encoder_weights": 120}), make_study({"encoder.cmi": 0.1}), **CALL)
    with pytest.raises(Refused, match="120 encoder weights"):
        decide(make_policy({"limits.encoder_weights": 119}), make_study({"encoder.cmi": 0.1}), **CALL)


def test_a_study_that_cannot_be_finished_is_refused_at_its_first_round(refusal, make_study):
    nearly = [Cost("training", 1.0, 1.05, 1)]
    assert refusal(spent_costs=nearly, round=0).reason is Reason.BUDGET_SPENT
    assert plan(make_study()).round_costs(0)["counts"].noise == 30


def test_a_budget_of_exactly_the_plan_is_enough(make_policy, make_study):
    study = make_study()
    exact = accountant.epsilon(plan(study).costs(), 1e-5)
    policy = make_policy({"budget.epsilon": exact, "limits.study_epsilon": exact})
    decide(policy, study, **CALL)
    with pytest.raises(Refused, match="epsilon_per_study"):
        decide(make_policy({"limits.study_epsilon": math.nextafter(exact, 0.0)}), study, **CALL)
    held = [Cost("training", 1.0, 20.0, 1)]
    least = accountant.epsilon([*held, *plan(study).costs()], 1e-5)
    for epsilon, enough in ((least, True), (math.nextafter(least, 0.0), False)):
        policy_of_all = make_policy({"budget.epsilon": epsilon, "limits.study_epsilon": exact})
        with contextlib.nullcontext() if enough else pytest.raises(Refused, match="budget_spent"):
            decide(policy_of_all, study, **{**CALL, "spent_costs": held})
    before_last = [cost for number in range(plan(study).last) for cost in plan(study).round_costs(number).values()]
    last = {**CALL, "round": plan(study).last}
    decide(policy, study, **{**last, "spent_costs": before_last, "study_spent": before_last})
    with pytest.raises(Refused, match="budget_spent"):
        decide(policy, study, **{**last, "spent_costs": [*before_last, Cost("training", 1.0, 20.0, 1)]})


def test_repeated_attempts_count_against_the_limit_of_the_study(make_policy, make_study):
    study = make_study()
    repeated = [Cost("training", 1.0, 15.0, 1)] * 60
    call = {**CALL, "round": 1, "spent_costs": repeated}
    policy = make_policy({"budget.epsilon": 30})
    decide(policy, study, **call)
    with pytest.raises(Refused, match="with its repeated attempts"):
        decide(policy, study, **call, study_spent=repeated)
    exact = accountant.epsilon([*repeated, *plan(study).costs(1)], 1e-5)
    wide = {"budget.epsilon": 30, "limits.study_epsilon": exact}
    decide(make_policy(wide), study, **call, study_spent=repeated)
    with pytest.raises(Refused, match="with its repeated attempts"):
        decide(
            make_policy(wide | {"limits.study_epsilon": math.nextafter(exact, 0.0)}),
            study,
            **call,
            study_spent=repeated,
        )


def test_a_spent_evaluation_cohort_does_not_hinder_training_below_it(make_policy, make_study):
    held = [Cost("evaluation", 1.0, 1.5, 1)]
    decide(make_policy(), make_study({"evaluation.noise": 1000.0}), **{**CALL, "spent_costs": held})


def test_the_decisions_after_the_first_compose_nothing(make_policy, make_study, composed):
    policy, study = make_policy({"budget.epsilon": 16}), make_study({"encoder.noise": 1.4})
    held: list[Cost] = []
    decide(policy, study, **CALL)
    first = composed()
    for number in range(1, plan(study).last + 1):
        held += plan(study).round_costs(number - 1).values()
        decide(policy, study, **{**CALL, "round": number, "spent_costs": held, "study_spent": held})
    assert composed() == first


def test_public_data_may_be_used_without_noise_and_without_a_budget(make_policy, make_study):
    public = make_policy({"data_set.public": True})
    decide(public, make_study(UNNOISED), **CALL)
    decide(public, make_study(UNNOISED), **{**CALL, "spent_costs": [Cost("training", 1.0, 0, 1)]})
    decide(public, make_study(), **{**CALL, "spent_costs": [Cost("training", 1.0, 0, 1)]})


@pytest.mark.parametrize(("policy", "reason"), [({"limits.rounds": 4}, "many_rounds"), ({"min_silos": 4}, "too_few")])
def test_the_other_limits_hold_for_public_data_too(make_policy, make_study, policy, reason):
    with pytest.raises(Refused, match=reason):
        decide(make_policy({"data_set.public": True, **policy}), make_study(UNNOISED), **CALL)


# --- a study that continues another ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("allowed", "silo", "newcomers", "taken"),
    [
        (False, "site-1", (), True),
        (False, "site-1", ("site-9",), False),
        (True, "site-1", ("site-9",), True),
        (False, "site-9", ("site-9",), True),
    ],
    ids=["nobody new", "a newcomer", "allowed", "the newcomer itself"],
)
def test_who_has_trained_a_model_decides_whether_newcomers_go_on_with_it(
    make_policy, make_study, *, allowed, silo, newcomers, taken
):
    earlier = make_study({"silos": ["site-1", "site-2", "site-3"], "min_silos": 2, "privacy.colluders": 0})
    study = make_study(
        {"silos": ["site-1", "site-2", *newcomers], "min_silos": 2, "privacy.colluders": 0, "continues": "0" * 64}
    )
    policy = make_policy({"hand_over": allowed})
    if taken:
        decide_continued(policy, study, earlier, silo)
        return
    with pytest.raises(Refused, match=r"site-9 did not belong.*policy\.hand_over is false") as caught:
        decide_continued(policy, study, earlier, silo)
    assert caught.value.reason is Reason.HAND_OVER
